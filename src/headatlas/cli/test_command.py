"""The command that tests heads."""

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
    check_one_of,
    check_path,
    import_torch,
    print_table,
    split_names,
)
from headatlas.edits.arguments import split_heads
from headatlas.errors import BadArgument
from headatlas.models.head_names import check_head, head_numbers, read_shape
from headatlas.progress import default_progress
from headatlas.tasks.built_in import FUNCTIONS, check_task, relation_names
from headatlas.terminal import bar


def _check_task(param: typer.CallbackParam, value: str | None) -> str | None:
    if value is not None and value not in FUNCTIONS:
        check_task(value, [*relation_names(), *FUNCTIONS])
    return value


def _check_others(value: str) -> str:
    for task in split_names(value) or ():
        if task not in FUNCTIONS:
            check_task(task, [*relation_names(), *FUNCTIONS])
    return value


def _check_out(param: typer.CallbackParam, value: Path | None) -> Path | None:
    if value is not None and value.suffix != ".nc":
        raise BadArgument(f"{param.opts[0]} is {str(value)!r}, expected a file ending in .nc")
    return value


HeadList = Annotated[
    str | None, typer.Option(metavar="HEAD,HEAD", help="Comma-separated heads to test, such as L4.H1,L9.H3.")
]
TaskFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        callback=check_path("file"),
        help="File with the task: JSON Lines or CSV with prompt and target.",
    ),
]
TaskName = Annotated[
    str | None, typer.Option(metavar="NAME", callback=_check_task, help="Built-in task, relation or function.")
]
MapAtlas = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="ATLAS",
        callback=check_path("folder"),
        help="Folder of an atlas of this model: test the top heads of its map by --method of --subject. Rows that"
        " its maps used are not tested.",
    ),
]
MapMethod = Annotated[str | None, typer.Option(metavar="NAME", help="Method of the map in the atlas.")]
MapSubject = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Subject of the map, and what it is tested on without --task and --data."),
]
MapMeasure = Annotated[
    str | None, typer.Option(metavar="NAME", help="Measure of the map (default: the method's first).")
]
MapTop = Annotated[
    int | None, typer.Option(min=1, help="Number of top heads of the map (default: 3 % of all, at least 4).")
]
Claim = Annotated[
    str | None,
    typer.Option(
        callback=check_one_of("needed", "harmful"),
        help="What is claimed of the heads: needed or harmful (default: what the map claims, or needed).",
    ),
]
OtherTasks = Annotated[
    str,
    typer.Option(
        metavar="NAME,NAME",
        callback=_check_others,
        help="Comma-separated other tasks, for selectivity (default: the built-in tasks).",
    ),
]
PromptCount = Annotated[int, typer.Option(min=1, help="Number of prompts.")]
DrawCount = Annotated[int, typer.Option(min=1, help="Maximum number of draws of random heads.")]
Everywhere = Annotated[
    bool,
    typer.Option("--everywhere", help="Remove heads at all of the prompt's tokens, not from its last token on."),
]
Seed = Annotated[int, typer.Option(min=0, help="Random seed for prompts and draws.")]
Out = Annotated[
    Path | None, typer.Option(metavar="FILE", callback=_check_out, help="File for the whole test, such as test.nc.")
]


@app.command("test")
def heads_test(
    model: Model,
    heads: HeadList = None,
    data: TaskFile = None,
    task: TaskName = None,
    atlas: MapAtlas = None,
    method: MapMethod = None,
    subject: MapSubject = None,
    measure: MapMeasure = None,
    top: MapTop = None,
    claim: Claim = None,
    others: OtherTasks = "",
    prompts: PromptCount = 48,
    draws: DrawCount = 199,
    everywhere: Everywhere = False,
    seed: Seed = 0,
    out: Out = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    as_json: Json = False,
) -> None:
    """Test whether a task needs some heads, by removing them: heads that you list, or the top heads of a map.

    The outcome is supported, not supported, undecided or no ability (docs/concepts/evidence.md). The heads are
    replaced in three ways and compared with random heads that are matched to them; prompts are fresh.
    """
    _check_choice_of_heads(heads, atlas, method, subject, measure, top)
    _check_choice_of_task(data, task, subject)
    listed = split_heads(heads, "--heads") if heads is not None else []
    # The numbers of layers and heads, if they are known before torch is imported.
    if numbers := read_shape(model):
        for name in listed:
            check_head(*head_numbers(name), *numbers)
    import_torch()
    from headatlas.results.store import save
    from headatlas.results.test_summary import record
    from headatlas.runs.one_test import map_test, test

    default_progress.set(bar)
    options: dict[str, Any] = {
        "others": split_names(others) or (),
        "prompts": prompts,
        "draws": draws,
        "everywhere": everywhere,
        "seed": seed,
        "device": device,
        "dtype": dtype,
        "progress": bar,
    }
    if listed:
        result = test(model, listed, data or task, atlas=atlas, claim=claim or "needed", **options)
    else:
        assert atlas is not None
        assert method is not None
        assert subject is not None
        result = map_test(model, atlas, method, subject, data or task, measure=measure, claim=claim, top=top, **options)
    if out is not None:
        save(result, out)
    if as_json:
        typer.echo(json.dumps(record(result), indent=2))
    else:
        _show(result, out)


def _check_choice_of_heads(
    heads: str | None,
    atlas: Path | None,
    method: str | None,
    subject: str | None,
    measure: str | None,
    top: int | None,
) -> None:
    """Check that heads are either listed, or those of a map in an atlas."""
    of_map = {"--method": method, "--subject": subject, "--measure": measure, "--top": top}
    map_options = {name: value for name, value in of_map.items() if value is not None}
    if heads is not None and map_options:
        name, value = next(iter(map_options.items()))
        raise BadArgument(f"{name} is {value!r} and --heads is {heads!r}: list heads, or choose a map of an atlas")
    if heads is None and atlas is None:
        raise BadArgument("no heads: give --heads L4.H1,L9.H3, or --from ATLAS --method NAME --subject NAME")
    if heads is None and (method is None or subject is None):
        missing = "--method" if method is None else "--subject"
        raise BadArgument(f"--from is {str(atlas)!r} without {missing}: name the map with --method and --subject")


def _check_choice_of_task(data: Path | None, task: str | None, subject: str | None) -> None:
    """Check that a task is chosen once: by its file, by its name, or as the subject of a map."""
    if data is not None and task is not None:
        raise BadArgument(f"--task is {task!r} and --data is {str(data)!r}: give one of them")
    if data is None and task is None and subject is None:
        raise BadArgument("no task: give --data FILE or --task NAME")


def _show(result: Any, out: Path | None) -> None:
    """Print the outcome, a table of the effects, and what the test could have seen."""
    from headatlas.results.test_summary import effect_rows, outcome_sentence, sentences

    typer.echo(outcome_sentence(result))
    if rows := effect_rows(result):
        print_table(
            "Without the heads, and beyond random heads (95 % interval over prompts)", list(map(_in_words, rows))
        )
    for sentence in sentences(result):
        typer.echo(sentence)
    if out is not None:
        typer.echo(f"wrote {out}")


def _in_words(row: dict[str, Any]) -> dict[str, str]:
    """Return a row of the table, with numbers as text; '-' for what was not measured."""
    words = {name: "-" if value is None else str(value) for name, value in row.items() if not isinstance(value, float)}
    # Adding 0 makes -0.00 of small numbers 0.00.
    words |= {name: f"{round(value, 2) + 0.0:.2f}" for name, value in row.items() if isinstance(value, float)}
    low = words.pop("low")
    high = words.pop("high")
    p = words.pop("p")
    if row["low"] is not None:
        words["beyond_random"] += f" ({low} to {high})"
    return words | {"p": p if row["p"] is None else f"{row['p']:.2g}"}
