"""The commands that edit a model permanently, and that compare two models."""

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
from headatlas.models.head_names import check_head, head_numbers, read_shape
from headatlas.progress import default_progress
from headatlas.tasks.built_in import check_task, relation_names
from headatlas.terminal import bar

# Heads that the terminal lists.
MAX_HEADS = 20


def _check_tasks(value: str) -> str:
    for task in split_names(value) or ():
        check_task(task, relation_names())
    return value


Tasks = Annotated[
    str,
    typer.Option(
        callback=_check_tasks, help="Comma-separated tasks: built-in names, relations, or files with prompt and target."
    ),
]


Shots = Annotated[
    int | None,
    typer.Option(min=0, help="Number of few-shot examples in every prompt (default: that of the map in the atlas)."),
]
Scale = Annotated[
    list[str] | None,
    typer.Option(metavar="HEAD=X", help="Head to scale, such as L3.H1=0.5. May be given more than once."),
]
Steer = Annotated[
    list[str] | None,
    typer.Option(
        metavar="HEAD=FILE",
        help="Direction to add to the output of a head, or of a layer (L3=…): a .npy file, or FILE.nc:SUBJECT of a"
        " result. FILE*2 doubles it. May be given more than once.",
    ),
]


@app.command()
def edit(
    model: Model,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="New folder for the checkpoint.")],
    remove: Annotated[
        str | None, typer.Option(metavar="HEAD,HEAD", help="Comma-separated heads to remove, such as L23.H4.")
    ] = None,
    scale: Scale = None,
    steer: Steer = None,
    atlas: Annotated[
        Path | None, typer.Option(callback=check_path("folder"), help="Folder of an atlas of this model, for --set.")
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="TEXT", help=f"Remove heads that the atlas names: {GRAMMAR}."),
    ] = None,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune", help="Delete key-value groups that are removed as a whole, instead of setting them to zero."
        ),
    ] = False,
    tasks: Tasks = "",
    limit: Annotated[int, typer.Option(min=1, help="Number of test examples per task.")] = 32,
    shots: Shots = None,
    draws: Annotated[int, typer.Option(min=0, help="Maximum number of draws of random heads.")] = 59,
    measures: Annotated[
        bool, typer.Option("--measure/--no-measure", help="Load the model and measure the effect.")
    ] = True,
    device: Device = "auto",
    dtype: Dtype = "auto",
    as_json: Json = False,
) -> None:
    """Write a checkpoint with heads removed, scaled or steered, which needs no HeadAtlas, and a card with the effect.

    The effect is measured on --tasks, or else on the built-in tasks of the atlas. Rows that a map of the atlas used are
    not tested. If too few rows remain, a task of --tasks is an error; a task of the atlas is skipped.
    """
    heads = split_heads(remove) if remove is not None else []
    factors = split_scales(scale or ())
    directions = split_steers(steer or ())
    for text in sets or ():
        parse_set(text)
    if sets and atlas is None:
        raise BadArgument(f"--set is {sets[0]!r} without --atlas: give the folder of an atlas of this model")
    if not (heads or factors or directions or sets):
        raise BadArgument("nothing to change: give --remove, --scale, --steer, or --set with --atlas")
    # The numbers of layers and heads, if they are known before torch is imported.
    if numbers := read_shape(model):
        for name in [*heads, *factors]:
            check_head(*head_numbers(name), *numbers)
    if out.exists():
        raise BadArgument(f"--out is {str(out)!r}, which exists: give a new folder")
    import_torch()
    from headatlas.edits.edit import Request, write_edit

    default_progress.set(bar)
    request = Request(heads, factors, directions, atlas, tuple(sets or ()), prune)
    # None means the tasks of the atlas, an empty tuple no measurement.
    task_names = (split_names(tasks) if tasks else None) if measures else ()
    report = write_edit(
        model, request, out, task_names, limit, draws, shots=shots, device=device, dtype=dtype, progress=bar
    )
    _show(report.record, report.folder, as_json)


def _show(record: dict[str, Any], folder: Path, as_json: bool) -> None:
    """Print what was edited, the effect, and the size of the checkpoint."""
    from headatlas.edits.model_card import saved_in_words

    if as_json:
        typer.echo(json.dumps(record | {"folder": str(folder)}, indent=2))
        return
    for entry in record["sets"]:
        typer.echo(f"{entry['set']}: {entry['why']}")
    scaled = [f"{name} × {factor:g}" for name, factor in record["scaled"].items()]
    for change, heads in (("removed", record["removed"]), ("scaled", scaled), ("steered", list(record["steered"]))):
        if heads:
            rest = f" and {len(heads) - MAX_HEADS} more" if len(heads) > MAX_HEADS else ""
            typer.echo(f"{change} {', '.join(heads[:MAX_HEADS])}{rest}")
    if record["pruned"]:
        typer.echo(saved_in_words(record["pruned"]))
    if record["effects"]:
        title = "Test examples before and after the edit; low and high: 95 % interval of the change beyond random heads"
        hidden = ("reason", "random_heads", "p")
        rows = [{key: value for key, value in row.items() if key not in hidden} for row in record["effects"]]
        print_table(title, rows)
        for row in record["effects"]:
            if row["outcome"]:
                typer.echo(f"{row['task']}: {row['outcome']}: {row['reason']}; random heads {row['random_heads']}")
    size = sum(f.stat().st_size for f in folder.iterdir() if f.is_file())
    typer.echo(f"wrote {folder} ({size / 1e6:,.0f} MB)")


@app.command()
def evaluate(
    model_a: Annotated[
        str,
        typer.Argument(
            metavar="MODEL_A", callback=check_model, help="A Hugging Face id, a model folder or a .gguf file."
        ),
    ],
    model_b: Annotated[
        str,
        typer.Argument(
            metavar="MODEL_B", callback=check_model, help="The model to compare it with, such as an edited checkpoint."
        ),
    ],
    tasks: Tasks = "",
    text: Annotated[
        Path | None,
        typer.Option(callback=check_path("file"), help="File of plain text on which to measure perplexity."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Number of held-out examples per task.")] = 64,
    shots: Shots = None,
    atlas: Annotated[
        Path | None,
        typer.Option(callback=check_path("folder"), help="Folder of an atlas: rows that its maps used are not tested."),
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    as_json: Json = False,
) -> None:
    """Compare two models: accuracy and log P on tasks, perplexity on a text.

    Without --tasks and --text, the tasks are math and syntax. Rows that were used to choose the heads of an edited
    checkpoint are not tested.
    """
    import_torch()
    from headatlas.edits.measure import TASKS, evaluation_rows
    from headatlas.edits.measure import evaluate as evaluate_models

    default_progress.set(bar)
    task_names = split_names(tasks) or (() if text else TASKS)
    settings: dict[str, Any] = {"device": device, "dtype": dtype, "progress": bar}
    result = evaluate_models(model_a, model_b, task_names, text=text, limit=limit, shots=shots, atlas=atlas, **settings)
    parts = evaluation_rows(result)
    if as_json:
        typer.echo(json.dumps(parts, indent=2))
        return
    for title, rows in parts.items():
        print_table(title, rows)
