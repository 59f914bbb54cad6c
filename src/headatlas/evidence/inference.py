"""Inference over prompts: intervals, the effect that a test could have seen, and whether a model can do a task."""

from collections.abc import Sequence

import numpy as np
from scipy.stats import binomtest, norm, t

ALPHA = 0.05
POWER = 0.8
IMPORTANT = 0.5  # nats: a test that could not have seen as much decides nothing
MIN_CLUSTERS = 8  # with fewer, prompts are resampled one by one


def interval(values: np.ndarray, cluster: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the 95 % interval of the mean of values [example, …] over prompts like these.

    It is Student's, with an error that is robust to clusters: with 48 prompts, the percentile bootstrap held the mean
    of other prompts in 90 % of samples (benchmarks/evidence.py).
    """
    half_width = t.ppf(1 - ALPHA / 2, max(1, len(_groups(cluster)) - 1)) * standard_error(values, cluster)
    mean = values.mean(0)
    return mean - half_width, mean + half_width


def difference_interval(
    values: np.ndarray,
    cluster: Sequence[int] | np.ndarray,
    others: np.ndarray,
    other_cluster: Sequence[int] | np.ndarray,
) -> tuple[float, float]:
    """Return the 95 % interval of the mean of values [example] minus that of other prompts, which vary as well."""
    n_clusters = min(len(_groups(cluster)), len(_groups(other_cluster)))
    error = np.hypot(standard_error(values, cluster), standard_error(others, other_cluster))
    half_width = t.ppf(1 - ALPHA / 2, max(1, n_clusters - 1)) * error
    difference = values.mean() - others.mean()
    return float(difference - half_width), float(difference + half_width)


def standard_error(values: np.ndarray, cluster: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return the standard error of the mean of values [example, …], over clusters."""
    groups = _groups(cluster)
    n = len(groups)
    if n < 2:
        return np.full(values.shape[1:], np.inf)
    beyond_mean = values - values.mean(0)
    totals = np.stack([beyond_mean[group].sum(0) for group in groups])
    return np.asarray(np.sqrt(n / (n - 1) * np.square(totals).sum(0)) / len(values))


def detectable(values: np.ndarray, cluster: Sequence[int] | np.ndarray) -> float:
    """Return the mean that would have been seen with 80 % probability at p < 0.05, in the units of values [example]."""
    return float((norm.ppf(1 - ALPHA / 2) + norm.ppf(POWER)) * standard_error(values, cluster))


def accuracy_low(right: np.ndarray) -> float:
    """Return the lower end of the 95 % interval of accuracy (Wilson); right: bool [example]."""
    n = len(right)
    return float(binomtest(int(right.sum()), n).proportion_ci(method="wilson").low) if n else 0.0


def _groups(cluster: Sequence[int] | np.ndarray) -> list[np.ndarray]:
    """Return the numbers of the examples in each cluster; in clusters of one where there are too few clusters."""
    labels = np.asarray(cluster)
    if len(np.unique(labels)) < MIN_CLUSTERS:
        labels = np.arange(len(labels))
    return [np.flatnonzero(labels == label) for label in np.unique(labels)]
