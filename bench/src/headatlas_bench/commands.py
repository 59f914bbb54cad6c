"""The commands `headatlas benchmark` and `headatlas plant` (entry points in pyproject.toml)."""

from pathlib import Path
from typing import Annotated

import typer

from headatlas.cli.app import (
    Address,
    Device,
    Engine,
    Json,
    Workers,
    check_one_of,
    check_path,
    check_some_of,
    import_torch,
    print_rows,
    print_tables,
    split_names,
)
from headatlas.methods import methods as registered
from headatlas.terminal import bar
from headatlas_bench.names import BASELINES, MODEL_KINDS, SHIPPED


def contenders() -> list[str]:
    """List the baselines, and each method by the names it has in the benchmark."""
    return [*BASELINES, *(name for method in registered().values() for name in method.truths)]


def benchmark(
    methods: Annotated[
        str,
        typer.Option(
            callback=check_some_of(contenders), help="Comma-separated names of methods and baselines (default: all)."
        ),
    ] = "",
    models: Annotated[
        str,
        typer.Option(help="Comma-separated: shipped models, folders of `headatlas plant`, or seed:N (trained first)."),
    ] = ",".join(SHIPPED),
    atlas: Annotated[
        Path | None,
        typer.Option(
            callback=check_path("folder"),
            help="Atlas of a real model; its maps are tested too, without a known truth.",
        ),
    ] = None,
    atlas_model: Annotated[
        str | None, typer.Option(help="Name or folder of the atlas's model (default: the name that the atlas stores).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed for the prompts and for the methods.")] = 0,
    out: Annotated[
        Path, typer.Option(help="Folder for benchmark.nc and its figure; interrupted work resumes from there.")
    ] = Path("benchmark"),
    device: Device = "auto",
    engine: Engine = "local",
    address: Address = None,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Measure how well every method finds planted heads, and at what cost."""
    import_torch()
    from headatlas_bench import benchmarking, tables
    from headatlas_bench.quality_and_cost import write_quality_and_cost

    result = benchmarking.benchmark(
        split_names(methods),
        split_names(models) or [],
        atlas=atlas,
        atlas_model=atlas_model,
        seed=seed,
        device=device,
        engine=engine,
        address=address,
        workers=workers,
        out=out,
        progress=bar,
    )
    figure_paths = write_quality_and_cost(result, out)
    sections = {
        "Against planted heads": tables.benchmark(result),
        "Harder plantings, AUROC": tables.side_by_side(tables.plantings(result)),
        f"Real model, without a known truth: {result.attrs.get('real', '')}": tables.real_model_rows(result),
    }
    print_tables(sections, as_json, out / "benchmark.nc")
    if not as_json:
        for path in figure_paths:
            typer.echo(f"wrote {path}")


def plant(
    out: Annotated[Path, typer.Argument(help="New folder for the model and its truth.json.")],
    seed: Annotated[int, typer.Option(help="Random seed for placement, weights and data.")] = 0,
    kv_heads: Annotated[int, typer.Option(help="Number of KV heads: 8, or fewer for grouped-query attention.")] = 8,
    kind: Annotated[
        str,
        typer.Option(
            callback=check_one_of(*MODEL_KINDS),
            help="Kind of model. plain: separate heads for every function. spare: redundant and backup sets, decoys."
            " joint: shared heads, relays, harmful heads.",
        ),
    ] = "plain",
    steps: Annotated[int, typer.Option(help="Number of training steps.")] = 8000,
    device: Device = "auto",
) -> None:
    """Train a small model whose functions are in selected heads. Takes minutes on a GPU, a day on a CPU."""
    import_torch()
    from headatlas_bench.training import plant as train

    truth = train(out, seed, kv_heads, kind=kind, steps=steps, device=device, progress=bar)
    print_rows(
        "Planted", [{"function": f, "heads": " ".join(f"L{a}.H{b}" for a, b in h)} for f, h in truth.functions.items()]
    )
    typer.echo(f"wrote {out}")
