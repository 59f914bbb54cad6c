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
    """The baselines, and each method by the names it has in the benchmark."""
    return [*BASELINES, *(name for method in registered().values() for name in method.truths)]


def benchmark(
    methods: Annotated[
        str,
        typer.Option(
            callback=check_some_of(contenders), help="With commas between; without it, all, baselines included."
        ),
    ] = "",
    models: Annotated[
        str,
        typer.Option(help="Those of the package, folders of `headatlas plant`, or seed:N (trained now; wants a GPU)."),
    ] = ",".join(SHIPPED),
    atlas: Annotated[
        Path | None,
        typer.Option(
            callback=check_path("folder"),
            help="An atlas, whose maps are tested too, as far as that goes without a truth.",
        ),
    ] = None,
    atlas_model: Annotated[
        str | None, typer.Option(help="The atlas's model, if its name in the atlas does not tell where it is.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the prompts, and of random choices in the methods.")] = 0,
    out: Annotated[
        Path, typer.Option(help="Folder for benchmark.nc and its figure; interrupted work goes on there.")
    ] = Path("benchmark"),
    device: Device = "auto",
    engine: Engine = "local",
    address: Address = None,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Every method against models whose heads are known: does it find them, and at what cost?"""
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
    drawn = write_quality_and_cost(result, out)
    parts = {
        "Against planted heads": tables.benchmark(result),
        "Harder plantings, AUROC": tables.side_by_side(tables.plantings(result)),
        f"Where no truth is known: {result.attrs.get('real', '')}": tables.real(result),
    }
    print_tables(parts, as_json, out / "benchmark.nc")
    if not as_json:
        for path in drawn:
            typer.echo(f"wrote {path}")


def plant(
    out: Annotated[Path, typer.Argument(help="A new folder for the model and its truth.json.")],
    seed: Annotated[int, typer.Option(help="Of placement, weights and data.")] = 0,
    kv_heads: Annotated[int, typer.Option(help="8, or fewer for grouped-query attention.")] = 8,
    kind: Annotated[
        str,
        typer.Option(
            callback=check_one_of(*MODEL_KINDS),
            help="plain: a function's heads are its own. spare: redundant and backup sets, decoys. joint: shared heads,"
            " relays, harmful heads.",
        ),
    ] = "plain",
    steps: Annotated[int, typer.Option(help="Of training.")] = 8000,
    device: Device = "auto",
) -> None:
    """Train a small model whose functions are in chosen heads. Minutes on a GPU, a day on a CPU."""
    import_torch()
    from headatlas_bench.training import plant as train

    truth = train(out, seed, kv_heads, kind=kind, steps=steps, device=device, progress=bar)
    print_rows(
        "Planted", [{"function": f, "heads": " ".join(f"L{a}.H{b}" for a, b in h)} for f, h in truth.functions.items()]
    )
    typer.echo(f"wrote {out}")
