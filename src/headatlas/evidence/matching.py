"""Random heads that are like the tested ones: from the same layers, key-value groups alike, of similar influence.

Removal hurts more in some layers, heads of one key-value group share their values, and some heads matter to any text.
A map that only finds such heads must not pass, so a draw has, in every layer, as many heads as the tested set, spread
over key-value groups in the same way, and as many of each tercile of *generic influence* (what a head does to plain
text). Where a layer has too few such sets, influence is dropped first, then the groups.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb, prod

import numpy as np

from headatlas.evidence.control import Heads

MAX_LISTED = 5_000  # sets of a layer that are listed; of more, as many are drawn
MIN_SETS = 400  # different draws that there should be: fewer say little about p near 0.05
LEVELS = ("layer, key-value group and influence", "layer and key-value group", "layer")

Set = tuple[int, ...]
"""Heads of one layer."""


@dataclass(frozen=True)
class MatchedSets:
    """What random heads are drawn from for one tested set.

    by_layer: the sets of heads to choose from. level: by layer, what they share with the tested heads (LEVELS).
    """

    by_layer: dict[int, list[Set]]
    level: dict[int, int]

    @property
    def n_sets(self) -> float:
        """Number of different draws."""
        # as floats: of a hundred layers, the product is larger than the largest float, and then infinite
        return prod(float(len(sets)) for sets in self.by_layer.values())

    def draw(self, generator: np.random.Generator) -> Heads:
        """Draw heads like the tested ones, which may be drawn themselves."""
        drawn = ((layer, sets[generator.integers(len(sets))]) for layer, sets in sorted(self.by_layer.items()))
        return [(layer, head) for layer, heads in drawn for head in heads]

    @property
    def text(self) -> str:
        """Say what draws share with the tested heads, and in how many layers they share less."""
        relaxed = Counter(level for level in self.level.values() if level)
        layers = len(self.level)
        exceptions = ", ".join(f"in {relaxed[level]} of {layers} layers by {LEVELS[level]}" for level in relaxed)
        return f"matched by {LEVELS[0]}" + f"; {exceptions} only" * bool(relaxed)


def match(
    heads: Heads, influence: np.ndarray, n_kv_heads: int, generator: np.random.Generator, min_sets: int = MIN_SETS
) -> MatchedSets:
    """Find the sets that random heads are drawn from.

    Args:
        heads: the tested heads.
        influence: generic influence of every head [layer, head]; NaN marks a missing head.
        n_kv_heads: number of key-value heads in a layer.
        generator: draws sets where a layer has too many to list.
        min_sets: number of different draws below which less is matched.
    """
    in_layer: dict[int, list[int]] = {}
    for layer, head in heads:
        in_layer.setdefault(layer, []).append(head)
    choices = {
        layer: _like(tuple(sorted(members)), influence[layer], n_kv_heads, generator)
        for layer, members in in_layer.items()
    }
    level = dict.fromkeys(choices, 0)

    def n_sets() -> float:
        return prod(float(len(choices[layer][level[layer]])) for layer in choices)

    while n_sets() < min_sets and any(step < len(LEVELS) - 1 for step in level.values()):
        open_layers = [layer for layer, step in level.items() if step < len(LEVELS) - 1]
        fewest = min(open_layers, key=lambda layer: len(choices[layer][level[layer]]))
        level[fewest] += 1
    return MatchedSets({layer: choices[layer][level[layer]] for layer in choices}, level)


def _like(members: Set, influence: np.ndarray, n_kv_heads: int, generator: np.random.Generator) -> list[list[Set]]:
    """Return the sets of one layer that are like the members, by level; the members are in each."""
    n_heads = len(influence)
    per_group = n_heads // n_kv_heads
    tercile = terciles(influence)
    there = np.flatnonzero(np.isfinite(influence)).tolist()

    def spread(heads: Iterable[int]) -> list[int]:
        return sorted(Counter(head // per_group for head in heads).values())

    def influences(heads: Iterable[int]) -> Counter[int]:
        return Counter(int(tercile[head]) for head in heads)

    every = _sets(there, len(members), generator)
    # in order, so that the place of the members, and whether a seed draws them, differs between tests
    by_layer = sorted({members, *every})
    by_group = [heads for heads in by_layer if spread(heads) == spread(members)]
    by_influence = [heads for heads in by_group if influences(heads) == influences(members)]
    return [by_influence, by_group, by_layer]


def _sets(heads: Sequence[int], n: int, generator: np.random.Generator) -> list[Set]:
    """Return all sets of n heads, or many random ones where there are too many."""
    if comb(len(heads), n) <= MAX_LISTED:
        return list(combinations(heads, n))
    drawn = (generator.choice(heads, n, replace=False) for _ in range(MAX_LISTED))
    return [tuple(sorted(map(int, sample))) for sample in drawn]


def terciles(influence: np.ndarray) -> np.ndarray:
    """Return 0, 1 or 2 for every head of a layer, by the rank of its influence; −1 for a missing head."""
    result = np.full(len(influence), -1)
    there = np.flatnonzero(np.isfinite(influence))
    order = there[np.argsort(influence[there], kind="stable")]
    result[order] = np.arange(len(order)) * 3 // max(1, len(order))
    return result
