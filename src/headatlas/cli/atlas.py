"""The commands around an atlas: make one, draw it, query it."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headatlas.cli.app import (
    Address,
    Csv,
    Device,
    Dtype,
    Engine,
    GpusPerJob,
    Json,
    Model,
    Preset,
    Workers,
    app,
    check_atlas_path,
    check_one_of,
    check_path,
    check_some_of,
    import_torch,
    print_rows,
    print_table,
    resumable,
    split_names,
)
from headatlas.cli.display import Display
from headatlas.figures.figure_names import FIGURES, FORMATS, PALETTES, STYLES
from headatlas.methods import method_names
from headatlas.progress import default_progress, doing
from headatlas.report import PAGE
from headatlas.runs.selection import select_methods
from headatlas.tasks.built_in import FUNCTIONS
from headatlas.terminal import bar

if TYPE_CHECKING:
    from headatlas.results.atlas import Atlas
    from headatlas.runs.where import WhereOptions

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", callback=check_path("folder"), help="Folder of an atlas, or of any head maps.")
]
By = Annotated[
    str | None,
    typer.Option(
        callback=check_one_of("kv-group"),
        help="kv-group: maps summed per key-value group, the unit of cache compressors and pruners.",
    ),
]


Methods = Annotated[
    str,
    typer.Option(
        callback=check_some_of(method_names),
        help="Some of those that `headatlas methods` lists, with commas between. Without it, the preset's.",
    ),
]
Functions = Annotated[
    str,
    typer.Option(
        callback=check_some_of(FUNCTIONS),
        help="Functions, for the methods that take some, with commas between. Without it, what their preset says.",
    ),
]


@app.command()
def run(
    model: Model = "smollm2",
    out: Annotated[Path, typer.Option(help="Folder of the atlas.")] = Path("atlas"),
    preset: Preset = "quick",
    methods: Methods = "",
    functions: Functions = "",
    device: Device = "auto",
    dtype: Dtype = "auto",
    engine: Engine = "local",
    address: Address = None,
    gpus_per_job: GpusPerJob = None,
    workers: Workers = None,
    only_plan: Annotated[
        bool,
        typer.Option("--plan", help="Print the tasks, their time and memory on this machine; do nothing else."),
    ] = False,
    open_page: Annotated[
        bool, typer.Option("--open", help="Open the page in a browser as soon as there is something on it.")
    ] = False,
) -> None:
    """Map a model into a folder, draw it, write its page. Run again, it does only what is missing or has changed.

    The page is there after the first method, and fills up as others finish.
    """
    select_methods(preset, split_names(methods), split_names(functions))
    import_torch()
    from headatlas.runs import run as runs

    where: WhereOptions = {
        "device": device,
        "dtype": dtype,
        "engine": engine,
        "address": address,
        "gpus_per_job": gpus_per_job,
        "workers": workers,
    }
    if only_plan:
        _show_estimate(model, where, preset, split_names(methods), split_names(functions))
        return
    display = Display(out, open_page)
    default_progress.set(display)
    with resumable(out):
        atlas = runs.run(
            model,
            out,
            preset=preset,
            methods=split_names(methods),
            functions=split_names(functions),
            command=shlex.join(["headatlas", *sys.argv[1:]]),
            progress=display,
            watch=display,
            **where,
        )
    failed = _show_atlas(atlas, display.methods)
    display.open(out / PAGE)
    if failed and (methods or failed == len(display.methods)):
        raise typer.Exit(1)


def _show_estimate(
    model: str, where: "WhereOptions", preset: str, methods: list[str] | None, functions: list[str] | None
) -> None:
    from headatlas.runs import tables
    from headatlas.runs.estimate import estimate
    from headatlas.runs.where import Where

    with doing(bar, "counting the workers there is room for"):
        where["workers"] = where["workers"] or Where(**where).count_workers()
    result = estimate(model, preset=preset, methods=methods, functions=functions, progress=bar, **where)
    print_table(f"Estimate for {result.title}", tables.estimate(result))
    for line in tables.estimate_in_words(result):
        typer.echo(line)


def _show_atlas(atlas: "Atlas", planned: list[str]) -> int:
    """Print an atlas and what was written. Return how many of the planned methods could not be done or drawn."""
    from headatlas.comparison.reliability import stability_warnings
    from headatlas.results import tables

    results, title = atlas.results, "Top heads and their evidence"
    if rows := tables.evidence_in_words(tables.evidence(results)):
        title += " (interval: 95 % of a bootstrap, or the range over seeds;"
        title += " p: how often random heads of the same layers lower it as much)"
    print_rows(title, rows)
    for line in [*tables.warnings(results), *stability_warnings(results)]:
        typer.echo(line)
    noted = {name: about for name, about in atlas.info["methods"].items() if name in planned}
    failed = [f"{name} could not be done: {about['why']}" for name, about in noted.items() if not about["complete"]]
    failed += [f"{name} could not be drawn: {a['not_drawn']}" for name, a in noted.items() if "not_drawn" in a]
    for line in failed:
        typer.echo(line)
    drawn = sum(name.endswith(".png") for name in atlas.info["shown"]["files"])
    files = [*(f"{method}.nc" for method in atlas.complete), f"{drawn} figures", str(atlas.folder / PAGE)]
    typer.echo(f"wrote {', '.join(files)}")
    return len(failed)


@app.command()
def figures(
    folder: Folder,
    only: Annotated[
        str,
        typer.Option(
            callback=check_some_of(FIGURES),
            help=f"Some of {', '.join(FIGURES)}.",
        ),
    ] = "",
    formats: Annotated[
        str, typer.Option("--format", callback=check_some_of(FORMATS), help=f"Some of {', '.join(FORMATS)}.")
    ] = ",".join(FORMATS),
    palette: Annotated[
        str, typer.Option(callback=check_one_of(*PALETTES), help=f"One of {', '.join(PALETTES)}.")
    ] = PALETTES[0],
    style: Annotated[
        str,
        typer.Option(
            callback=check_one_of(*STYLES),
            help="marked: heads at chance are drawn pale, tested heads are framed. published: the plain maps.",
        ),
    ] = STYLES[0],
    by: By = None,
    out: Annotated[Path | None, typer.Option(help="Where to. Without it, DIR/figures.")] = None,
) -> None:
    """Draw an atlas as the published figures: a file per figure and format, and a caption beside each."""
    import_torch()
    from headatlas.figures.saving import write_figures
    from headatlas.results.atlas import open_atlas

    atlas = open_atlas(folder)
    place = out or folder / ("figures" if by is None else f"figures-{by}")
    written = write_figures(
        atlas.by(by),
        place,
        only=split_names(only),
        formats=split_names(formats) or [],
        palette=palette,
        style=style,
        when=atlas.when,
        progress=bar,
    )
    for path in written:
        if path.suffix != ".txt":  # its caption
            typer.echo(str(path))


@app.command()
def report(
    folder: Folder,
    out: Annotated[Path | None, typer.Option(help="Where to. Without it, DIR/report.html.")] = None,
    examples: Annotated[
        Path | None,
        typer.Option(
            callback=check_path("file"),
            help="A prompt a line (and, after a tab, its answer): the page holds what `view` shows of each.",
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The atlas's model, if its name in the atlas does not tell where it is.")
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Write an atlas as one page to explore, which opens from disk without a network."""
    import_torch()
    from headatlas.report.page import write_report
    from headatlas.results.atlas import open_atlas

    atlas = open_atlas(folder)
    tab = None
    if examples is not None:
        from headatlas.live.record import read_prompts, record
        from headatlas.live.view import check_same
        from headatlas.models.loading import load

        prompts = read_prompts(examples)
        lm = load(model or str(atlas.info["model"]["name"]), device=device, dtype=dtype)
        check_same(lm, atlas.info)
        tab = record(lm, atlas.results, prompts, bar)
    path = out or folder / PAGE
    write_report(atlas.results, atlas.info, path, tab=tab)
    typer.echo(str(path))


@app.command()
def heads(
    atlas: Annotated[
        Path,
        typer.Argument(
            metavar="ATLAS", callback=check_atlas_path, help="The folder of an atlas, or one of its .nc files."
        ),
    ],
    function: Annotated[
        str,
        typer.Option(help="A function, relation, task or pattern. Without it, the top heads of all, with evidence."),
    ] = "",
    top: Annotated[
        int | None, typer.Option(min=1, help="How many heads. Without it, 10 of a function, 3 of all.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="Only what this method says.")] = None,
    by: By = None,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """The top heads of a function, relation or task, by every method that has a map of it."""
    import_torch()
    from headatlas.results import tables
    from headatlas.results.atlas import by_unit, open_atlas
    from headatlas.results.reading import results_of

    results = open_atlas(atlas).by(by) if atlas.is_dir() else by_unit(results_of("ATLAS", atlas), by)
    if function:
        rows = tables.heads(results, function, top or 10, method)
        plain = as_json or as_csv
        print_rows(f"Top heads of {function}", rows if plain else tables.heads_in_words(rows), as_json, as_csv)
    else:
        rows = tables.evidence(results, top or 3)
        print_rows("Top heads and their evidence", rows if as_json else tables.evidence_in_words(rows), as_json, as_csv)
