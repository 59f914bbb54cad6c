"""The p-values of switching heads off: right where a ranking means nothing."""

from collections import Counter

import numpy as np
import pytest

from headatlas.evidence.removal import draw_like
from headatlas.methods.gate.switching import role_p


def test_random_heads_are_matched_by_layer_and_drawn_from_all() -> None:
    tested = [(0, 1), (0, 2), (3, 0)]
    generator = np.random.default_rng(0)
    drawn = [draw_like(tested, 4, generator) for _ in range(50)]
    assert all(Counter(layer for layer, _ in d) == {0: 2, 3: 1} and len(set(d)) == 3 for d in drawn)
    assert {head for d in drawn for head in d} == {(layer, h) for layer in (0, 3) for h in range(4)}


def test_p_is_uniform_where_the_ranking_means_nothing() -> None:
    """Effects add up, heads are ranked at random, half of some layers are tested.

    To exclude the tested heads from the draws would give 0.3 and more.
    """
    generator = np.random.default_rng(0)
    small = 0
    for _ in range(400):
        worth = generator.normal(size=(4, 8))
        order = [
            (int(a), int(b)) for a, b in zip(*np.unravel_index(generator.permutation(32)[:12], (4, 8)), strict=True)
        ]
        own = sum(worth[h] for h in order)

        def draw(n: int, order=order, worth=worth) -> np.ndarray:
            return np.array([sum(worth[h] for h in draw_like(order, 8, generator)) for _ in range(n)])

        small += role_p("facilitation", own, draw, 20)[1] <= 0.05
    assert 6 <= small <= 36  # 20 expected


@pytest.mark.parametrize(
    ("role", "effect", "random", "expected", "drawn"),
    [
        ("facilitation", -3.0, [-1.0, 0, -4, *[0] * 17], 2 / 21, 20),
        ("interference", 2.0, [1.0, 0, -1, *[0] * 17], 1 / 21, 20),
        ("irrelevance", -0.5, [1.0, -0.1, 2, *[3] * 17], 2 / 21, 20),
        ("facilitation", -3.0, [0.0, -4, -4, -4, -4, 0, -4, *[0] * 13], 5 / 7, 10),  # the fifth is the seventh draw
    ],
)
def test_p_by_hand_and_when_drawing_ends(role, effect, random, expected, drawn) -> None:
    left = list(random)
    effects, p = role_p(role, effect, lambda n: np.array([left.pop(0) for _ in range(n)]), 20)
    assert p == pytest.approx(expected)
    assert effects.tolist() == random[:drawn]
