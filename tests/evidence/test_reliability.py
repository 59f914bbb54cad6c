"""The reliability of maps: against plain loops, on simulated maps of known reliability, and where little is known."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import spearmanr, t

from headatlas.evidence.reliability import assess_repeats, top_size, top_weights

SHAPE = (30, 9)


def simulated(generator: np.random.Generator, noise: float) -> Callable[[int], np.ndarray]:
    """Return a draw of n repeats of a map: layers differ, a tenth of the heads stand out, and repeats have noise."""
    outstanding = np.where(generator.random(SHAPE) < 0.1, generator.exponential(1, SHAPE), 0)
    truth = outstanding + generator.normal(0, 0.3, (SHAPE[0], 1))
    return lambda n: truth + noise * generator.normal(size=(n, *SHAPE))


def test_against_plain_loops() -> None:
    values = np.random.default_rng(0).normal(size=(7, 4, 5)) + np.arange(5)
    assessed = assess_repeats(values, seed=3)
    flat = values.reshape(7, -1)
    generator = np.random.default_rng(3)
    correlations, overlaps = [], []
    for _ in range(20):
        order = generator.permutation(7)
        first, second = (np.mean([flat[i] for i in half], 0) for half in (order[:3], order[3:6]))
        correlations.append(spearmanr(first, second).statistic)
        # 5 % of 20 heads is one
        overlaps.append(first.argmax() == second.argmax())
    r = np.mean(correlations)
    assert assessed.repeats == 7
    assert assessed.reliability == pytest.approx(r)
    assert assessed.top_overlap == pytest.approx(np.mean(overlaps))
    # three repeats in a half, seven in the map
    assert assessed.whole_reliability == pytest.approx(7 / 3 * r / (1 + 4 / 3 * r))
    np.testing.assert_allclose(assessed.se, np.std(values, 0, ddof=1) / 7**0.5)
    counts = generator.multinomial(7, [1 / 7] * 7, size=200)
    best = [np.argmax(sum(count * repeat for count, repeat in zip(row, flat, strict=True))) for row in counts]
    np.testing.assert_allclose(assessed.inclusion.ravel(), np.bincount(best, minlength=20) / 200)
    p = np.empty((4, 5))
    for layer in range(4):
        for head in range(5):
            others = [other for other in np.argsort(values[:, layer].mean(0)) if other != head][1:-1]
            rest = values[:, layer, others]
            difference = values[:, layer, head] - rest.mean(1)
            variance = max(difference.var(ddof=1), rest.var(0, ddof=1).mean())
            p[layer, head] = 2 * t.sf(abs(difference.mean()) / (variance / 7) ** 0.5, 6)
    # Benjamini and Hochberg: the largest p that is below its share of 5 %
    ranked = np.sort(p.ravel())
    cut = max((q for i, q in enumerate(ranked, 1) if q < 0.05 * i / 20), default=0)
    np.testing.assert_array_equal(assessed.resolved, p <= cut)
    assert 0 < assessed.resolved.sum() < 20


@pytest.mark.parametrize("noise", [0.5, 1.5, 3.0])
def test_a_known_reliability_is_recovered(noise) -> None:
    """That of halves, and of whole maps: the correlation with other repeats of the same map."""
    generator = np.random.default_rng(1)
    found: list[tuple[float, float]] = []
    true: list[tuple[float, float]] = []
    for _ in range(40):
        draw = simulated(generator, noise)
        assessed = assess_repeats(draw(24))
        found.append((assessed.reliability, assessed.whole_reliability))
        means = [[draw(n).mean(0).ravel() for _ in range(2)] for n in (12, 24)]
        true.append(tuple(spearmanr(*pair).statistic for pair in means))
    np.testing.assert_allclose(np.mean(found, 0), np.mean(true, 0), atol=0.04)


@pytest.mark.parametrize("n", [8, 32, 128])
def test_resolved_heads_replicate(n) -> None:
    """In other repeats, at least 90 % of them are on the same side of the rest of their layer."""
    generator = np.random.default_rng(2)
    same_side: list[bool] = []
    for _ in range(10):
        draw = simulated(generator, 1.0)
        first, second = draw(n), draw(n)
        beyond = [v.mean(0) - np.median(v.mean(0), axis=1, keepdims=True) for v in (first, second)]
        same_side += (np.sign(beyond[0]) == np.sign(beyond[1]))[assess_repeats(first).resolved].tolist()
    assert len(same_side) > 20
    assert np.mean(same_side) >= 0.9


@pytest.mark.parametrize("hits", [False, True])
def test_nothing_is_resolved_where_heads_are_alike(hits) -> None:
    """In at most 5 % of maps whose heads are all the same, of numbers and of rare hits, is any head resolved."""
    generator = np.random.default_rng(3)
    maps = [generator.random((64, *SHAPE)) < 0.02 if hits else generator.normal(size=(64, *SHAPE)) for _ in range(40)]
    assert sum(assess_repeats(v).resolved.any() for v in maps) <= 2


def test_one_outstanding_head_leaves_the_others_of_its_layer_alone() -> None:
    values = np.random.default_rng(4).normal(size=(40, 3, 8))
    values[:, 1, 2] += 10
    resolved = assess_repeats(values).resolved
    assert np.argwhere(resolved).tolist() == [[1, 2]]


def test_missing_heads_and_layers() -> None:
    values = np.random.default_rng(5).normal(size=(10, 4, 5)) + 3 * np.arange(5)
    with_gaps = np.insert(values, 1, np.nan, axis=1)
    assessed, whole = assess_repeats(with_gaps), assess_repeats(values)
    for name in ("reliability", "whole_reliability", "top_overlap"):
        assert getattr(assessed, name) == pytest.approx(getattr(whole, name))
    for name in ("se", "inclusion"):
        expected = np.insert(getattr(whole, name), 1, np.nan, axis=0)
        np.testing.assert_allclose(getattr(assessed, name), expected)
    np.testing.assert_array_equal(assessed.resolved, np.insert(whole.resolved, 1, False, axis=0))
    # repeats without any number, as of a subject with fewer examples than others, do not count
    padded = assess_repeats(np.concatenate([values, np.full((3, 4, 5), np.nan)]))
    assert (padded.repeats, padded.reliability) == (10, whole.reliability)


@pytest.mark.parametrize("n", [0, 1])
def test_without_repeats_nothing_is_known(n) -> None:
    assessed = assess_repeats(np.random.default_rng(0).normal(size=(n, 3, 4)))
    assert np.isnan([assessed.reliability, assessed.whole_reliability, assessed.top_overlap]).all()
    assert np.isnan(assessed.se).all()
    assert np.isnan(assessed.inclusion).all()
    assert not assessed.resolved.any()


def test_two_repeats_are_each_other_s_halves() -> None:
    values = np.random.default_rng(6).normal(size=(2, 3, 4)) + np.arange(4)
    assessed = assess_repeats(values)
    assert assessed.reliability == pytest.approx(spearmanr(*values.reshape(2, -1)).statistic)
    # too few to tell a head from the rest of its layer
    assert not assessed.resolved.any()


@pytest.mark.parametrize("values", [np.ones((8, 3, 4)), np.full((8, 3, 4), np.nan), np.ones((8, 1, 1))])
def test_a_constant_map_has_no_reliability(values) -> None:
    assessed = assess_repeats(values)
    assert np.isnan(assessed.reliability)
    assert not assessed.resolved.any()


def test_a_map_of_a_single_repeat_has_a_reliability_near_0() -> None:
    """One example made it: one of two halves is always constant."""
    values = np.zeros((8, 3, 4))
    values[2, 1] = 1, 2, 3, 4
    assert assess_repeats(values).reliability == 0


def test_top_heads() -> None:
    """Heads that tie for the last places share them."""
    weights = top_weights(np.array([[3.0, 1, 1, 1, 0], [5, 4, 3, 2, 1]]), 2)
    third = float(Fraction(1, 3))
    np.testing.assert_allclose(weights, [[1, third, third, third, 0], [1, 1, 0, 0, 0]])
    assert [top_size(n) for n in (2, 9, 270, 336)] == [1, 1, 14, 17]
