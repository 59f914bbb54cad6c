"""How reliable a map is, from repeats of it: examples, seeds, refits, pairs of words or texts.

The map is the mean over its repeats. Numbers only: `headatlas.results.stored_reliability` says which
variables hold them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata, t

from headatlas.evidence.control import TOP_SHARE, correct_p

RELIABLE = 0.8  # correlation between halves below which a map says so wherever it is shown
N_SPLITS = 20
N_BOOTSTRAPS = 200
FDR = 0.05
MIN_RESOLVING_REPEATS = 4  # three seeds that happen to agree have a variance near 0


@dataclass(frozen=True)
class Reliability:
    """What repeats of a map show about it.

    Attributes:
        repeats: number of repeats.
        reliability: Spearman correlation over heads between the means of two halves of the repeats, averaged over
            random splits; NaN with one repeat, or if the map is constant.
        whole_reliability: the same between two maps of all repeats each, by Spearman and Brown's formula.
        top_overlap: share of one half's top 5 % of heads that is in the other's, averaged over the splits.
        se: standard error of the mean over repeats [layer, head].
        inclusion: share of bootstraps over repeats in which the head is in the top 5 % [layer, head].
        resolved: whether the head differs from the rest of its layer, at a false discovery rate of 5 % [layer, head].
    """

    repeats: int
    reliability: float
    whole_reliability: float
    top_overlap: float
    se: np.ndarray
    inclusion: np.ndarray
    resolved: np.ndarray


def assess_repeats(values: np.ndarray, seed: int = 0) -> Reliability:
    """Assess a map from its repeats.

    Args:
        values: [repeat, layer, head]. A repeat without any number is left out; a head that is NaN in another is
            missing.
        seed: random seed of splits and bootstraps.
    """
    values = np.asarray(values, np.float64)
    values = values[np.isfinite(values).any((1, 2))]
    n = len(values)
    present = np.isfinite(values).all(0) & (n > 0)
    by_head = values[:, present]
    se = np.full(present.shape, np.nan)
    inclusion = np.full(present.shape, np.nan)
    resolved = np.zeros(present.shape, bool)
    if n < 2 or not present.any():
        return Reliability(n, np.nan, np.nan, np.nan, se, inclusion, resolved)
    generator = np.random.default_rng(seed)
    reliability, top_overlap = _compare_halves(by_head, generator)
    se[present] = by_head.std(0, ddof=1) / np.sqrt(n)
    inclusion[present] = _inclusion(by_head, generator)
    if n >= MIN_RESOLVING_REPEATS:
        resolved = _resolved(values, present)
    # The formula assumes that halves share a signal: it means nothing without a correlation above 0.
    whole = spearman_brown(reliability, n / (n // 2)) if reliability > 0 else np.nan
    return Reliability(n, reliability, whole, top_overlap, se, inclusion, resolved)


def spearman_brown(correlation: Any, times: float) -> Any:
    """Predict the correlation of two maps if each were made from `times` as much data (Spearman–Brown)."""
    return times * correlation / (1 + (times - 1) * correlation)


def top_size(n_heads: int) -> int:
    """Return how many of these heads are the top 5 %."""
    return min(max(1, round(TOP_SHARE * n_heads)), n_heads // 2)


def top_weights(maps: np.ndarray, size: int) -> np.ndarray:
    """Return 1 for heads in the top `size` of maps [map, head] and 0 for others; ties at the last place share it."""
    lowest = np.sort(maps, axis=1)[:, -size, None]
    above = maps > lowest
    tied = maps == lowest
    return np.asarray(above + tied * (size - above.sum(1, keepdims=True)) / tied.sum(1, keepdims=True))


def _compare_halves(by_head: np.ndarray, generator: np.random.Generator) -> tuple[float, float]:
    """Return correlation and overlap between halves of repeats [repeat, head]; of an odd number, one is left out."""
    n, n_heads = by_head.shape
    if n_heads < 3 or np.ptp(by_head.mean(0)) == 0:
        return np.nan, np.nan
    size = n // 2
    orders = [generator.permutation(n) for _ in range(N_SPLITS)]
    first = np.stack([by_head[order[:size]].mean(0) for order in orders])
    second = np.stack([by_head[order[size : 2 * size]].mean(0) for order in orders])
    ranks = [rankdata(half, axis=1) - (n_heads + 1) / 2 for half in (first, second)]
    length = np.prod([np.linalg.norm(rank, axis=1) for rank in ranks], axis=0)
    # A constant half shares nothing with the other: 0.
    correlation = (ranks[0] * ranks[1]).sum(1) / np.where(length > 0, length, np.inf)
    top = top_size(n_heads)
    shared = (top_weights(first, top) * top_weights(second, top)).sum(1)
    return float(correlation.mean()), float(shared.mean() / top)


def _inclusion(by_head: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return how often each head is in the top 5 % of the mean over resampled repeats [repeat, head]."""
    n, n_heads = by_head.shape
    if n_heads < 2:
        return np.full(n_heads, np.nan)
    counts = generator.multinomial(n, np.full(n, 1 / n), size=N_BOOTSTRAPS)
    return np.asarray(top_weights(counts @ by_head / n, top_size(n_heads)).mean(0))


def _resolved(values: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Test every head of values [repeat, layer, head] against the middle half of the other heads of its layer.

    The middle half, so that one outstanding head does not make all others of its layer differ from their rest.
    """
    n = len(values)
    mean = np.full(present.shape, np.nan)
    error = np.full(present.shape, np.nan)
    for layer in np.flatnonzero(present.sum(1) >= 2):
        heads = np.flatnonzero(present[layer])
        heads = heads[np.argsort(values[:, layer, heads].mean(0), kind="stable")]
        by_head = values[:, layer, heads]
        weights = _middle_of_others(len(heads))
        difference = by_head - by_head @ weights.T
        mean[layer, heads] = difference.mean(0)
        # A head that happens to be constant, such as one without any hit, is no more certain than the rest.
        variance = np.maximum(difference.var(0, ddof=1), weights @ by_head.var(0, ddof=1))
        error[layer, heads] = np.sqrt(variance / n)
    # Repeats that all differ from the rest by the same amount leave no doubt: p is 0.
    certain = np.where(mean == 0, 0.0, np.inf)
    ratio = np.where(error > 0, np.abs(mean) / np.where(error > 0, error, 1), certain)
    p = np.where(np.isnan(mean), np.nan, 2 * t.sf(ratio, n - 1))
    corrected = correct_p(p)
    return np.asarray(np.isfinite(corrected) & (corrected < FDR))


def _middle_of_others(n_heads: int) -> np.ndarray:
    """Return [head, other head] weights that average the middle half of the others; heads are in order of the map."""
    head, other = np.indices((n_heads, n_heads))
    place = other - (other > head)
    trimmed = (n_heads - 1) // 4
    middle = (other != head) & (place >= trimmed) & (place < n_heads - 1 - trimmed)
    return np.asarray(middle / middle.sum(1, keepdims=True))
