"""Put the results of several atlases side by side, under unique names."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from headatlas.errors import BadArgument
from headatlas.methods import TABLE
from headatlas.results.about import unit_of
from headatlas.results.atlas import Atlas, open_atlas
from headatlas.results.charts import MAP, stack_maps
from headatlas.results.reading import results_of

Results = Mapping[str, xr.Dataset]


def side_by_side(atlases: Sequence[Any]) -> tuple[dict[str, xr.Dataset], dict[str, str]]:
    """Collect the results of several atlases.

    A method in only one atlas keeps its name. A method in several becomes one table per atlas, named ATLAS/METHOD.
    Results by KV group are repeated for each head of the group.

    Returns:
        Results by unique names, and the name of the atlas of each.
    """
    rows = [
        (label, method, result)
        for label, results in named_results(atlases).items()
        for method, result in results.items()
        if stack_maps({method: result}).chart.size
    ]
    # Heads per layer, by the number of layers, so that results by KV group get the heads of the same model.
    n_heads: dict[int, int] = {}
    for _, _, result in rows:
        if unit_of(result) == "Head":
            n_layers = result.sizes["layer"]
            n_heads[n_layers] = max(n_heads.get(n_layers, 0), result.sizes["head"])
    methods = [method for _, method, _ in rows]
    maps: dict[str, xr.Dataset] = {}
    origin: dict[str, str] = {}
    for label, method, result in rows:
        result = _repeat_groups(result, n_heads.get(result.sizes["layer"]), label)
        name = method if methods.count(method) == 1 else f"{label}/{method}"
        maps[name] = result if name == method else _as_table(method, result)
        origin[name] = label
    return maps, origin


def check_one_size(maps: Results, origin: Mapping[str, str]) -> None:
    """Check that all results have the same numbers of layers and heads. origin: the atlas of each."""
    sizes = {name: (result.sizes["layer"], result.sizes["head"]) for name, result in maps.items()}
    first, *others = sizes
    for name in others:
        if sizes[name] != sizes[first]:
            labels = origin if origin[name] != origin[first] else {name: name, first: first}
            shapes = [f"{labels[n]} has {sizes[n][0]} layers × {sizes[n][1]} heads" for n in (first, name)]
            raise BadArgument(f"{shapes[0]}, {shapes[1]}: maps of different models?")


def named_results(atlases: Sequence[Any]) -> dict[str, Results]:
    """Read the results of each atlas, by a label: the name of its folder, or its path if that is taken, or a letter."""
    if not atlases:
        raise BadArgument("atlases is empty, expected at least one")
    named: dict[str, Results] = {}
    for i, atlas in enumerate(atlases):
        path = Path(atlas) if isinstance(atlas, str | Path) else atlas.folder if isinstance(atlas, Atlas) else None
        names = [] if path is None else [path.stem if path.is_file() else path.absolute().name, str(path)]
        label = next(name for name in (*names, chr(ord("A") + i % 26), f"atlas {i}") if name and name not in named)
        results = open_atlas(path, "atlas") if path is not None and path.is_dir() else results_of("atlas", atlas)
        groups = results.info["model"].get("n_kv_heads") if isinstance(results, Atlas) else None
        from_index = {} if groups is None else {"n_kv_heads": groups}
        named[label] = {
            method: result.assign_attrs(from_index | result.attrs | {"method": method})
            for method, result in results.items()
        }
    return named


def _repeat_groups(result: xr.Dataset, n_heads: int | None, label: str) -> xr.Dataset:
    """Give each head of a KV group the scores of the group; results by head stay as they are."""
    groups = result.sizes["head"]
    if unit_of(result) == "Head" or n_heads is None:
        return result
    if n_heads % groups:
        raise BadArgument(f"{label} has {groups} KV groups, but others have {n_heads} heads: maps of different models?")
    repeated = result.isel(head=np.repeat(np.arange(groups), n_heads // groups)).assign_coords(head=range(n_heads))
    attributes = {name: value for name, value in result.attrs.items() if name not in ("unit", "group_size")}
    return repeated.drop_attrs().assign_attrs(attributes | {"n_kv_heads": groups})


def _as_table(method: str, result: xr.Dataset) -> xr.Dataset:
    """Convert a result to a table, which may have any name."""
    charts = stack_maps({method: result})
    labels = [label.removeprefix(f"{method}: ") for label in charts.chart.values.tolist()]
    table = charts[["score", "low", "high"]].rename(chart=TABLE.over).drop_vars(("method", "measure", "subject"))
    if bool(charts.at_chance.any()):
        table = table.assign(above_chance_score=((TABLE.over, *MAP), ~charts.at_chance.transpose("chart", *MAP).values))
    return table.assign_coords({TABLE.over: labels}).assign_attrs(result.attrs)
