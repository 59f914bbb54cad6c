"""Where in the depth of a model a map has its heads: comparable between models of any size."""

import numpy as np

BINS = 20


def depth_profile(score: np.ndarray, bins: int = BINS) -> np.ndarray:
    """Share of |score| [layer, head] in each bin of relative depth; NaN if all are 0.

    A layer that reaches into two bins is divided.
    """
    by_layer = np.nansum(np.abs(score), axis=1)
    total = by_layer.sum()
    if not total > 0:
        return np.full(bins, np.nan)
    # Up to the end of each layer.
    reached = np.concatenate([[0], np.cumsum(by_layer / total)])
    ends = np.interp(np.linspace(0, 1, bins + 1), np.linspace(0, 1, len(reached)), reached)
    return np.diff(ends)


def mean_depth(profile: np.ndarray) -> float:
    """The middle of a profile, from 0 (first layer) to 1 (last)."""
    places = (np.arange(len(profile)) + 0.5) / len(profile)
    return float(profile @ places)


def profile_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Pearson's correlation of two profiles; NaN where one is flat or unknown."""
    if np.isnan(a).any() or np.isnan(b).any() or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])
