"""The one removal experiment: it removes what it says, draws fairly, and its p-values are true."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headatlas.evidence.removal import (
    draw_like,
    gates_without,
    measured_once,
    p_corrected,
    p_sequential,
    p_value,
    remove,
    top_heads,
)
from tests.evidence.replayed import p_of

SETS = st.sets(st.tuples(st.integers(0, 5), st.integers(0, 7)), max_size=20)


@given(heads=SETS, seed=st.integers(0, 100))
def test_random_heads_match_layer_by_layer(heads, seed) -> None:
    drawn = draw_like(sorted(heads), 8, np.random.default_rng(seed))
    assert len(set(drawn)) == len(drawn) == len(heads)
    own, theirs = ([sum(at == layer for at, _ in sets) for layer in range(6)] for sets in (heads, drawn))
    assert own == theirs
    assert all(0 <= head < 8 for _, head in drawn)


def test_every_head_of_a_layer_is_drawn_as_often_as_another() -> None:
    """The tested ones, too: only so is p uniform for a map that means nothing."""
    generator = np.random.default_rng(0)
    counts = np.zeros(4)
    for _ in range(2000):
        for _, head in draw_like([(1, 0), (1, 1)], 4, generator):
            counts[head] += 1
    np.testing.assert_allclose(counts / 2000, 0.5, atol=0.05)


def test_the_best_heads_come_first_and_missing_ones_last() -> None:
    score = np.array([[0.0, 0.5], [np.nan, 0.9]])
    assert top_heads(score, 3) == [(1, 1), (0, 1), (0, 0)]
    assert top_heads(score, 9)[-1] == (1, 0)


@given(heads=SETS)
def test_gates_are_closed_for_the_removed_heads_alone(heads) -> None:
    gate, scaled = gates_without([sorted(heads)], (6, 8))[0], gates_without([sorted(heads)], (6, 8), 0.5)[0]
    assert {tuple(at) for at in (gate == 0).nonzero().tolist()} == heads
    torch.testing.assert_close(scaled, (1 + gate) / 2)


WORTH = np.random.default_rng(1).random((4, 6))


def quality(sets) -> np.ndarray:
    """Each head is worth something; two measures, the second of which is the opposite of the first."""
    first = np.array([WORTH.sum() - sum(WORTH[head] for head in heads) for heads in sets])
    return np.stack([first, -first], axis=1)


def test_removal_by_hand() -> None:
    sets = [top_heads(WORTH, n) for n in (1, 3)]
    result = remove(quality, sets, 6, draws=19, generator=np.random.default_rng(0))
    assert result.baseline.shape == (2,)
    assert result.effect.shape == (2, 2)
    assert result.random_effect.shape == (2, 19, 2)
    np.testing.assert_allclose(result.effect[:, 0], [-sum(WORTH[head] for head in heads) for heads in sets])
    np.testing.assert_allclose(result.effect[:, 1], -result.effect[:, 0])
    generator = np.random.default_rng(0)
    for i, heads in enumerate(sets):
        drawn = [draw_like(heads, 6, generator) for _ in range(19)]
        by_hand = [-sum(WORTH[head] for head in sample) for sample in drawn]
        np.testing.assert_allclose(result.random_effect[i, :, 0], by_hand)
        assert result.p[i] == p_of(result.effect[i, 0], np.array(by_hand))
    alone = remove(lambda s: quality(s)[:, 0], sets, 6, draws=19, generator=np.random.default_rng(0))
    np.testing.assert_array_equal(alone.effect, result.effect[:, 0])
    np.testing.assert_array_equal(alone.p, result.p)


def test_what_was_not_measured_has_no_p() -> None:
    assert np.isnan(p_value(np.nan, np.zeros(9)))
    assert np.isnan(p_value(-1.0, np.array([0.0, np.nan])))
    assert p_value(-1.0, np.array([-2.0, -1.0, 0.0])) == 3 / 4


def test_drawing_goes_on_for_those_that_few_draws_equal() -> None:
    best, worst = top_heads(WORTH, 3), [(1, int(WORTH[1].argmin()))]
    rounds = []

    def counted(sets) -> np.ndarray:
        rounds.append(len(sets))
        return quality(sets)

    result = remove(counted, [best, worst], 6, draws=59, generator=np.random.default_rng(0))
    assert len(rounds) == 3  # the first of them decides about the worst
    drawn = np.isfinite(result.random_effect).sum(1)
    np.testing.assert_array_equal(drawn, [[59, 59], [20, 20]])
    assert result.p[0] == (1 + (result.random_effect[0, :, 0] <= result.effect[0, 0]).sum()) / 60 < 0.1
    assert result.p[1] >= 0.5
    alone = remove(lambda s: quality(s)[:, 0], [worst], 6, draws=59, generator=np.random.default_rng(0), at_once=10)
    assert np.isfinite(alone.random_effect).sum() == 10
    none = remove(quality, [], 6, draws=59, generator=np.random.default_rng(0))
    assert none.effect.shape == (0, 2)
    assert none.p.shape == (0,)


def test_heads_that_are_drawn_again_have_the_same_value() -> None:
    """Though a model's answer is rounded otherwise in every batch: a draw of the tested head counts as much."""
    noise = np.random.default_rng(2)

    def rounded(sets) -> np.ndarray:
        return quality(sets)[:, 0] + 1e-9 * noise.random(len(sets))

    best = [(1, int(WORTH[1].argmax()))]
    result = remove(rounded, [best], 6, draws=199, generator=np.random.default_rng(0))
    drawn = result.random_effect[0][np.isfinite(result.random_effect[0])]
    assert len(set(drawn)) <= 6  # heads of that layer
    assert (drawn == result.effect[0]).any()
    assert 1 / 12 < result.p[0] < 1 / 3  # about one of six draws is that head
    again = measured_once(rounded)
    assert again([[(0, 1), (2, 3)]]) == again([[(2, 3), (0, 1)]])


@pytest.mark.parametrize("draws", [19, 59])
def test_p_is_uniform_for_what_means_nothing(draws) -> None:
    generator = np.random.default_rng(0)
    p = np.array([p_sequential(generator.normal(), lambda n: generator.normal(size=n), draws)[1] for _ in range(2000)])
    for level in (0.05, 0.1, 0.25, 0.5):
        assert (p <= level).mean() <= level + 0.02


def test_p_is_corrected_for_the_number_of_tests() -> None:
    np.testing.assert_allclose(p_corrected(np.array([0.01, 0.02, 0.9])), [0.03, 0.03, 0.9])
    np.testing.assert_allclose(p_corrected(np.array([0.01, np.nan, 0.9])), [0.02, np.nan, 0.9])
    assert len(p_corrected(np.empty(0))) == 0
    assert np.isnan(p_corrected(np.full(2, np.nan))).all()
