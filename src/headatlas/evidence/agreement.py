"""Do two head maps agree? And does a map agree with itself, over seeds and over halves of the data?"""

from collections.abc import Hashable
from itertools import combinations, combinations_with_replacement

import numpy as np
import pandas as pd
import xarray as xr
from scipy.stats import rankdata

from headatlas.errors import BadArgument

TOP = 0.05  # the share of heads whose overlap is counted
ROUNDING = 1e-12


def agreement(a: xr.DataArray, b: xr.DataArray, *, draws: int = 10_000, seed: int = 0) -> xr.Dataset:
    """How far two maps over (layer, head) rank heads alike: `spearman` over all heads, `overlap` of their top 5 %.

    Each has a p-value: how often maps agree as well when one's heads are shuffled. Heads that are NaN in either are
    left out. Other dimensions (task, seed, …) are broadcast; the result has them.
    """
    for name, array in (("a", a), ("b", b)):
        if not isinstance(array, xr.DataArray) or not {"layer", "head"} <= set(array.dims):
            dims = getattr(array, "dims", type(array).__name__)
            raise BadArgument(f"{name} has dimensions {dims}, expected a labelled array with layer and head")
    for dim in ("layer", "head"):
        if a.sizes[dim] != b.sizes[dim]:
            raise BadArgument(f"a has {a.sizes[dim]} {dim}s and b has {b.sizes[dim]}: maps of different models?")
    if draws < 1:
        raise BadArgument(f"draws is {draws}, expected at least 1")
    a, b = xr.broadcast(a, b)
    rest = [d for d in a.dims if d not in ("layer", "head")]
    flat = [m.transpose(*rest, "layer", "head").values.reshape(-1, a.sizes["layer"] * a.sizes["head"]) for m in (a, b)]
    values = np.array([_compare(x, y, draws, seed) for x, y in zip(*flat, strict=True)])
    shape = [a.sizes[d] for d in rest]
    names = ("spearman", "spearman_p", "overlap", "overlap_p")
    coords = {d: a[d] for d in rest if d in a.coords}
    return xr.Dataset({n: (rest, values[:, i].reshape(shape)) for i, n in enumerate(names)}, coords=coords)


def spearman_matrix(maps: np.ndarray) -> np.ndarray:
    """Spearman correlation of every two of maps [map, head]; NaN where one is constant, or too few heads have both."""
    return pd.DataFrame(maps.T).corr("spearman", min_periods=3).to_numpy()


def all_pairs(
    maps: np.ndarray, layer: np.ndarray, top: int, *, draws: int, seed: int = 0, within_layers: bool = False
) -> dict[str, np.ndarray]:
    """How far every two of maps [map, head] agree: matrices [map, map], NaN where one is constant.

    n: how many heads both have, of which `top` (at most half) are their top heads. spearman: of these heads. p: how
    often it is as high when the heads of one are shuffled, all or within layers. shared: how many top heads are in
    both; ties at the last place share it. auroc: of the first as a detector of the second's top heads.
    layer: of every head. draws: how often heads are shuffled.
    """
    names = ("n", "top", "spearman", "p", "shared", "auroc")
    result = {name: np.full((len(maps), len(maps)), np.nan) for name in names}
    measured, kind = np.unique(~np.isnan(maps), axis=0, return_inverse=True)
    groups = [np.flatnonzero(kind.ravel() == i) for i in range(len(measured))]  # maps of the same heads
    for i, j in combinations_with_replacement(range(len(groups)), 2):
        both = measured[i] & measured[j]
        if both.sum() < 3:
            continue
        order = layer[both] if within_layers else np.zeros(both.sum())
        block = _block(maps[groups[i]][:, both], maps[groups[j]][:, both], order, top, draws, seed)
        for name, (forth, back) in block.items():
            result[name][np.ix_(groups[j], groups[i])] = back
            result[name][np.ix_(groups[i], groups[j])] = forth
    return result


def _block(
    a: np.ndarray, b: np.ndarray, layer: np.ndarray, top: int, draws: int, seed: int
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """`all_pairs` of maps a and b [map, head] without NaN: [a, b], and [b, a]."""
    n, size = a.shape[1], min(top, a.shape[1] // 2)
    ranks = [rankdata(maps, axis=1) for maps in (a, b)]
    constant = [np.ptp(r, axis=1) == 0 for r in ranks]
    u, v = (_standardised(r, flat) for r, flat in zip(ranks, constant, strict=True))
    spearman, generator = u @ v.T, np.random.default_rng(seed)
    as_high = np.zeros(spearman.shape)
    for _ in range(draws):
        shuffled = np.lexsort((generator.permutation(n), layer))  # heads are in the order of layers
        as_high += u @ v[:, shuffled].T >= spearman - ROUNDING
    tops = [np.array([_top(score, size) for score in maps]) for maps in (a, b)]
    # Σ over pairs of a head at the top and one that is not, of whether the first ranks higher; a tie counts half
    detects = [
        (t @ (r - 0.5).T - size**2 / 2) / (size * (n - size)) for r, t in zip(ranks, reversed(tops), strict=True)
    ]
    unknown = np.where(constant[0][:, None] | constant[1], np.nan, 0.0)
    both_ways = {
        "n": np.full(spearman.shape, float(n)),
        "top": np.full(spearman.shape, float(size)),
        "spearman": spearman + unknown,
        "p": (1 + as_high) / (1 + draws) + unknown,
        "shared": tops[0] @ tops[1].T + unknown,
    }
    auroc = detects[0].T + unknown, detects[1].T + unknown.T
    return {name: (values, values.T) for name, values in both_ways.items()} | {"auroc": auroc}


def _standardised(ranks: np.ndarray, constant: np.ndarray) -> np.ndarray:
    """Ranks [map, head] such that products of two maps are their correlation; 0 for constant ones."""
    centred = ranks - ranks.mean(1, keepdims=True)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    return np.where(constant[:, None], 0.0, centred / np.where(constant[:, None], 1.0, length))


def _compare(x: np.ndarray, y: np.ndarray, draws: int, seed: int) -> tuple[float, float, float, float]:
    measured = ~(np.isnan(x) | np.isnan(y))
    x, y = x[measured], y[measured]
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return np.nan, np.nan, np.nan, np.nan
    ranks = [pd.Series(v).rank().to_numpy() for v in (x, y)]
    u, v = ((r - r.mean()) / (r.std() * np.sqrt(len(r))) for r in ranks)
    size = max(1, round(TOP * len(x)))
    tops = _top(x, size), _top(y, size)
    generator = np.random.default_rng(seed)
    by_chance = np.empty((2, draws))
    for i in range(draws):
        order = generator.permutation(len(x))
        by_chance[:, i] = u @ v[order], tops[0] @ tops[1][order]
    spearman, shared = u @ v, tops[0] @ tops[1]
    p = [(1 + (by_chance[i] >= s - ROUNDING).sum()) / (1 + draws) for i, s in enumerate((spearman, shared))]
    return float(spearman), p[0], shared / size, p[1]


def _top(score: np.ndarray, size: int) -> np.ndarray:
    """How far each head belongs to the top `size`: 1 above the last place's score, ties at it share the rest."""
    last = np.sort(score)[-size]
    above, tied = score > last, score == last
    return above + tied * (size - above.sum()) / tied.sum()


def stability(score: xr.DataArray, dim: Hashable = "seed") -> xr.Dataset:
    """How far a map agrees with itself along `dim` (seed, half): `agreement` averaged over all pairs."""
    if dim not in score.dims or score.sizes[dim] < 2:
        raise BadArgument(
            f"dim is {dim!r}, expected a dimension of at least 2 of this map, which has {dict(score.sizes)}"
        )
    pairs = [
        agreement(score.isel({dim: i}, drop=True), score.isel({dim: j}, drop=True), draws=1)
        for i, j in combinations(range(score.sizes[dim]), 2)
    ]
    return xr.concat(pairs, "pair")[["spearman", "overlap"]].mean("pair")


def of_more_data(correlation: float, times: float) -> float:
    """What two maps that correlate so would correlate to, if each were made of `times` the data (Spearman–Brown)."""
    return times * correlation / (1 + (times - 1) * correlation)


def times_needed(correlation: float, wanted: float) -> float:
    """Of how many times the data two maps must be made to correlate to `wanted` (Spearman–Brown, solved for it)."""
    if not 0 < correlation < 1 or not 0 < wanted < 1:
        raise BadArgument(f"correlation is {correlation} and wanted is {wanted}, expected both between 0 and 1")
    return wanted * (1 - correlation) / (correlation * (1 - wanted))
