"""Do the maps of two models agree? Head by head where both have the same heads; by relative depth always."""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from headatlas.errors import BadArgument
from headatlas.evidence.agreement import agreement
from headatlas.results.charts import overview

BINS = 20  # of relative depth


def compare(
    a: Mapping[str, xr.Dataset], b: Mapping[str, xr.Dataset], *, draws: int = 2000, seed: int = 0
) -> xr.Dataset:
    """Agreement of the charts that two atlases (datasets by method) share, over (chart).

    `spearman` and `overlap` of the top 5 %, with p-values: head by head, for two checkpoints of one model; NaN where
    the numbers of layers or heads differ. `depth_a`, `depth_b`: where in the depth of each model (0 to 1) a chart has
    its middle. `depth_r`: correlation of its shares over 20 bins of relative depth.
    """
    left, right = overview(a), overview(b)
    shared = [c for c in left.chart.values.tolist() if c in set(right.chart.values.tolist())]
    if not shared:
        lists = [", ".join(m) or "nothing" for m in (a, b)]
        raise BadArgument(f"the atlases share no chart: one has {lists[0]}, the other {lists[1]}")
    left, right = left.sel(chart=shared), right.sel(chart=shared)
    same = all(left.sizes[d] == right.sizes[d] for d in ("layer", "head"))
    if same:
        result = agreement(left.score, right.score.assign_coords(left.score.coords), draws=draws, seed=seed)
    else:
        names = ("spearman", "spearman_p", "overlap", "overlap_p")
        result = xr.Dataset(dict.fromkeys(names, ("chart", np.full(len(shared), np.nan))), coords={"chart": shared})
    profiles = [np.array([depth_profile(s) for s in side.score]) for side in (left, right)]
    places = (np.arange(BINS) + 0.5) / BINS
    return result.assign(
        depth_a=("chart", profiles[0] @ places),
        depth_b=("chart", profiles[1] @ places),
        depth_r=("chart", [_correlation(x, y) for x, y in zip(*profiles, strict=True)]),
        head_by_head=same,
    ).assign_coords({n: ("chart", left[n].values) for n in ("method", "measure", "subject")})


def depth_profile(score: xr.DataArray, bins: int = BINS) -> np.ndarray:
    """Share of |score| (layer, head) in each bin of relative depth; a layer over two bins is divided. NaN if all 0."""
    by_layer = np.nansum(np.abs(score.transpose("layer", "head").values), axis=1)
    total = by_layer.sum()
    if not total > 0:
        return np.full(bins, np.nan)
    reached = np.concatenate([[0], np.cumsum(by_layer / total)])  # up to the end of each layer
    ends = np.interp(np.linspace(0, 1, bins + 1), np.linspace(0, 1, len(reached)), reached)
    return np.diff(ends)


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
    if np.isnan(x).any() or np.isnan(y).any() or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])
