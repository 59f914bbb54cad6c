"""How high a head scores by chance: what maps must exceed before they say anything."""

import numpy as np
from scipy.stats import betabinom, binom

SURE = 0.05  # how often a map of a model that knows no relation may show a head above chance


def chance_level(baseline: np.ndarray, pairs: np.ndarray, k: np.ndarray, vocabulary: int) -> np.ndarray:
    """The highest score of each relation that chance explains, [relation]: a head is above chance beyond it.

    baseline: scores of models without the relation, [baseline, relation, layer, head]. NaN where there are none.
    A head must score higher than every head of every baseline. It must also hit more pairs than a binomial distribution
    allows, at the baseline's mean rate or that of a random ranking (k / vocabulary), whichever is higher: 5 % over all
    heads and relations together (Bonferroni). Where a baseline itself exceeds that, hits come in clumps (a head that
    writes "he" whatever it reads hits every pair with that target), and a beta-binomial of the same mean and variance
    takes the binomial's place.
    """
    level = np.full(len(pairs), np.nan, dtype=np.float32)
    scored = np.isfinite(baseline)
    if not scored.any():
        return level
    tail = SURE / scored.any(axis=0).sum()
    for r in np.flatnonzero(scored.any(axis=(0, 2, 3))):
        n = int(pairs[r])
        hits = [np.rint(scores[np.isfinite(scores)] * n) for scores in baseline[:, r]]
        highest = max(_most_hits(h, n, min(1.0, k[r] / vocabulary), tail) for h in hits if len(h))
        level[r] = np.float32(highest) / np.float32(n)
    return level


def _most_hits(hits: np.ndarray, n: int, least: float, tail: float) -> float:
    """How many of n pairs one of these heads may hit, so that more has a probability of at most `tail`."""
    most, mean = float(binom.isf(tail, n, max(hits.mean() / n, least))), hits.mean() / n
    if most < hits.max() < n and mean < 1:
        clump = (hits.var() / (n * mean * (1 - mean)) - 1) / (n - 1)  # correlation of two pairs' hits
        if 0 < clump < 1:
            most = float(betabinom.isf(tail, n, *(np.array([mean, 1 - mean]) * (1 - clump) / clump)))
    return max(most, float(hits.max()))
