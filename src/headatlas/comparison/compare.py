"""`compare`: how far maps agree, whoever made them."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xarray as xr

from headatlas.comparison.depth import depth_profile, mean_depth, profile_correlation
from headatlas.comparison.pairs import compare_all_pairs
from headatlas.comparison.reliability import between_repeats, between_repeats_of_results
from headatlas.comparison.side_by_side import Results, side_by_side
from headatlas.errors import BadArgument, check_count
from headatlas.evidence.control import correct_p
from headatlas.results.about import unit_of
from headatlas.results.charts import MAP, stack_maps

HEAD, GROUP, MAXIMUM, MEAN = "head", "KV group", "maximum of the KV group", "mean of the KV group"
# Two maps of models with different layers or heads.
DEPTH = "relative depth"
# Of a pair of maps in one unit.
NUMBERS = ("n", "top", "spearman", "p", "shared", "p_shared", "shared_by_chance", "auroc_ab", "auroc_ba")


def compare(
    *maps: Results | xr.Dataset | xr.DataArray | str | Path,
    over: str | None = None,
    by: Literal["kv-group"] | None = None,
    top: int | None = None,
    kv_heads: int | None = None,
    draws: int = 2000,
    seed: int = 0,
) -> xr.Dataset:
    """How far maps agree: of one atlas or several, of published tables, of two arrays, or of one map with itself.

    p is how often maps agree as well when the heads of one are shuffled within their layers: agreement about layers
    alone does not count.

    Args:
        maps: atlases, their folders, results of methods, or results by method: every two maps of all of these are
            compared. Or two labelled arrays over (layer, head); other dimensions (task, seed, …) are broadcast.
        over: 'seed' or 'half': compare each map with itself over this dimension instead.
        by: 'kv-group' compares all maps by KV group. Without it, only maps that have one score for each KV group are,
            by the maximum and the mean of the group's heads.
        top: number of top heads to compare, at most half of the heads; without it, 5 %.
        kv_heads: how many KV heads a layer has, if no atlas says it.
        draws: how often heads are shuffled.
        seed: of the shuffling.

    Returns:
        `spearman`, `p` and `n` (how many heads both have); how many of the `top` heads are top heads of both
        (`shared`), `p_shared`, and how many would be by chance (`shared_by_chance`); `auroc_ab`, the first map as a
        detector of the second's top heads, and `auroc_ba`.

        Of results: over (pair), with the coordinates `a` and `b` (charts), `atlas_a` and `atlas_b`, and `same`, whether
        both are the same map in two atlases. `unit_of` is head, KV group, maximum or mean of the KV group, or relative
        depth, where layers or heads differ and only `depth_r` is known: the correlation of the maps' shares over 20
        bins of relative depth. `p_corrected` is for the number of pairs between atlases (of others, within). `depth`
        (chart) is the middle of a map, from 0 to 1.
        Of arrays: over their other dimensions.
        With `over`: the mean of `spearman` and `shared` over every two repeats, and `spearman_whole`, what the mean of
        all repeats would correlate to with another such mean (Spearman–Brown).

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
            raise BadArgument(f"maps are {len(maps)}, expected one array to compare over {over!r}")
        return between_repeats(arrays[0], over, top) if arrays else between_repeats_of_results(maps, over, top)
    if arrays or any(isinstance(m, np.ndarray) for m in maps):
        return _compare_arrays(maps, top, draws, seed)
    return _compare_results(maps, by, top, kv_heads, draws, seed)


def _compare_arrays(maps: Sequence[Any], top: int | None, draws: int, seed: int) -> xr.Dataset:
    """Numbers of two labelled arrays over their dimensions other than layer and head."""
    if len(maps) != 2:
        raise BadArgument(f"maps are {len(maps)}, expected two arrays, or results")
    for name, array in zip("ab", maps, strict=True):
        if not isinstance(array, xr.DataArray) or not {*MAP} <= set(array.dims):
            dims = getattr(array, "dims", type(array).__name__)
            raise BadArgument(f"map {name} has dimensions {dims}, expected a labelled array with layer and head")
    a, b = maps
    for dim in MAP:
        if a.sizes[dim] != b.sizes[dim]:
            raise BadArgument(f"a has {a.sizes[dim]} {dim}s and b has {b.sizes[dim]}: maps of different models?")
    a, b = xr.broadcast(a, b)
    rest = [d for d in a.dims if d not in MAP]
    shape = [a.sizes[d] for d in rest]
    flat = [m.transpose(*rest, *MAP).values.reshape(-1, a.sizes["layer"] * a.sizes["head"]) for m in (a, b)]
    layer = np.repeat(np.arange(a.sizes["layer"]), a.sizes["head"])
    rows = []
    for pair in zip(*flat, strict=True):
        values = compare_all_pairs(np.array(pair, np.float64), layer, top, draws=draws, seed=seed)
        rows.append(_numbers(values, 0, 1))
    variables = {name: (rest, np.array([row[name] for row in rows]).reshape(shape)) for name in NUMBERS}
    return xr.Dataset(variables, coords={d: a[d] for d in rest if d in a.coords}, attrs={"draws": draws, "seed": seed})


def _numbers(values: Mapping[str, np.ndarray], i: int, j: int) -> dict[str, float]:
    """NUMBERS of the maps i and j of `compare_all_pairs`."""
    numbers = {name: float(values[name][i, j]) for name in ("n", "top", "spearman", "p", "shared", "p_shared")}
    numbers["shared_by_chance"] = numbers["top"] ** 2 / numbers["n"]
    return numbers | {"auroc_ab": float(values["auroc"][i, j]), "auroc_ba": float(values["auroc"][j, i])}


def _compare_results(
    atlases: Sequence[Any], by: str | None, top: int | None, kv_heads: int | None, draws: int, seed: int
) -> xr.Dataset:
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
        members = stack_maps(group)
        score = members.score.transpose("chart", *MAP).values
        numbers = _numbers_of_pairs(group, score, by, top, kv_heads, draws, seed)
        first = len(charts)
        rows += [_depth_row(i, j) for i in range(first) for j in range(first, first + len(score))]
        rows += [row | {"i": row["i"] + first, "j": row["j"] + first} for row in numbers]
        charts += members.chart.values.tolist()
        origins += [origin[method] for method in members.method.values.tolist()]
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
    return dict.fromkeys(NUMBERS, np.nan) | {"n": 0.0, "unit": DEPTH, "i": i, "j": j}


def _numbers_of_pairs(
    maps: Results, score: np.ndarray, by: str | None, top: int | None, kv_heads: int | None, draws: int, seed: int
) -> list[dict[str, Any]]:
    """A row for every two of maps [chart, layer, head], in each unit that they can be compared in."""
    groups = _groups(maps, kv_heads)
    if groups is None and by is not None:
        raise BadArgument("kv_heads is not known of these maps: give it")
    coarse = _per_group(score, groups)
    units = {} if by is not None else {HEAD: score}
    if groups is not None and (by is not None or coarse.any()):
        parts = score.reshape(*score.shape[:2], groups, -1)
        units |= {MAXIMUM: np.fmax.reduce(parts, axis=-1), MEAN: _mean(parts)}
    if by is not None and groups == score.shape[2]:
        # Every head is a group.
        coarse[:] = True
    numbers = {}
    for name, values in units.items():
        layer = np.repeat(np.arange(values.shape[1]), values.shape[2])
        numbers[name] = compare_all_pairs(values.reshape(len(values), -1), layer, top, draws=draws, seed=seed)
    rows = list(_rows(numbers, coarse, by is not None))
    if all(unit_of(result) != "Head" for result in maps.values()):
        rows = [row | {"unit": GROUP} for row in rows]
    return rows


def _rows(numbers: Mapping[str, dict[str, np.ndarray]], coarse: np.ndarray, by_group: bool) -> Iterator[dict[str, Any]]:
    """Of every two charts, the units they can be compared in, and how they agree in each."""
    for i, j in combinations(range(len(coarse)), 2):
        both, either = coarse[i] and coarse[j], by_group or coarse[i] or coarse[j]
        for name in [MAXIMUM] if both else [MAXIMUM, MEAN] if either else [HEAD]:
            yield _numbers(numbers[name], i, j) | {"unit": GROUP if both else name, "i": i, "j": j}


def _dataset(rows: Sequence[dict[str, Any]], charts: Sequence[str], atlas: Sequence[str]) -> xr.Dataset:
    names = (*NUMBERS, "depth_r", "unit")
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
    """The correlations of `compare` over (chart, other); of KV groups, by their maximum."""
    charts = result.chart.values.tolist()
    used = result.isel(pair=np.flatnonzero(result.unit.values != MEAN))
    place = {chart: i for i, chart in enumerate(charts)}
    i, j = ([place[chart] for chart in used[side].values.tolist()] for side in ("a", "b"))
    values = np.full((len(charts), len(charts)), np.nan)
    values[i, j] = values[j, i] = used.spearman.values
    known = np.isfinite(values).any(1)
    values[known, known] = 1.0
    return xr.DataArray(values, dims=("chart", "other"), coords={"chart": charts, "other": charts})


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
