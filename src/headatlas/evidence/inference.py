"""Inference over prompts: intervals, the effect that a test could have seen, and whether a model can do a task."""

from collections.abc import Sequence

import numpy as np
from scipy.stats import binomtest, norm

ALPHA = 0.05
BOOTSTRAPS = 2_000
POWER = 0.8
IMPORTANT = 0.5  # nats: a test that could not have seen as much decides nothing
MIN_CLUSTERS = 8  # with fewer, prompts are resampled one by one


def clustered_means(values: np.ndarray, cluster: Sequence[int] | np.ndarray, seed: int = 0) -> np.ndarray:
    """Return the means of bootstrap samples [sample, …] of values [example, …]; whole clusters are resampled."""
    groups = _groups(cluster)
    generator = np.random.default_rng(seed)
    sums = np.stack([values[group].sum(0) for group in groups])  # [cluster, …]
    sizes = np.array([len(group) for group in groups])
    counts = generator.multinomial(len(groups), np.full(len(groups), 1 / len(groups)), size=BOOTSTRAPS)
    totals = np.tensordot(counts, sums, axes=1)
    return np.asarray(totals / (counts @ sizes).reshape(-1, *[1] * (values.ndim - 1)))


def interval(values: np.ndarray, cluster: Sequence[int] | np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the 95 % interval of the mean of values [example, …] over prompts like these."""
    means = clustered_means(values, cluster, seed)
    low, high = np.quantile(means, [ALPHA / 2, 1 - ALPHA / 2], axis=0)
    return low, high


def standard_error(values: np.ndarray, cluster: Sequence[int] | np.ndarray) -> float:
    """Return the standard error of the mean of values [example], over clusters."""
    groups = _groups(cluster)
    if len(groups) < 2:
        return np.inf
    totals = np.array([(values[group] - values.mean()).sum() for group in groups])
    n = len(groups)
    return float(np.sqrt(n / (n - 1) * np.square(totals).sum()) / len(values))


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
