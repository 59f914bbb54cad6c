"""Compare every two maps by how they rank heads, with one permutation test for all pairs."""

from itertools import combinations_with_replacement

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from headatlas.evidence.reliability import top_size, top_weights

# A shuffled correlation that is lower by no more than this counts as equal: sums are rounded.
ROUNDING_ERROR = 1e-12
STATISTICS = ("n", "top", "spearman", "p", "shared", "p_shared", "auroc")


def spearman_matrix(maps: np.ndarray) -> np.ndarray:
    """Return the Spearman correlations [map, map] of maps [map, head].

    NaN if a map is constant, or if two maps have fewer than three heads in common.
    """
    return pd.DataFrame(maps.T).corr("spearman", min_periods=3).to_numpy()


def compare_all_pairs(
    maps: np.ndarray, layer: np.ndarray, top: int | None = None, *, draws: int, seed: int = 0
) -> dict[str, np.ndarray]:
    """Compare every two of several maps.

    Args:
        maps: scores [map, head], NaN for missing heads.
        layer: layer of every head, in increasing order.
        top: number of top heads, at most half of the heads (default: 5 %).
        draws: number of shuffles; with 0, p is NaN.
        seed: random seed of the shuffles.

    Returns:
        Matrices [map, map], NaN if a map is constant. `n`: heads that both maps have. `top`: number of top heads.
        `spearman`: correlation over the n heads. `shared`: top heads that are in both; ties at the last place share it.
        `p` and `p_shared`: how often `spearman` and `shared` are at least as high when the heads of one map are
        shuffled within their layers, so that agreement about layers alone does not count. `auroc`: the first map as a
        detector of the second's top heads.
    """
    result = {name: np.full((len(maps), len(maps)), np.nan) for name in STATISTICS}
    # Maps that have the same heads are compared together.
    present, kind = np.unique(~np.isnan(maps), axis=0, return_inverse=True)
    groups = [np.flatnonzero(kind.ravel() == i) for i in range(len(present))]
    for i, j in combinations_with_replacement(range(len(groups)), 2):
        both = present[i] & present[j]
        if both.sum() < 3:
            continue
        block = _compare_block(maps[groups[i]][:, both], maps[groups[j]][:, both], layer[both], top, draws, seed)
        for name, (forward, backward) in block.items():
            result[name][np.ix_(groups[j], groups[i])] = backward
            result[name][np.ix_(groups[i], groups[j])] = forward
    return result


def _compare_block(
    a: np.ndarray, b: np.ndarray, layer: np.ndarray, top: int | None, draws: int, seed: int
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Compare maps a with maps b [map, head], both without NaN. Return matrices [a, b] and [b, a] by name."""
    n = a.shape[1]
    size = top_size(n) if top is None else min(top, n // 2)
    ranks = [rankdata(maps, axis=1) for maps in (a, b)]
    constant = [np.ptp(r, axis=1) == 0 for r in ranks]
    u, v = (_standardise(r, flat) for r, flat in zip(ranks, constant, strict=True))
    tops = [top_weights(maps, size) for maps in (a, b)]
    spearman = u @ v.T
    shared = tops[0] @ tops[1].T
    count_as_high = np.zeros(spearman.shape)
    count_as_many = np.zeros(spearman.shape)
    generator = np.random.default_rng(seed)
    # Heads are in the order of layers, so that sorting a permutation by layer shuffles within layers.
    for _ in range(draws):
        shuffled = np.lexsort((generator.permutation(n), layer))
        count_as_high += u @ v[:, shuffled].T >= spearman - ROUNDING_ERROR
        count_as_many += tops[0] @ tops[1][:, shuffled].T >= shared - ROUNDING_ERROR
    # Share of pairs of a top head and another head in which the top head ranks higher; a tie counts half.
    aurocs = [(t @ (r - 0.5).T - size**2 / 2) / (size * (n - size)) for r, t in zip(ranks, reversed(tops), strict=True)]
    # Added to the results: NaN for pairs with a constant map.
    mask = np.where(constant[0][:, None] | constant[1], np.nan, 0.0)
    p_mask = mask if draws else np.full(mask.shape, np.nan)
    symmetric = {
        "n": np.full(spearman.shape, float(n)),
        "top": np.full(spearman.shape, float(size)),
        "spearman": spearman + mask,
        "p": (1 + count_as_high) / (1 + draws) + p_mask,
        "shared": shared + mask,
        "p_shared": (1 + count_as_many) / (1 + draws) + p_mask,
    }
    auroc = (aurocs[0].T + mask, aurocs[1].T + mask.T)
    return {name: (values, values.T) for name, values in symmetric.items()} | {"auroc": auroc}


def _standardise(ranks: np.ndarray, constant: np.ndarray) -> np.ndarray:
    """Standardise ranks [map, head], so that the product of two maps is their correlation; constant maps become 0."""
    centred = ranks - ranks.mean(1, keepdims=True)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    return np.where(constant[:, None], 0.0, centred / np.where(constant[:, None], 1.0, length))
