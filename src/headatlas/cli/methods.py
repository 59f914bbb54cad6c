"""The commands that run one method."""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

import typer

from headatlas.cli.app import Device, Json, Model, app, import_torch, listed, one_of, show, show_parts, some_of, there
from headatlas.runs.presets import seed_numbers
from headatlas.tasks.names import check_task, relation_names
from headatlas.terminal import bar

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
Functions = Annotated[str, typer.Option(help="Only these, with commas between.")]
Context = Annotated[
    str,
    typer.Option(
        callback=one_of("retrieval", "all", "none"), help="Earlier steps a question is told: retrieval, all or none."
    ),
]
Template = Annotated[bool, typer.Option(help="Ask in the tokenizer's chat template, where it has one.")]
Limit = Annotated[int | None, typer.Option(help="Use about so many examples.")]
Test = Annotated[
    Path | None,
    typer.Option(callback=there("file"), help="Test questions in the CogQA layout. Without them, a fifth of the data."),
]
Tokens = Annotated[
    int | None, typer.Option(help="Tokens run through the model at once: lower it when memory runs out.")
]


@app.command()
def maps(
    model: Model = "smollm2",
    relations: Annotated[
        Path | None,
        typer.Option(
            callback=there("file or folder"), help="A folder of NAME.json files, one such file, or a CSV file."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for maps.nc; interrupted work goes on there.")] = Path("atlas"),
    k: Annotated[int | None, typer.Option(help="Outputs that count as a hit. Without it, the published rule.")] = None,
    threshold: Annotated[float, typer.Option(help="Score from which a head belongs to a category.")] = 0.15,
    input: Annotated[
        str,
        typer.Option(
            callback=one_of("stream", "published", "embedding"),
            help="What a head gets of a word: stream (what the model has there), published or embedding.",
        ),
    ] = "stream",
    opening: Annotated[
        str | None, typer.Option(help="Text before the word in a stream. Without it, 'The word is'.")
    ] = None,
    dynamic: Annotated[int, typer.Option(help="Check scores in real runs on up to so many pairs a relation.")] = 0,
    causal: Annotated[int, typer.Option(help="Check by removing heads on up to so many prompts a relation.")] = 0,
    baselines: Annotated[bool, typer.Option(help="Score shuffled targets and random heads beside it.")] = True,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """What every head does, from its parameters alone. The model is not loaded unless it is checked."""
    import_torch()
    import headatlas as ha
    from headatlas import tables

    found = ha.maps(
        model,
        relations,
        k="auto" if k is None else k,
        threshold=threshold,
        input=input,  # type: ignore[arg-type]  # checked there
        opening=opening,
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
    show_parts(parts, as_json, out / "maps.nc", tables.warnings({"maps": found}))


@app.command()
def gate(
    model: Model = "smollm2",
    tasks: Tasks = "",
    data: Data = None,
    keep: Annotated[str | None, typer.Option(help="With --lose: find heads that this task can spare …")] = None,
    lose: Annotated[str | None, typer.Option(help="… and this one, matched example by example, needs.")] = None,
    seeds: Annotated[int | None, typer.Option(help="How many. Without it, what the preset says.")] = None,
    preset: Annotated[
        str,
        typer.Option(
            callback=one_of("quick", "full"), help="quick (minutes on a laptop) or full (as published; wants a GPU)."
        ),
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
    chosen = _tasks(tasks, data)
    for task in (keep, lose):
        if task is not None:
            check_task(task)
    if seeds is not None:
        seed_numbers(seeds)
    import_torch()
    import headatlas as ha
    from headatlas import tables

    found = ha.gate(
        model,
        chosen or None,
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
    show_parts(parts, as_json, out / ("gate.nc" if keep is None else "contrast.nc"))


@app.command()
def probe(
    model: Model = "smollm2",
    data: Annotated[
        Path | None,
        typer.Option(
            callback=there("file"), help="Questions in the CogQA layout (JSON, or CSV). Without them, our own."
        ),
    ] = None,
    test: Annotated[
        Path | None,
        typer.Option(
            callback=there("file"), help="Test questions in the same layout. Without them, a fifth of the data."
        ),
    ] = None,
    answers: Annotated[
        str,
        typer.Option(
            callback=one_of("reference", "generated"), help="reference (teacher-forced) or generated (the model's own)."
        ),
    ] = "reference",
    kind: Annotated[
        str,
        typer.Option(
            "--probe",
            callback=one_of("published", "per-head", "written"),
            help="published (one probe over all heads), per-head or written.",
        ),
    ] = "published",
    preset: Annotated[
        str,
        typer.Option(
            callback=one_of("quick", "full"), help="quick (minutes on a laptop) or full (trained as published)."
        ),
    ] = "quick",
    context: Context = "retrieval",
    functions: Annotated[
        str, typer.Option(help="Labels to use, with commas between, or all. Without it, the eight functions.")
    ] = "",
    keep: Annotated[
        str, typer.Option(callback=one_of("all", "correct"), help="Of generated answers: all, or the correct ones.")
    ] = "all",
    k: Annotated[int, typer.Option(help="Answer tokens that are kept.")] = 5,
    limit: Annotated[int | None, typer.Option(help="Use about so many questions.")] = None,
    template: Template = True,
    judge: Annotated[
        str | None, typer.Option(help="Let this OpenAI-compatible endpoint pick tokens and mark answers.")
    ] = None,
    judge_model: Annotated[str, typer.Option(help="The model to ask there.")] = "gpt-4o-mini",
    proof: Annotated[
        str,
        typer.Option(
            callback=one_of("score", "generate", "none"),
            help="Heads removed while answering: score (log P), generate (text; slow) or none.",
        ),
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
    import_torch()
    import headatlas as ha
    from headatlas import tables

    names = listed(functions)
    found = ha.probe(
        model,
        data,
        test=test,
        answers=answers,
        probe=kind,
        preset=preset,
        context=context,
        functions="all" if names == ["all"] else names,
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
    show_parts(tables.probes(found), as_json, out / "probe.nc")


@app.command()
def dissociate(
    model: Model = "smollm2",
    data: Annotated[
        list[Path] | None,
        typer.Option(
            help="Questions in the CogQA layout (JSON, or CSV); or JSON Lines or CSV files with prompt and target, each a function"
            " (of a single one, each kind). Without them, our own questions."
        ),
    ] = None,
    tasks: Annotated[
        str, typer.Option(help="Instead of questions: built-in tasks and relations, with commas between.")
    ] = "",
    test: Test = None,
    functions: Functions = "",
    seeds: Annotated[int | None, typer.Option(help="How many. Without it, what the preset says.")] = None,
    preset: Annotated[
        str, typer.Option(callback=one_of("quick", "full"), help="quick (minutes on a laptop) or full (wants a GPU).")
    ] = "quick",
    context: Context = "retrieval",
    limit: Limit = None,
    shots: Shots = None,
    template: Template = True,
    updates: Annotated[int | None, typer.Option(help="Updates of each fit.")] = None,
    penalty: Annotated[float | None, typer.Option(help="λ, what a lost head costs in the end.")] = None,
    tokens: Tokens = None,
    out: Annotated[Path, typer.Option(help="Folder for dissociate.nc; interrupted work goes on there.")] = Path(
        "atlas"
    ),
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Which heads each function needs and the others do not."""
    chosen = _tasks(tasks, data, relation_names())
    if seeds is not None:
        seed_numbers(seeds)
    import_torch()
    import headatlas as ha
    from headatlas import tables

    found = ha.dissociate(
        model,
        chosen[0] if len(chosen) == 1 else chosen or None,
        test=test,
        functions=listed(functions),
        seeds=seeds,
        preset=preset,
        context=context,
        limit=limit,
        shots=shots,
        template=template,
        updates=updates,
        penalty=penalty,
        tokens=tokens,
        device=device,
        out=out,
        progress=bar,
    )
    show_parts(tables.dissociations(found), as_json, out / "dissociate.nc")


@app.command("compare-maps")
def compare_maps(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of an atlas, or a new one with --model.")],
    model: Annotated[
        str | None, typer.Option(help="The model, where the atlas does not say where it lies, or is not there yet.")
    ] = None,
    data: Annotated[
        list[Path] | None, typer.Option(help="As in `headatlas dissociate`. Without it, our own questions.")
    ] = None,
    tasks: Annotated[str, typer.Option(help="Instead: built-in tasks and relations, with commas between.")] = "",
    test: Test = None,
    functions: Functions = "",
    methods: Annotated[
        str,
        typer.Option(
            callback=some_of(("probe", "taylor", "ablate", "ablate-own", "gate", "dissociate")),
            help="Some of probe, taylor, ablate, ablate-own (less the mean over functions), gate, dissociate.",
        ),
    ] = "",
    preset: Annotated[
        str,
        typer.Option(
            callback=one_of("quick", "full"), help="quick (on a laptop, an hour or more) or full (wants a GPU)."
        ),
    ] = "quick",
    context: Context = "retrieval",
    limit: Limit = None,
    shots: Shots = None,
    template: Template = True,
    tokens: Tokens = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Put every method's map of each function to the same test: what does the function lose, what do the others?"""
    chosen = _tasks(tasks, data, relation_names())
    import_torch()
    import headatlas as ha
    from headatlas import tables
    from headatlas.atlas import open_atlas
    from headatlas.figures.files import write_figures

    found = ha.compare_maps(
        model or open_atlas(folder, "DIR").info["model"]["name"],
        chosen[0] if len(chosen) == 1 else chosen or None,
        methods=listed(methods),
        test=test,
        functions=listed(functions),
        preset=preset,
        context=context,
        limit=limit,
        shots=shots,
        template=template,
        tokens=tokens,
        device=device,
        out=folder,
        progress=bar,
    )
    write_figures({"compare_maps": found}, folder / "figures", only=["comparison"])
    show_parts(tables.maps_compared(found), as_json, folder / "compare_maps.nc")


@app.command()
def ablate(
    model: Model = "smollm2",
    tasks: Tasks = "",
    data: Data = None,
    how: Annotated[
        str,
        typer.Option(
            callback=one_of("zero", "mean", "resample", "taylor", "ig", "pattern"),
            help="zero, mean or resample: heads removed one by one. taylor or ig: guessed from gradients."
            " pattern: where heads look.",
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
    chosen: Any = _tasks(tasks, data) or ("math", "syntax")
    import_torch()
    import headatlas as ha
    from headatlas import tables

    if how == "pattern":
        found = ha.pattern(model, device=device, out=out)
        show_parts(
            {"Where heads look, on random tokens said twice": tables.patterns(found)}, as_json, out / "pattern.nc"
        )
        return
    options: dict[str, Any] = {"examples": examples, "shots": shots, "tokens": tokens, "device": device, "out": out}
    if how == "taylor":
        found = ha.taylor(model, chosen, progress=bar, **options)
    elif how == "ig":
        found = ha.ig(model, chosen, progress=bar, **options)
    else:
        found = ha.ablate(model, chosen, how, progress=bar, **options)
    name = how if how in ("taylor", "ig") else "ablate"
    show_parts({f"log P(target) lost without a head ({how})": tables.effects(found)}, as_json, out / f"{name}.nc")


@app.command()
def tasks(as_json: Json = False) -> None:
    """List the built-in tasks of `gate` and `ablate`."""
    import_torch()
    from headatlas.tasks.prompts import describe_tasks

    show("Built-in tasks", describe_tasks(), as_json)
    if not as_json:
        typer.echo(
            'Your own: JSON Lines of {"prompt": "…", "target": "…"} or CSV with these columns (--data), hf:NAME (--tasks).'
        )


def _tasks(names: str, data: list[Path] | None, relations: Collection[str] = ()) -> list[Any]:
    found: list[str | Path] = [*(listed(names) or ()), *(data or ())]
    for task in found:
        check_task(task, relations)
    return found
