"""How well a map finds the heads that are known to serve a function."""

from collections.abc import Iterable

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

Heads = Iterable[tuple[int, int]]


def recovery(score: np.ndarray, heads: Heads, unsure: Heads = ()) -> tuple[float, float]:
    """AUROC and average precision of a map [layer, head] for the known heads; `unsure` ones are left out.

    A head without a score (NaN) counts as last.
    """
    truth = np.zeros(score.shape, dtype=bool)
    counts = np.ones(score.shape, dtype=bool)
    for layer, head in heads:
        truth[layer, head] = True
    for layer, head in unsure:
        counts[layer, head] = truth[layer, head]
    lowest = np.nanmin(score) - 1 if np.isfinite(score).any() else 0.0
    ranked = np.where(np.isnan(score), lowest, score)
    if not truth.any() or truth[counts].all():
        return np.nan, np.nan
    labels, scores = truth[counts], ranked[counts]
    return float(roc_auc_score(labels, scores)), float(average_precision_score(labels, scores))


def mean_interval(values: np.ndarray, draws: int = 10_000, seed: int = 0) -> tuple[float, float, float]:
    """The mean of values, without NaN, and its 95 % bootstrap interval."""
    numbers = values[~np.isnan(values)]
    if not numbers.size:
        return np.nan, np.nan, np.nan
    drawn = np.random.default_rng(seed).choice(numbers, (draws, numbers.size)).mean(1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(numbers.mean()), float(low), float(high)
