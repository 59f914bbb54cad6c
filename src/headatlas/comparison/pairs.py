"""How far every two maps rank heads alike: one permutation test for all."""

from itertools import combinations_with_replacement

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from headatlas.evidence.control import TOP_SHARE

ROUNDING = 1e-12
NUMBERS = ("n", "top", "spearman", "p", "shared", "p_shared", "auroc")


def spearman_matrix(maps: np.ndarray) -> np.ndarray:
    """Spearman correlation of every two of maps [map, head]; NaN where one is constant, or too few heads have both."""
    return pd.DataFrame(maps.T).corr("spearman", min_periods=3).to_numpy()


def compare_all_pairs(
    maps: np.ndarray, layer: np.ndarray, top: int | None = None, *, draws: int, seed: int = 0
) -> dict[str, np.ndarray]:
    """How far every two of maps [map, head] agree: matrices [map, map], NaN where one is constant.

    n: how many heads both have, of which `top` (at most half) are their top heads. spearman: of these heads. shared:
    how many top heads are in both; ties at the last place share it. p, p_shared: how often these are as high when the
    heads of one map are shuffled within their layers, so that agreement about layers alone does not count. auroc: of
    the first map as a detector of the second's top heads.

    Args:
        maps: scores, NaN for missing heads.
        layer: layer of every head.
        top: number of top heads; without it, 5 % of the heads.
        draws: how often heads are shuffled; with 0, p is NaN.
        seed: of the shuffling.
    """
    result = {name: np.full((len(maps), len(maps)), np.nan) for name in NUMBERS}
    # Maps that have the same heads are compared together.
    present, kind = np.unique(~np.isnan(maps), axis=0, return_inverse=True)
    groups = [np.flatnonzero(kind.ravel() == i) for i in range(len(present))]
    for i, j in combinations_with_replacement(range(len(groups)), 2):
        both = present[i] & present[j]
        if both.sum() < 3:
            continue
        block = _block(maps[groups[i]][:, both], maps[groups[j]][:, both], layer[both], top, draws, seed)
        for name, (forth, back) in block.items():
            result[name][np.ix_(groups[j], groups[i])] = back
            result[name][np.ix_(groups[i], groups[j])] = forth
    return result


def _block(
    a: np.ndarray, b: np.ndarray, layer: np.ndarray, top: int | None, draws: int, seed: int
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """`compare_all_pairs` of maps a and b [map, head] without NaN: [a, b], and [b, a]."""
    n = a.shape[1]
    size = min(max(1, round(TOP_SHARE * n)) if top is None else top, n // 2)
    ranks = [rankdata(maps, axis=1) for maps in (a, b)]
    constant = [np.ptp(r, axis=1) == 0 for r in ranks]
    u, v = (_standardised(r, flat) for r, flat in zip(ranks, constant, strict=True))
    tops = [np.array([_top(score, size) for score in maps]) for maps in (a, b)]
    spearman, shared = u @ v.T, tops[0] @ tops[1].T
    as_high, as_many = np.zeros(spearman.shape), np.zeros(spearman.shape)
    generator = np.random.default_rng(seed)
    # Heads are in the order of layers, so that sorting a permutation by layer shuffles within layers.
    for _ in range(draws):
        shuffled = np.lexsort((generator.permutation(n), layer))
        as_high += u @ v[:, shuffled].T >= spearman - ROUNDING
        as_many += tops[0] @ tops[1][:, shuffled].T >= shared - ROUNDING
    # Sum over pairs of a top head and another head of whether the first ranks higher; a tie counts half.
    detects = [
        (t @ (r - 0.5).T - size**2 / 2) / (size * (n - size)) for r, t in zip(ranks, reversed(tops), strict=True)
    ]
    unknown = np.where(constant[0][:, None] | constant[1], np.nan, 0.0)
    unknown_p = unknown if draws else np.full(unknown.shape, np.nan)
    both_ways = {
        "n": np.full(spearman.shape, float(n)),
        "top": np.full(spearman.shape, float(size)),
        "spearman": spearman + unknown,
        "p": (1 + as_high) / (1 + draws) + unknown_p,
        "shared": shared + unknown,
        "p_shared": (1 + as_many) / (1 + draws) + unknown_p,
    }
    auroc = detects[0].T + unknown, detects[1].T + unknown.T
    return {name: (values, values.T) for name, values in both_ways.items()} | {"auroc": auroc}


def _standardised(ranks: np.ndarray, constant: np.ndarray) -> np.ndarray:
    """Ranks [map, head] such that products of two maps are their correlation; 0 for constant ones."""
    centred = ranks - ranks.mean(1, keepdims=True)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    return np.where(constant[:, None], 0.0, centred / np.where(constant[:, None], 1.0, length))


def _top(score: np.ndarray, size: int) -> np.ndarray:
    """How far each head belongs to the top `size`: 1 above the last place's score, ties at it share the rest."""
    last = np.sort(score)[-size]
    above, tied = score > last, score == last
    return above + tied * (size - above.sum()) / tied.sum()
