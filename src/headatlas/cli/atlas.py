"""The commands that make an atlas, draw it and query it."""

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
from headatlas.progress import default_progress, show_step
from headatlas.report import PAGE
from headatlas.runs.selection import select_methods
from headatlas.tasks.built_in import FUNCTIONS
from headatlas.terminal import bar

if TYPE_CHECKING:
    from headatlas.results.atlas import Atlas
    from headatlas.runs.where import WhereOptions

Folder = Annotated[
    Path,
    typer.Argument(
        metavar="DIR", callback=check_path("folder"), help="Folder of an atlas, or of other files with head maps."
    ),
]
By = Annotated[
    str | None,
    typer.Option(
        callback=check_one_of("kv-group"),
        help="kv-group: sum the maps per key-value group, the unit of cache compressors and pruners.",
    ),
]


EVIDENCE_TITLE = (
    "Top heads and the tests of them (scores with 95 % of a bootstrap, or the range over seeds; log P without the"
    " tested heads, its interval beyond random heads; docs/concepts/evidence.md)"
)
Methods = Annotated[
    str,
    typer.Option(
        callback=check_some_of(method_names),
        help="Comma-separated method names from `headatlas methods` (default: those of the preset).",
    ),
]
Functions = Annotated[
    str,
    typer.Option(
        callback=check_some_of(FUNCTIONS),
        help="Comma-separated cognitive functions, for the methods that take them (default: those of the preset).",
    ),
]


@app.command()
def run(
    model: Model = "smollm2",
    out: Annotated[Path, typer.Option(help="Folder of the atlas.")] = Path("atlas"),
    preset: Preset = "quick",
    methods: Methods = "",
    functions: Functions = "",
    tests: Annotated[
        bool,
        typer.Option(help="Test the top heads of the maps by removing them (docs/concepts/evidence.md)."),
    ] = True,
    device: Device = "auto",
    dtype: Dtype = "auto",
    engine: Engine = "local",
    address: Address = None,
    gpus_per_job: GpusPerJob = None,
    workers: Workers = None,
    plan_only: Annotated[
        bool,
        typer.Option("--plan", help="Only print what would be done, with its time and memory on this machine."),
    ] = False,
    open_page: Annotated[
        bool, typer.Option("--open", help="Open the page in a browser after the first method.")
    ] = False,
) -> None:
    """Map a model: write its atlas, figures and page to a folder.

    Run it again to compute only what is missing or has changed. The page exists after the first method and is updated
    after each of the others.
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
    if plan_only:
        _show_estimate(model, where, preset, split_names(methods), split_names(functions), tests)
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
            tests=tests,
            command=shlex.join(["headatlas", *sys.argv[1:]]),
            progress=display,
            watch=display,
            **where,
        )
    n_failed = _show_atlas(atlas, display.methods)
    display.open(out / PAGE)
    # A preset may have methods that do not work on this model: the run still succeeds with the others.
    if n_failed and (methods or n_failed == len(display.methods)):
        raise typer.Exit(1)


def _show_estimate(
    model: str,
    where: "WhereOptions",
    preset: str,
    methods: list[str] | None,
    functions: list[str] | None,
    tests: bool,
) -> None:
    from headatlas.runs import tables
    from headatlas.runs.estimate import estimate
    from headatlas.runs.where import Where

    with show_step(bar, "counting the workers that fit in memory"):
        where["workers"] = where["workers"] or Where(**where).count_workers()
    result = estimate(model, preset=preset, methods=methods, functions=functions, progress=bar, **where)
    print_table(f"Estimate for {result.title}", tables.estimate_rows(result))
    if tests:
        typer.echo(tables.tests_in_words(result.planned.possible, preset))
    for line in tables.estimate_in_words(result):
        typer.echo(line)


def _show_atlas(atlas: "Atlas", planned: list[str]) -> int:
    """Print an atlas and what was written. Return how many of the planned methods failed or could not be drawn."""
    from headatlas.comparison.repeats import reliability_warnings
    from headatlas.results import tables
    from headatlas.results.stored_tests import TESTS  # xarray takes long to import

    results = atlas.results
    print_rows(EVIDENCE_TITLE, tables.evidence_in_words(tables.evidence(results)))
    for line in [*tables.warnings(results), *reliability_warnings(results)]:
        typer.echo(line)
    entries = {name: entry for name, entry in atlas.info["methods"].items() if name in planned}
    failures = [f"{name} failed: {entry['why']}" for name, entry in entries.items() if not entry["complete"]]
    for name, entry in entries.items():
        if "not_drawn" in entry:
            failures.append(f"{name} could not be drawn: {entry['not_drawn']}")
    if "why" in (tests := atlas.info.get(TESTS, {})):
        failures.append(f"tests failed: {tests['why']}")
    for line in failures:
        typer.echo(line)
    n_figures = sum(name.endswith(".png") for name in atlas.info["shown"]["files"])
    written = [*atlas.complete, *([] if atlas.tests is None else [TESTS])]
    files = [*(f"{name}.nc" for name in written), f"{n_figures} figures", str(atlas.folder / PAGE)]
    typer.echo(f"wrote {', '.join(files)}")
    return len(failures)


@app.command()
def figures(
    folder: Folder,
    only: Annotated[
        str,
        typer.Option(
            callback=check_some_of(FIGURES),
            help=f"Comma-separated figures: {', '.join(FIGURES)} (default: all).",
        ),
    ] = "",
    formats: Annotated[
        str, typer.Option("--format", callback=check_some_of(FORMATS), help=f"Comma-separated: {', '.join(FORMATS)}.")
    ] = ",".join(FORMATS),
    palette: Annotated[
        str, typer.Option(callback=check_one_of(*PALETTES), help=f"Colours: {', '.join(PALETTES)}.")
    ] = PALETTES[0],
    style: Annotated[
        str,
        typer.Option(
            callback=check_one_of(*STYLES),
            help="marked (heads at chance are pale, tested heads are framed) or published (the plain maps).",
        ),
    ] = STYLES[0],
    by: By = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the figures (default: DIR/figures).")] = None,
) -> None:
    """Draw the figures of an atlas: a file per figure and format, and a text file with each caption."""
    import_torch()
    from headatlas.figures.saving import write_figures
    from headatlas.results.atlas import open_atlas

    atlas = open_atlas(folder)
    target = out or folder / ("figures" if by is None else f"figures-{by}")
    written = write_figures(
        atlas.results_by(by),
        target,
        only=split_names(only),
        formats=split_names(formats) or [],
        palette=palette,
        style=style,
        when=atlas.completed_at,
        progress=bar,
    )
    for path in written:
        # Captions are next to their figures, and need no line.
        if path.suffix != ".txt":
            typer.echo(str(path))


@app.command()
def report(
    folder: Folder,
    out: Annotated[Path | None, typer.Option(help="File of the page (default: DIR/report.html).")] = None,
    examples: Annotated[
        Path | None,
        typer.Option(
            callback=check_path("file"),
            help="File with a prompt per line (and its answer after a tab): what `view` shows of each joins the page.",
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The model of the atlas, for --examples (default: as the atlas records it).")
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Write an atlas as one HTML page, which opens from disk and needs no network."""
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
        typer.Option(help="A function, relation, task or pattern (default: all, with the outcome of their tests)."),
    ] = "",
    top: Annotated[
        int | None, typer.Option(min=1, help="Number of heads per map (default: 10 with --function, else 3).")
    ] = None,
    method: Annotated[str | None, typer.Option(help="Only the maps of this method.")] = None,
    by: By = None,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """List the top heads of a function, relation or task by every method that has a map of it."""
    import_torch()
    from headatlas.results import tables
    from headatlas.results.atlas import by_unit, open_atlas
    from headatlas.results.reading import results_of

    results = open_atlas(atlas).results_by(by) if atlas.is_dir() else by_unit(results_of("ATLAS", atlas), by)
    if function:
        rows = tables.heads(results, function, top or 10, method)
        as_data = as_json or as_csv
        print_rows(f"Top heads of {function}", rows if as_data else tables.heads_in_words(rows), as_json, as_csv)
    else:
        rows = tables.evidence(results, top or 3)
        print_rows(EVIDENCE_TITLE, rows if as_json else tables.evidence_in_words(rows), as_json, as_csv)
