"""Do two head maps agree? And does a map agree with itself, over seeds and over halves of the data?"""

from collections.abc import Hashable
from itertools import combinations

import numpy as np
import pandas as pd
import xarray as xr

from headatlas.errors import BadArgument

TOP = 0.05  # the share of heads whose overlap is counted


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
    rounding = 1e-12
    p = [(1 + (by_chance[i] >= s - rounding).sum()) / (1 + draws) for i, s in enumerate((spearman, shared))]
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
