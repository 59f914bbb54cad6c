"""The commands around an atlas: make one, draw it, ask it."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from headatlas.cli.app import (
    Address,
    Csv,
    Device,
    Dtype,
    Engine,
    Json,
    Model,
    Workers,
    app,
    import_torch,
    listed,
    one_of,
    show,
    show_table,
    some_of,
    there,
)
from headatlas.models.shape import check_head, head_numbers, shape
from headatlas.progress import doing
from headatlas.runs.presets import METHODS, PRESETS, check_run
from headatlas.tasks.names import FUNCTIONS
from headatlas.terminal import bar

FIGURES = (
    "importance",
    "categories",
    "always-any",
    "removal",
    "trade-off",
    "specialisation",
    "comparison",
    "layers",
    "agreement",
)
FORMATS, PALETTES = ("png", "svg", "pdf"), ("published", "colour-blind", "grey")

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", callback=there("folder"), help="Folder of an atlas, or of any head maps.")
]
By = Annotated[
    str | None,
    typer.Option(
        callback=one_of("kv-group"),
        help="kv-group: maps summed per key-value group, the unit of cache compressors and pruners.",
    ),
]


@app.command()
def run(
    model: Model = "smollm2",
    out: Annotated[Path, typer.Option(help="Folder of the atlas.")] = Path("atlas"),
    preset: Annotated[
        str,
        typer.Option(
            callback=one_of(*PRESETS), help="quick (minutes on a laptop) or full (as published; wants a GPU)."
        ),
    ] = "quick",
    methods: Annotated[
        str,
        typer.Option(
            callback=some_of(METHODS),
            help="Some of maps, salient, pattern, taylor, ig, gate, probe, dissociate, ablate. Without it, the preset's.",
        ),
    ] = "",
    functions: Annotated[
        str,
        typer.Option(
            callback=some_of(FUNCTIONS),
            help="Functions of probe and dissociate, with commas between. Without it, all eight; but dissociate in the quick"
            " preset takes the built-in tasks.",
        ),
    ] = "",
    device: Device = "auto",
    dtype: Dtype = "auto",
    engine: Engine = "local",
    address: Address = None,
    gpus_per_job: Annotated[
        int | None,
        typer.Option(min=0, help="GPUs that a worker spreads the model over. Without it, one, if there are any."),
    ] = None,
    workers: Workers = None,
    only_plan: Annotated[
        bool, typer.Option("--plan", help="Tell the jobs, their time and memory on this machine, and do nothing.")
    ] = False,
) -> None:
    """Map a model into a folder, draw it, write its page. Run again, it does only what is missing or has changed."""
    check_run(preset, listed(methods), listed(functions))
    import_torch()
    import headatlas as ha
    from headatlas import tables

    if only_plan:
        from headatlas.runs.estimate import estimate
        from headatlas.runs.execute import count_workers

        with doing(bar, "counting the workers there is room for"):
            size = workers or count_workers(engine, address, gpus_per_job, device)
        options: dict[str, Any] = {"preset": preset, "methods": listed(methods), "functions": listed(functions)}
        found = estimate(
            model, workers=size, gpus_per_job=gpus_per_job or 1, device=device, dtype=dtype, progress=bar, **options
        )
        show_table(f"Estimate for {found.title}, on {found.machine.name}", tables.estimate(found))
        for line in tables.estimate_in_words(found):
            typer.echo(line)
        return
    planned: list[str] = []

    def tell(plan: Any) -> None:
        planned.extend(plan.jobs)
        show_table(f"Plan for {plan.title}", tables.plan(plan.jobs))

    made = ha.run(
        model,
        out,
        preset=preset,
        methods=listed(methods),
        functions=listed(functions),
        device=device,
        dtype=dtype,
        engine=engine,
        address=address,
        gpus_per_job=gpus_per_job,
        workers=workers,
        command=shlex.join(["headatlas", *sys.argv[1:]]),
        progress=bar,
        tell=tell,
    )
    failed = {n: m["why"] for n, m in made.info["methods"].items() if n in planned and not m["complete"]}
    results = made.maps
    title = "Top heads and their evidence"
    if rows := tables.evidence_in_words(tables.evidence(results)):
        title += (
            " (interval: 95 % of a bootstrap, or the range over seeds; p: how often random heads of the same layers"
        )
        title += " lower it as much)"
    show(title, rows)
    for line in tables.warnings(results):
        typer.echo(line)
    for name, why in failed.items():
        typer.echo(f"{name} could not be done: {why}")
    drawn = sum(name.endswith(".png") for name in made.info["shown"]["files"])
    files = [*(f"{method}.nc" for method in made.complete), f"{drawn} figures", str(made.folder / "report.html")]
    typer.echo(f"wrote {', '.join(files)}")
    if failed and (methods or len(failed) == len(planned)):
        raise typer.Exit(1)


@app.command()
def figures(
    folder: Folder,
    only: Annotated[
        str,
        typer.Option(
            callback=some_of(FIGURES),
            help="Some of importance, categories, always-any, removal, trade-off, specialisation, comparison, layers, agreement.",
        ),
    ] = "",
    formats: Annotated[
        str, typer.Option("--format", callback=some_of(FORMATS), help="Some of png, svg, pdf.")
    ] = "png,svg,pdf",
    palette: Annotated[
        str, typer.Option(callback=one_of(*PALETTES), help="published, colour-blind or grey.")
    ] = "published",
    by: By = None,
    out: Annotated[Path | None, typer.Option(help="Where to. Without it, DIR/figures.")] = None,
) -> None:
    """Draw an atlas as the published figures: a file per figure and format, and a caption beside each."""
    import_torch()
    from headatlas.atlas import open_atlas
    from headatlas.figures.files import write_figures

    atlas = open_atlas(folder)
    place = out or folder / ("figures" if by is None else f"figures-{by}")
    written = write_figures(
        atlas.by(by),
        place,
        only=listed(only),
        formats=listed(formats) or [],
        palette=palette,
        when=atlas.when,
        progress=bar,
    )
    for path in written:
        if path.suffix != ".txt":  # its caption
            typer.echo(str(path))


@app.command()
def report(
    folder: Folder, out: Annotated[Path | None, typer.Option(help="Where to. Without it, DIR/report.html.")] = None
) -> None:
    """Write an atlas as one page to explore, which opens from disk without a network."""
    import_torch()
    from headatlas.atlas import open_atlas
    from headatlas.figures.files import write_report

    atlas = open_atlas(folder)
    path = out or folder / "report.html"
    write_report(atlas.maps, atlas.info, path)
    typer.echo(str(path))


@app.command()
def heads(
    folder: Folder,
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
    from headatlas import tables
    from headatlas.atlas import open_atlas

    maps = open_atlas(folder).by(by)
    if function:
        rows = tables.heads(maps, function, top or 10, method)
        plain = as_json or as_csv
        show(f"Top heads of {function}", rows if plain else tables.heads_in_words(rows), as_json, as_csv)
    else:
        rows = tables.evidence(maps, top or 3)
        show("Top heads and their evidence", rows if as_json else tables.evidence_in_words(rows), as_json, as_csv)


@app.command()
def compare(
    folder_a: Annotated[Path, typer.Argument(metavar="DIR_A", callback=there("folder"), help="An atlas.")],
    folder_b: Annotated[Path, typer.Argument(metavar="DIR_B", callback=there("folder"), help="Another one.")],
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Agreement of two atlases: by relative depth, and head by head where both models have the same heads."""
    import_torch()
    import headatlas as ha
    from headatlas import tables

    found = ha.compare(folder_a, folder_b)
    title = (
        "Charts of both"
        if found.head_by_head
        else "Charts of both (different numbers of heads: by relative depth only)"
    )
    show(title, tables.compared(found), as_json, as_csv)


@app.command("import")
def import_scores(
    scores: Annotated[
        Path,
        typer.Argument(callback=there("file"), help="A .csv, .json or .npy file (docs/atlas.md tells the layouts)."),
    ],
    kind: Annotated[
        str,
        typer.Option(
            "--as", callback=one_of("importance", "categories", "gate"), help="importance, categories or gate."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the dataset, which figures and report then take.")],
    model: Annotated[str | None, typer.Option(help="What to call the model. Without it, the file's name.")] = None,
    names: Annotated[str, typer.Option(help="Names of the first axis of a .npy file, with commas between.")] = "",
) -> None:
    """Make a dataset of scores from elsewhere, so that they can be drawn without running the model."""
    import_torch()
    from headatlas.results.files import check_folder
    from headatlas.results.importing import import_scores as read
    from headatlas.results.importing import keep

    check_folder(out)
    found = read(scores, kind, names=listed(names), model=model)
    path = keep(found, out)
    typer.echo(f"wrote {path}: {', '.join(f'{n} {d}' for d, n in found.sizes.items())}")


@app.command()
def head(
    model: Model,
    name: Annotated[str, typer.Argument(metavar="HEAD", help="A head, such as L23.H4.")],
    tokens: Annotated[int, typer.Option(min=1, max=10_000, help="How many of its most amplified tokens to show.")] = 30,
    atlas_folder: Annotated[
        Path | None,
        typer.Option("--atlas", callback=there("folder"), help="Tell its scores and ranks from the atlas here."),
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the head card into this .png, .svg or .pdf file.")] = None,
    describe: Annotated[
        str | None, typer.Option(help="Send the operations to this OpenAI-compatible endpoint.")
    ] = None,
    describe_model: Annotated[str, typer.Option(help="The model to ask there.")] = "gpt-4o-mini",
    as_json: Json = False,
) -> None:
    """What one head does: the tokens it amplifies, what it makes of them, which relations explain that, where it stands."""
    numbers, known_shape = head_numbers(name), shape(model)
    if known_shape:
        check_head(*numbers, *known_shape)
    import_torch()
    from headatlas import tables
    from headatlas.atlas import open_atlas
    from headatlas.results.card import card
    from headatlas.methods.salient.operations import explained_by, salient_operations
    from headatlas.models.heads import parse_head
    from headatlas.models.loading import open_weights
    from headatlas.figures.files import write_card
    from headatlas.report.describe import describe_operations
    from headatlas.tasks.relations import load_relations

    atlas = open_atlas(atlas_folder, "--atlas") if atlas_folder else None
    with doing(bar, f"opening {model}"):
        weights, tokenizer, called = open_weights(model)
    layer, index = parse_head(name, weights.anatomy)
    with doing(bar, f"reading {name}"):
        if atlas is not None:
            atlas.check_model(weights, called)
        operations = salient_operations(weights, tokenizer, [layer], tokens=tokens)
    found = operations.sel(layer=layer, head=index)
    explained = [{"relation": r, "mappings": n} for r, n in explained_by(found, load_relations()).items()]
    brief = operations.isel(rank=slice(8), output=slice(4)).assign_attrs(model=called)
    known = card(({} if atlas is None else atlas.maps) | {"salient": brief}, layer, index)
    text = describe_operations(found, describe, describe_model) if describe else None
    if figure:
        write_card(known, figure)
    if as_json:
        content: dict[str, Any] = {
            "head": known.name,
            "operations": tables.operations(found),
            "explained_by": explained,
        }
        content |= {"standings": tables.standings(known), "removed": tables.removals(known), "description": text}
        typer.echo(json.dumps(content, indent=2))
        return
    show_table(f"{known.name} of {model}: what it amplifies, and what it makes of it", tables.operations(found))
    show("Relations that explain these mappings", explained)
    if atlas is not None:
        show("Where it stands among all heads", tables.standings_in_words(known))
        show("Removed together with other top heads", tables.removals(known))
    if text:
        typer.echo(text)
    if figure:
        typer.echo(f"wrote {figure}")


@app.command()
def models(
    delete: Annotated[
        str | None, typer.Option(metavar="NAME", help="Delete a converted model, by its name in the list.")
    ] = None,
    where: Annotated[bool, typer.Option("--where", help="Print the cache folder and nothing else.")] = False,
    as_json: Json = False,
) -> None:
    """List the supported families and the models that are cached here, with their sizes; delete one, or say where they lie."""
    import_torch()
    from headatlas.models.cache import cache_folder
    from headatlas.models.catalogue import cached, delete_cached, supported

    if where:
        typer.echo(cache_folder())
        return
    if delete is not None:
        for row in delete_cached(delete):
            typer.echo(f"deleted {row['folder']} ({row['size_mb']} MB)")
        return
    if as_json:
        typer.echo(json.dumps({"families": supported(), "cached": cached()}, indent=2))
        return
    show_table("Supported families (any other model is placed by structure, if it can be)", supported())
    if rows := cached():
        show_table(f"Cached here, {sum(row['size_mb'] for row in rows)} MB", rows)
    typer.echo(f"Converted models are kept in {cache_folder()} (HEADATLAS_CACHE chooses another folder).")
    typer.echo("Without a model, commands use smollm2: SmolLM2-135M-Instruct, fetched with pip on first use.")
