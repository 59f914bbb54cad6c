"""The highest score of a relation that chance explains."""

import numpy as np
from scipy.stats import betabinom, binom

FALSE_MAP_RATE = 0.05  # of maps of a model without relations, the share that may show a head above chance


def chance_level(baseline: np.ndarray, pairs: np.ndarray, k: np.ndarray, vocabulary: int) -> np.ndarray:
    """Return the highest score of each relation that chance explains, [relation]; a head above it is above chance.

    A head must score higher than every head of every baseline. It must also hit more pairs than a binomial distribution
    allows, at the baseline's mean rate or that of a random ranking (k / vocabulary), whichever is higher: 5 % over all
    heads and relations together (Bonferroni). If a baseline itself exceeds that, its hits are correlated (a head that
    writes "he" for any word hits every pair with that target), and a beta-binomial distribution of the same mean and
    variance replaces the binomial.

    Args:
        baseline: scores of models without the relation, [baseline, relation, layer, head]; NaN marks a missing score.
        pairs: number of pairs of each relation.
        k: k of each relation.
        vocabulary: number of tokens.
    """
    level = np.full(len(pairs), np.nan, dtype=np.float32)
    scored = np.isfinite(baseline)
    if not scored.any():
        return level
    tail = FALSE_MAP_RATE / scored.any(axis=0).sum()
    for r in np.flatnonzero(scored.any(axis=(0, 2, 3))):
        n = int(pairs[r])
        hits_by_baseline = [np.rint(scores[np.isfinite(scores)] * n) for scores in baseline[:, r]]
        min_rate = min(1.0, k[r] / vocabulary)
        highest = max(_hits_by_chance(hits, n, min_rate, tail) for hits in hits_by_baseline if len(hits))
        level[r] = np.float32(highest) / np.float32(n)
    return level


def _hits_by_chance(hits: np.ndarray, n: int, min_rate: float, tail: float) -> float:
    """Return the number of hits in n pairs that one of these heads exceeds with a probability of at most `tail`."""
    mean = hits.mean() / n
    highest = float(binom.isf(tail, n, max(mean, min_rate)))
    if highest < hits.max() < n and mean < 1:
        correlation = (hits.var() / (n * mean * (1 - mean)) - 1) / (n - 1)  # between the hits of two pairs
        if 0 < correlation < 1:
            shape = np.array([mean, 1 - mean]) * (1 - correlation) / correlation
            highest = float(betabinom.isf(tail, n, *shape))
    return max(highest, float(hits.max()))
