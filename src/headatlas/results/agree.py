"""Do the maps of several atlases agree, imported or computed? Every two of them, head by head or by KV group."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xarray as xr

from headatlas.errors import BadArgument, check_count
from headatlas.evidence.agreement import all_pairs
from headatlas.evidence.control import correct_p
from headatlas.methods import TABLE
from headatlas.results.about import unit
from headatlas.results.atlas import Atlas, open_atlas
from headatlas.results.charts import MAP, overview
from headatlas.results.reading import results_of

Results = Mapping[str, xr.Dataset]
HEAD, GROUP, MAXIMUM, MEAN = "head", "KV group", "maximum of the KV group", "mean of the KV group"


def agree(
    *atlases: Results | xr.Dataset | str | Path,
    by: Literal["kv-group"] | None = None,
    top: int = 20,
    kv_heads: int | None = None,
    within_layers: bool = False,
    draws: int = 2000,
    seed: int = 0,
) -> xr.Dataset:
    """How far every two maps of these atlases agree. All must be of models with the same layers and heads.

    Maps that have a score for each KV group only are compared with others by the maximum and by the mean of the
    group's heads.

    Args:
        atlases: atlases, their folders, results of methods, or results by method.
        by: 'kv-group' compares all maps by KV group.
        top: how many top heads are compared; at most half of the heads.
        kv_heads: how many KV heads a layer has, if no atlas says it.
        within_layers: p compares with heads shuffled within their layers, not all over the model: agreement about
            layers alone then does not count.
        draws: how often heads are shuffled.
        seed: of the shuffling.

    Returns:
        Over (pair), with the coordinates `a` and `b` (charts), `atlas_a` and `atlas_b`: `unit` (head, KV group, or
        maximum or mean of the KV group), `n` (how many both have), `top` (how many of these are top heads),
        `spearman`, `p` (how often it is as high by chance), `p_corrected` for the number of pairs between
        atlases (of others, within), `shared` (top heads in both), `shared_by_chance`, `auroc_ab` (a as a detector of
        b's top heads) and `auroc_ba`.

    Example:
        >>> ha.agree("ours", "theirs").to_dataframe().sort_values("spearman")
    """
    check_count("top", top, 1)
    check_count("draws", draws, 1)
    if by not in (None, "kv-group"):
        raise BadArgument(f"by is {by!r}, expected kv-group")
    maps, origin = side_by_side(atlases)
    charts = overview(maps)
    if charts.sizes["chart"] < 2:
        raise BadArgument(f"atlases have {charts.sizes['chart']} maps, expected at least two to compare")
    score = charts.score.transpose("chart", *MAP).values  # [chart, layer, head]
    groups = _groups(maps, kv_heads)
    if groups is None and by is not None:
        raise BadArgument("kv_heads is not known of these maps: give it")
    coarse = _per_group(score, groups)
    own = by is not None and groups == score.shape[2]  # every head is a group
    units = {} if by is not None else {HEAD: score}
    if groups is not None and (by is not None or coarse.any()):
        parts = score.reshape(*score.shape[:2], groups, -1)
        units |= {MAXIMUM: np.fmax.reduce(parts, axis=-1), MEAN: _mean(parts)}
    numbers = {
        name: all_pairs(
            values.reshape(len(values), -1),
            np.repeat(np.arange(values.shape[1]), values.shape[2]),
            top,
            draws=draws,
            seed=seed,
            within_layers=within_layers,
        )
        for name, values in units.items()
    }
    rows = list(_rows(numbers, coarse | own, by is not None))
    if all(unit(result) != "Head" for result in maps.values()):
        rows = [row | {"unit": GROUP} for row in rows]
    atlas = [origin[method] for method in charts.method.values.tolist()]
    return _dataset(rows, charts.chart.values.tolist(), atlas).assign_attrs(
        top=top, draws=draws, seed=seed, within_layers=int(within_layers)
    )


def _rows(numbers: Mapping[str, dict[str, np.ndarray]], coarse: np.ndarray, by_group: bool) -> Iterator[dict[str, Any]]:
    """Of every two charts, the units they can be compared in, and how they agree in each."""
    for i, j in combinations(range(len(coarse)), 2):
        both, either = coarse[i] and coarse[j], by_group or coarse[i] or coarse[j]
        for name in [MAXIMUM] if both else [MAXIMUM, MEAN] if either else [HEAD]:
            values = numbers[name]
            row = {key: values[key][i, j] for key in ("n", "top", "spearman", "p", "shared")}
            row |= {"shared_by_chance": row["top"] ** 2 / row["n"], "auroc_ab": values["auroc"][i, j]}
            row |= {"auroc_ba": values["auroc"][j, i], "unit": GROUP if both else name}
            yield row | {"i": i, "j": j}


def _dataset(rows: Sequence[dict[str, Any]], charts: Sequence[str], atlas: Sequence[str]) -> xr.Dataset:
    names = [name for name in rows[0] if name not in ("i", "j")]
    variables = {name: ("pair", np.array([row[name] for row in rows])) for name in names}
    between = np.array([atlas[row["i"]] != atlas[row["j"]] for row in rows])
    p, corrected = variables["p"][1], np.empty(len(rows))
    for asked in (between, ~between):
        corrected[asked] = correct_p(p[asked])
    variables["p_corrected"] = ("pair", corrected)
    coords: dict[str, Any] = {}
    for side, at in (("a", "i"), ("b", "j")):
        coords |= {side: ("pair", [charts[row[at]] for row in rows])}
        coords |= {f"atlas_{side}": ("pair", [atlas[row[at]] for row in rows])}
    return xr.Dataset(variables, coords=coords | {"chart": list(charts), "atlas": ("chart", list(atlas))})


def square(result: xr.Dataset) -> xr.DataArray:
    """The correlations of `agree` over (chart, other); of KV groups, by their maximum."""
    charts = result.chart.values.tolist()
    used = result.isel(pair=np.flatnonzero(result.unit.values != MEAN))
    at = {chart: i for i, chart in enumerate(charts)}
    i, j = ([at[chart] for chart in used[side].values.tolist()] for side in ("a", "b"))
    values = np.full((len(charts), len(charts)), np.nan)
    values[i, j] = values[j, i] = used.spearman.values
    known = np.isfinite(values).any(1)
    values[known, known] = 1.0
    return xr.DataArray(values, dims=("chart", "other"), coords={"chart": charts, "other": charts})


def side_by_side(atlases: Sequence[Any]) -> tuple[dict[str, xr.Dataset], dict[str, str]]:
    """All results of several atlases by names of their own, and the atlas that each name is from.

    A method that only one has keeps its name; one that several have becomes a table for each. Results by KV group are
    spread to heads.
    """
    named = _named(atlases)
    everything = [(label, method, result) for label, results in named.items() for method, result in results.items()]
    everything = [
        (label, method, result) for label, method, result in everything if overview({method: result}).chart.size
    ]
    heads = max((r.sizes["head"] for _, _, r in everything if unit(r) == "Head"), default=None)
    first: tuple[str, tuple[int, int]] | None = None
    maps, origin, methods = dict[str, xr.Dataset](), dict[str, str](), [method for _, method, _ in everything]
    for label, method, result in everything:
        result = _spread(result, heads, label)
        size = result.sizes["layer"], result.sizes["head"]
        first = first or (label, size)
        if size != first[1]:
            shapes = [f"{name} has {s[0]} layers × {s[1]} heads" for name, s in (first, (label, size))]
            raise BadArgument(f"{shapes[0]}, {shapes[1]}: maps of different models?")
        name = method if methods.count(method) == 1 else f"{label}/{method}"
        maps[name] = result if name == method else _as_table(method, result)
        origin[name] = label
    return maps, origin


def _named(atlases: Sequence[Any]) -> dict[str, Results]:
    """Results by the name of their atlas: its folder, as far as that is its own; else a letter."""
    if not atlases:
        raise BadArgument("atlases is empty, expected some to compare")
    named: dict[str, Results] = {}
    for i, atlas in enumerate(atlases):
        path = Path(atlas) if isinstance(atlas, str | Path) else atlas.folder if isinstance(atlas, Atlas) else None
        names = [] if path is None else [path.stem if path.is_file() else path.absolute().name, str(path)]
        label = next(name for name in (*names, chr(ord("A") + i % 26), f"atlas {i}") if name and name not in named)
        results = open_atlas(path, "atlas") if path is not None and path.is_dir() else results_of("atlas", atlas)
        groups = results.info["model"].get("n_kv_heads") if isinstance(results, Atlas) else None
        known = {} if groups is None else {"n_kv_heads": groups}
        named[label] = {
            method: result.assign_attrs(known | result.attrs | {"method": method}) for method, result in results.items()
        }
    return named


def _spread(result: xr.Dataset, heads: int | None, label: str) -> xr.Dataset:
    """Results by KV group, with each group's scores for all of its heads."""
    groups = result.sizes["head"]
    if unit(result) == "Head" or heads is None:
        return result
    if heads % groups:
        raise BadArgument(f"{label} has {groups} KV groups, but others have {heads} heads: maps of different models?")
    spread = result.isel(head=np.repeat(np.arange(groups), heads // groups)).assign_coords(head=range(heads))
    attributes = {name: value for name, value in result.attrs.items() if name not in ("unit", "group_size")}
    return spread.drop_attrs().assign_attrs(attributes | {"n_kv_heads": groups})


def _as_table(method: str, result: xr.Dataset) -> xr.Dataset:
    """A result as a table, whose name does not have to be that of a method."""
    charts = overview({method: result})
    labels = [label.removeprefix(f"{method}: ") for label in charts.chart.values.tolist()]
    table = charts[["score", "low", "high"]].rename(chart=TABLE.over).drop_vars(("method", "measure", "subject"))
    if bool(charts.at_chance.any()):
        table = table.assign(above_chance_score=((TABLE.over, *MAP), ~charts.at_chance.transpose("chart", *MAP).values))
    return table.assign_coords({TABLE.over: labels}).assign_attrs(result.attrs)


def _groups(maps: Results, given: int | None) -> int | None:
    """How many KV groups a layer has, if that is known; None where every head has its own."""
    heads = next(iter(maps.values())).sizes["head"]
    known = sorted({int(result.attrs["n_kv_heads"]) for result in maps.values() if "n_kv_heads" in result.attrs})
    if given is None and len(known) > 1:
        raise BadArgument(f"atlases have {known[0]} and {known[1]} KV heads: maps of different models?")
    groups = given if given is not None else next(iter(known), None)
    if groups is not None and (not 0 < groups <= heads or heads % groups):
        raise BadArgument(f"kv_heads is {groups}, which does not divide the {heads} heads")
    return groups


def _per_group(score: np.ndarray, groups: int | None) -> np.ndarray:
    """Which of charts [chart, layer, head] have one score for all heads of every KV group."""
    if groups is None or groups == score.shape[-1]:
        return np.zeros(len(score), bool)
    parts = np.nan_to_num(score.reshape(*score.shape[:2], groups, -1), nan=np.inf)
    return (parts == parts[..., :1]).all((1, 2, 3))


def _mean(parts: np.ndarray) -> np.ndarray:
    """Over the last axis, of what is not NaN."""
    count = (~np.isnan(parts)).sum(-1)
    return np.where(count > 0, np.nansum(parts, -1) / np.maximum(count, 1), np.nan)
