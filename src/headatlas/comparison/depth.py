"""Where in the depth of a model the heads of a map are: comparable between models of any size."""

import numpy as np

BINS = 20


def depth_profile(score: np.ndarray, bins: int = BINS) -> np.ndarray:
    """Return the share of |score| [layer, head] in each bin of relative depth; NaN if all scores are 0.

    A layer that overlaps two bins is divided between them.
    """
    by_layer = np.nansum(np.abs(score), axis=1)
    total = by_layer.sum()
    if not total > 0:
        return np.full(bins, np.nan)
    # The share up to the end of each layer.
    cumulative = np.concatenate([[0], np.cumsum(by_layer / total)])
    ends = np.interp(np.linspace(0, 1, bins + 1), np.linspace(0, 1, len(cumulative)), cumulative)
    return np.diff(ends)


def mean_depth(profile: np.ndarray) -> float:
    """Return the mean depth of a profile, from 0 (first layer) to 1 (last)."""
    centres = (np.arange(len(profile)) + 0.5) / len(profile)
    return float(profile @ centres)


def profile_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Return Pearson's correlation of two profiles; NaN if one is constant or NaN."""
    if np.isnan(a).any() or np.isnan(b).any() or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])
