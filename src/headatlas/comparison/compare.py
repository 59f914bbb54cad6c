"""Compare maps, whoever made them."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xarray as xr

from headatlas.comparison.depth import depth_profile, mean_depth, profile_correlation
from headatlas.comparison.pairs import compare_all_pairs
from headatlas.comparison.repeats import between_repeats, between_repeats_of_results
from headatlas.comparison.side_by_side import Results, side_by_side
from headatlas.errors import BadArgument, check_count
from headatlas.evidence.control import correct_p
from headatlas.results.about import unit_of
from headatlas.results.charts import MAP, stack_maps

# Units in which two maps are compared.
HEAD = "head"
GROUP = "KV group"
MAXIMUM = "maximum of the KV group"
MEAN = "mean of the KV group"
# For maps of models with different numbers of layers or heads.
DEPTH = "relative depth"
# What is computed for a pair of maps in one unit.
STATISTICS = ("n", "top", "spearman", "p", "shared", "p_shared", "shared_by_chance", "auroc_ab", "auroc_ba")


def compare(
    *maps: Results | xr.Dataset | xr.DataArray | str | Path,
    over: str | None = None,
    by: Literal["kv-group"] | None = None,
    top: int | None = None,
    kv_heads: int | None = None,
    draws: int = 2000,
    seed: int = 0,
) -> xr.Dataset:
    """Compare maps: of one atlas or several, published tables, two arrays, or the repeats of each map.

    p is the share of shuffles after which two maps agree at least as well. Heads are shuffled within their layers, so
    that agreement about layers alone does not count.

    Args:
        maps: atlases, their folders, results of methods, or results by method: every two of their maps are compared. Or
            two labelled arrays with the dimensions layer and head; other dimensions (task, seed, …) are broadcast.
        over: 'seed' or 'refit' to compare the repeats of each map over this dimension instead.
        by: 'kv-group' to compare all maps by KV group. By default, only maps with one score per KV group are, with the
            maximum and the mean of the group's heads in other maps.
        top: number of top heads to compare, at most half of the heads (default: 5 %).
        kv_heads: KV heads per layer, if no atlas records them.
        draws: number of shuffles.
        seed: random seed of the shuffles.

    Returns:
        `spearman` and its `p` over the `n` heads that both maps have; the number of the `top` heads that both maps
        have in common (`shared`), its `p_shared`, and the number expected by chance (`shared_by_chance`); `auroc_ab`,
        the first map as a detector of the second's top heads, and `auroc_ba`.

        For results, these are over (pair), with the coordinates `a` and `b` (charts), `atlas_a` and `atlas_b`, and
        `same`: whether both are the same map in two atlases. `unit` is head, KV group, maximum or mean of the KV group,
        or relative depth. Models with different numbers of layers or heads can only be compared by relative depth:
        `depth_r` is the correlation of the maps' shares in 20 bins. `p_corrected` is corrected for the number of pairs
        between atlases (for other pairs, within atlases). `depth` (chart) is the mean depth of a map, from 0 to 1.
        For arrays, they are over the other dimensions of the arrays.
        With `over`: the means of `spearman` and `shared` over every two repeats, and `spearman_whole`, the expected
        correlation between two means of all repeats (Spearman–Brown).

    Example:
        >>> ha.compare("ours", "theirs").to_dataframe().sort_values("spearman")
    """
    if top is not None:
        check_count("top", top, 1)
    check_count("draws", draws, 1)
    if by not in (None, "kv-group"):
        raise BadArgument(f"by is {by!r}, expected kv-group")
    arrays = [m for m in maps if isinstance(m, xr.DataArray)]
    if over is not None:
        if arrays and len(maps) > 1:
            raise BadArgument(f"maps has {len(maps)} entries, expected one array to compare over {over!r}")
        return between_repeats(arrays[0], over, top) if arrays else between_repeats_of_results(maps, over, top)
    if arrays or any(isinstance(m, np.ndarray) for m in maps):
        return _compare_arrays(maps, top, draws, seed)
    return _compare_results(maps, by, top, kv_heads, draws, seed)


def _compare_arrays(maps: Sequence[Any], top: int | None, draws: int, seed: int) -> xr.Dataset:
    """Compare two labelled arrays along layer and head, for each label of their other dimensions."""
    if len(maps) != 2:
        raise BadArgument(f"maps has {len(maps)} entries, expected two arrays, or results")
    for name, array in zip("ab", maps, strict=True):
        if not isinstance(array, xr.DataArray) or not {*MAP} <= set(array.dims):
            dims = getattr(array, "dims", type(array).__name__)
            raise BadArgument(f"map {name} has dimensions {dims}, expected a labelled array with layer and head")
    a, b = maps
    seeds = [m.attrs.get("seeds") for m in maps]
    if None not in seeds and seeds[0] != seeds[1]:
        raise BadArgument(
            f"a is over {seeds[0]} seeds and b over {seeds[1]}: always falls and any rises with the number of seeds,"
            " so only those of the same number can be compared"
        )
    for dim in MAP:
        if a.sizes[dim] != b.sizes[dim]:
            raise BadArgument(f"a has {a.sizes[dim]} {dim}s and b has {b.sizes[dim]}: maps of different models?")
    a, b = xr.broadcast(a, b)
    other_dims = [d for d in a.dims if d not in MAP]
    shape = [a.sizes[d] for d in other_dims]
    flat = [m.transpose(*other_dims, *MAP).values.reshape(-1, a.sizes["layer"] * a.sizes["head"]) for m in (a, b)]
    layer = np.repeat(np.arange(a.sizes["layer"]), a.sizes["head"])
    rows = []
    for pair in zip(*flat, strict=True):
        values = compare_all_pairs(np.array(pair, np.float64), layer, top, draws=draws, seed=seed)
        rows.append(_pair_statistics(values, 0, 1))
    variables = {name: (other_dims, np.array([row[name] for row in rows]).reshape(shape)) for name in STATISTICS}
    coords = {d: a[d] for d in other_dims if d in a.coords}
    return xr.Dataset(variables, coords=coords, attrs={"draws": draws, "seed": seed})


def _pair_statistics(values: Mapping[str, np.ndarray], i: int, j: int) -> dict[str, float]:
    """Read the STATISTICS of the maps i and j from the matrices of `compare_all_pairs`."""
    numbers = {name: float(values[name][i, j]) for name in ("n", "top", "spearman", "p", "shared", "p_shared")}
    numbers["shared_by_chance"] = numbers["top"] ** 2 / numbers["n"]
    return numbers | {"auroc_ab": float(values["auroc"][i, j]), "auroc_ba": float(values["auroc"][j, i])}


def _compare_results(
    atlases: Sequence[Any], by: str | None, top: int | None, kv_heads: int | None, draws: int, seed: int
) -> xr.Dataset:
    """Compare every two maps of results: head by head, by KV group, or by relative depth."""
    maps, origin = side_by_side(atlases)
    # Maps are compared head by head with those that have the same layers and heads.
    by_size: dict[tuple[int, int], dict[str, xr.Dataset]] = {}
    for name, result in maps.items():
        by_size.setdefault((result.sizes["layer"], result.sizes["head"]), {})[name] = result
    charts: list[str] = []
    origins: list[str] = []
    profiles: list[np.ndarray] = []
    rows: list[dict[str, Any]] = []
    for group in by_size.values():
        group_charts = stack_maps(group)
        score = group_charts.score.transpose("chart", *MAP).values
        comparable = _compare_one_size(group, score, by, top, kv_heads, draws, seed)
        first = len(charts)
        rows += [_depth_row(i, j) for i in range(first) for j in range(first, first + len(score))]
        rows += [row | {"i": row["i"] + first, "j": row["j"] + first} for row in comparable]
        charts += group_charts.chart.values.tolist()
        origins += [origin[method] for method in group_charts.method.values.tolist()]
        profiles += [depth_profile(values) for values in score]
    if len(charts) < 2:
        raise BadArgument(f"atlases have {len(charts)} maps, expected at least two to compare")
    for row in rows:
        row["depth_r"] = profile_correlation(profiles[row["i"]], profiles[row["j"]])
    rows.sort(key=lambda row: (row["i"], row["j"]))
    result = _dataset(rows, charts, origins)
    depth = [mean_depth(profile) for profile in profiles]
    return result.assign(depth=("chart", depth)).assign_attrs(draws=draws, seed=seed)


def _depth_row(i: int, j: int) -> dict[str, Any]:
    """Make a row for two maps of different sizes, without numbers that need the same heads."""
    return dict.fromkeys(STATISTICS, np.nan) | {"n": 0.0, "unit": DEPTH, "i": i, "j": j}


def _compare_one_size(
    maps: Results, score: np.ndarray, by: str | None, top: int | None, kv_heads: int | None, draws: int, seed: int
) -> list[dict[str, Any]]:
    """Make a row for every two maps [chart, layer, head] of one size, in each unit in which they can be compared."""
    groups = _groups(maps, kv_heads)
    if groups is None and by is not None:
        raise BadArgument("these maps do not record kv_heads: give it")
    is_per_group = _is_per_group(score, groups)
    units = {} if by is not None else {HEAD: score}
    if groups is not None and (by is not None or is_per_group.any()):
        parts = score.reshape(*score.shape[:2], groups, -1)
        units |= {MAXIMUM: np.fmax.reduce(parts, axis=-1), MEAN: _mean(parts)}
    if by is not None and groups == score.shape[2]:
        # Every head is a group.
        is_per_group[:] = True
    numbers = {}
    for name, values in units.items():
        layer = np.repeat(np.arange(values.shape[1]), values.shape[2])
        numbers[name] = compare_all_pairs(values.reshape(len(values), -1), layer, top, draws=draws, seed=seed)
    rows = list(_rows(numbers, is_per_group, by is not None))
    if all(unit_of(result) != "Head" for result in maps.values()):
        rows = [row | {"unit": GROUP} for row in rows]
    return rows


def _rows(
    numbers: Mapping[str, dict[str, np.ndarray]], is_per_group: np.ndarray, by_group: bool
) -> Iterator[dict[str, Any]]:
    """Yield a row for every two charts and each unit in which they are compared.

    is_per_group: which charts have one score per KV group, so that maximum and mean are the same.
    """
    for i, j in combinations(range(len(is_per_group)), 2):
        both = is_per_group[i] and is_per_group[j]
        either = by_group or is_per_group[i] or is_per_group[j]
        for name in [MAXIMUM] if both else [MAXIMUM, MEAN] if either else [HEAD]:
            yield _pair_statistics(numbers[name], i, j) | {"unit": GROUP if both else name, "i": i, "j": j}


def _dataset(rows: Sequence[dict[str, Any]], charts: Sequence[str], atlas: Sequence[str]) -> xr.Dataset:
    """Make the dataset of all pairs from their rows, the charts and the atlas of each chart."""
    names = (*STATISTICS, "depth_r", "unit")
    variables = {name: ("pair", np.array([row[name] for row in rows])) for name in names}
    between = np.array([atlas[row["i"]] != atlas[row["j"]] for row in rows])
    p = variables["p"][1]
    corrected = np.empty(len(rows))
    for pairs in (between, ~between):
        corrected[pairs] = correct_p(p[pairs])
    variables["p_corrected"] = ("pair", corrected)
    plain = [chart.removeprefix(f"{label}/") for chart, label in zip(charts, atlas, strict=True)]
    same = [plain[row["i"]] == plain[row["j"]] for row in rows]
    coords: dict[str, Any] = {"same": ("pair", between & np.array(same, bool))}
    for side, index in (("a", "i"), ("b", "j")):
        coords |= {side: ("pair", [charts[row[index]] for row in rows])}
        coords |= {f"atlas_{side}": ("pair", [atlas[row[index]] for row in rows])}
    return xr.Dataset(variables, coords=coords | {"chart": list(charts), "atlas": ("chart", list(atlas))})


def correlation_matrix(result: xr.Dataset) -> xr.DataArray:
    """Arrange the correlations of `compare` in a matrix (chart, other); for KV groups, those of the maximum."""
    charts = result.chart.values.tolist()
    pairs = result.isel(pair=np.flatnonzero(result.unit.values != MEAN))
    index = {chart: i for i, chart in enumerate(charts)}
    i, j = ([index[chart] for chart in pairs[side].values.tolist()] for side in ("a", "b"))
    values = np.full((len(charts), len(charts)), np.nan)
    values[i, j] = values[j, i] = pairs.spearman.values
    correlated = np.isfinite(values).any(1)
    values[correlated, correlated] = 1.0
    return xr.DataArray(values, dims=("chart", "other"), coords={"chart": charts, "other": charts})


def _groups(maps: Results, kv_heads: int | None) -> int | None:
    """Return the number of KV groups per layer; None if it is unknown. kv_heads: the number that the user gave."""
    heads = next(iter(maps.values())).sizes["head"]
    recorded = sorted({int(result.attrs["n_kv_heads"]) for result in maps.values() if "n_kv_heads" in result.attrs})
    if kv_heads is None and len(recorded) > 1:
        raise BadArgument(f"atlases have {recorded[0]} and {recorded[1]} KV heads: maps of different models?")
    groups = kv_heads if kv_heads is not None else next(iter(recorded), None)
    if groups is not None and (not 0 < groups <= heads or heads % groups):
        raise BadArgument(f"kv_heads is {groups}, which does not divide the {heads} heads")
    return groups


def _is_per_group(score: np.ndarray, groups: int | None) -> np.ndarray:
    """Return which charts [chart, layer, head] have the same score for all heads of every KV group."""
    if groups is None or groups == score.shape[-1]:
        return np.zeros(len(score), bool)
    parts = np.nan_to_num(score.reshape(*score.shape[:2], groups, -1), nan=np.inf)
    return (parts == parts[..., :1]).all((1, 2, 3))


def _mean(parts: np.ndarray) -> np.ndarray:
    """Average over the last axis without NaN."""
    # np.nanmean warns where all are NaN.
    count = (~np.isnan(parts)).sum(-1)
    return np.where(count > 0, np.nansum(parts, -1) / np.maximum(count, 1), np.nan)
