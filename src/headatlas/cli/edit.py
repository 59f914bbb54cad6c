"""The commands that change a model for good, and compare two."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from headatlas.cli.app import (
    Device,
    Dtype,
    Json,
    Model,
    app,
    check_model,
    check_path,
    import_torch,
    print_table,
    split_names,
)
from headatlas.edits.arguments import GRAMMAR, parse_set, split_heads, split_scales, split_steers
from headatlas.errors import BadArgument
from headatlas.models.head_names import check_head, head_numbers, shape
from headatlas.progress import default_progress
from headatlas.tasks.built_in import check_task, relation_names
from headatlas.terminal import bar

SHOWN = 20  # heads


def _tasks(value: str) -> str:
    for task in split_names(value) or ():
        check_task(task, relation_names())
    return value


Tasks = Annotated[
    str,
    typer.Option(callback=_tasks, help="Built-in tasks, relations, files with prompt and target, with commas between."),
]


Shots = Annotated[
    int | None,
    typer.Option(min=0, help="Few-shot examples in every prompt (default: as many as the map in the atlas had)."),
]


@app.command()
def edit(
    model: Model,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="A new folder for the checkpoint.")],
    remove: Annotated[str | None, typer.Option(metavar="HEAD,HEAD", help="Heads to remove, such as L23.H4.")] = None,
    scale: Annotated[
        list[str] | None, typer.Option(metavar="HEAD=X", help="Heads to scale, such as L3.H1=0.5.")
    ] = None,
    steer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HEAD=FILE",
            help="Add a direction to the output of a head, or of a layer (L3=…): a .npy file, or FILE.nc:SUBJECT of a"
            " result; FILE*2 is twice as far.",
        ),
    ] = None,
    atlas: Annotated[
        Path | None, typer.Option(callback=check_path("folder"), help="An atlas of this model, for --set.")
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="TEXT", help=f"Remove heads by name from the atlas: {GRAMMAR}."),
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Drop whole key-value groups instead of setting them to zero.")
    ] = False,
    tasks: Tasks = "",
    limit: Annotated[int, typer.Option(min=1, help="Examples of each task that the effect is measured on.")] = 32,
    shots: Shots = None,
    draws: Annotated[int, typer.Option(min=0, help="Draws of random heads beside it.")] = 20,
    measures: Annotated[
        bool, typer.Option("--measure/--no-measure", help="Whether to load the model and measure the effect.")
    ] = True,
    device: Device = "auto",
    dtype: Dtype = "auto",
    as_json: Json = False,
) -> None:
    """Write a checkpoint with heads removed, scaled or steered, which needs no HeadAtlas, and a card with the effect.

    The effect is measured on --tasks; without them, on the built-in tasks of the atlas. No row that a map of the atlas
    used is a test row: if too few others are left, a task of --tasks is refused, and one of the atlas left out.
    """
    heads, factors = split_heads(remove) if remove is not None else [], split_scales(scale or ())
    directions = split_steers(steer or ())
    for text in sets or ():
        parse_set(text)
    if sets and atlas is None:
        raise BadArgument(f"--set is {sets[0]!r} without --atlas: give the folder of an atlas of this model")
    if not (heads or factors or directions or sets):
        raise BadArgument("nothing is to be changed: give --remove, --scale, --steer, or --set with --atlas")
    if known := shape(model):
        for name in [*heads, *factors]:
            check_head(*head_numbers(name), *known)
    if out.exists():
        raise BadArgument(f"--out is {str(out)!r}, which exists: give a new folder")
    import_torch()
    from headatlas.edits.edit import Request, write_edit

    default_progress.set(bar)
    request = Request(heads, factors, directions, atlas, tuple(sets or ()), prune)
    asked = (split_names(tasks) if tasks else None) if measures else ()
    report = write_edit(model, request, out, asked, limit, draws, shots=shots, device=device, dtype=dtype, progress=bar)
    _show(report.record, report.folder, as_json)


def _show(record: dict[str, Any], folder: Path, as_json: bool) -> None:
    from headatlas.edits.model_card import saved_in_words

    if as_json:
        typer.echo(json.dumps(record | {"folder": str(folder)}, indent=2))
        return
    for of in record["sets"]:
        typer.echo(f"{of['set']}: {of['why']}")
    scaled = [f"{name} × {factor:g}" for name, factor in record["scaled"].items()]
    for what, heads in (("removed", record["removed"]), ("scaled", scaled), ("steered", list(record["steered"]))):
        if heads:
            more = f" and {len(heads) - SHOWN} more" if len(heads) > SHOWN else ""
            typer.echo(f"{what} {', '.join(heads[:SHOWN])}{more}")
    if record["pruned"]:
        typer.echo(saved_in_words(record["pruned"]))
    if record["effects"]:
        print_table("Test examples before and after, and the same with random heads", record["effects"])
    size = sum(f.stat().st_size for f in folder.iterdir() if f.is_file())
    typer.echo(f"wrote {folder} ({size / 1e6:,.0f} MB)")


@app.command()
def evaluate(
    model_a: Annotated[
        str, typer.Argument(metavar="MODEL_A", callback=check_model, help="A hub id, a model folder or a .gguf file.")
    ],
    model_b: Annotated[
        str, typer.Argument(metavar="MODEL_B", callback=check_model, help="Another, such as an edited checkpoint.")
    ],
    tasks: Tasks = "",
    text: Annotated[
        Path | None, typer.Option(callback=check_path("file"), help="A file of plain text, for perplexity.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Held-out examples of each task.")] = 64,
    shots: Shots = None,
    atlas: Annotated[
        Path | None,
        typer.Option(callback=check_path("folder"), help="An atlas: rows that its maps used are not tested."),
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    as_json: Json = False,
) -> None:
    """Compare two models: accuracy and log P on tasks, perplexity on a text.

    Without --tasks and --text, on math and syntax. Rows that maps used to choose the heads of an edited checkpoint are
    not tested.
    """
    import_torch()
    from headatlas.edits.measure import TASKS, evaluation_rows
    from headatlas.edits.measure import evaluate as compared

    default_progress.set(bar)
    asked = split_names(tasks) or (() if text else TASKS)
    ways: dict[str, Any] = {"device": device, "dtype": dtype, "progress": bar}
    result = compared(model_a, model_b, asked, text=text, limit=limit, shots=shots, atlas=atlas, **ways)
    parts = evaluation_rows(result)
    if as_json:
        typer.echo(json.dumps(parts, indent=2))
        return
    for title, rows in parts.items():
        print_table(title, rows)
