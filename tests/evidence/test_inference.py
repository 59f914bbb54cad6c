"""Intervals over prompts cover the true mean as often as they say, and say how large an effect would have been seen."""

import numpy as np
import pytest

from headatlas.evidence.inference import accuracy_low, detectable, difference_interval, interval, standard_error

SIMULATIONS = 1_000


def prompts(generator: np.random.Generator, n_clusters: int, n: int, skewed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Draw n prompts in clusters (as many as prompts: one each), and their clusters; the true mean is 0."""
    cluster = np.arange(n) if n_clusters == n else generator.permutation(np.arange(n) % n_clusters)
    shared = generator.normal(size=n_clusters)[cluster]
    values = 0.5 * (shared if n_clusters == n else np.sqrt(0.5) * (generator.normal(size=n) + shared))
    return (np.exp(0.125) - np.exp(values) if skewed else values), cluster


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize(("n_clusters", "n"), [(48, 48), (40, 120)])
def test_intervals_cover_the_true_mean(skewed, n_clusters, n) -> None:
    """Skewed is log-normal with a skewness of 1.8; with 3.7 the interval of 48 prompts covers 92 %."""
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(SIMULATIONS):
        low, high = interval(*prompts(generator, n_clusters, n, skewed))
        covered += low <= 0 <= high
    assert 0.93 <= covered / SIMULATIONS <= 0.97


def test_intervals_ignore_no_cluster() -> None:
    """Prompts that are copies of each other say no more than one of them."""
    values = np.repeat(np.random.default_rng(0).normal(size=20), 6)
    cluster = np.repeat(np.arange(20), 6)
    low, high = interval(values, cluster)
    alone_low, alone_high = interval(values[::6], np.arange(20))
    np.testing.assert_allclose([low, high], [alone_low, alone_high], atol=1e-9)
    naive_low, naive_high = interval(values, np.arange(120))
    assert high - low > 2 * (naive_high - naive_low)
    assert standard_error(values, cluster) == pytest.approx(standard_error(values[::6], np.arange(20)))


def test_an_interval_is_made_of_each_measure_alone() -> None:
    values = np.random.default_rng(1).normal(size=(30, 3))
    low, high = interval(values, range(30))
    alone = [interval(column, range(30)) for column in values.T]
    np.testing.assert_allclose(low, [ends[0] for ends in alone])
    np.testing.assert_allclose(high, [ends[1] for ends in alone])
    assert ((low < values.mean(0)) & (values.mean(0) < high)).all()


def test_intervals_of_what_does_not_vary() -> None:
    low, high = interval(np.full(12, -2.0), range(12))
    assert low == high == -2.0
    low, high = interval(np.array([-2.0]), [0])
    assert low == -np.inf
    assert high == np.inf
    assert detectable(np.array([-2.0]), [0]) == np.inf


def test_few_clusters_are_taken_prompt_by_prompt() -> None:
    values = np.random.default_rng(2).normal(size=24)
    assert interval(values, np.arange(24) % 7) == interval(values, np.arange(24))
    assert interval(values, np.arange(24) % 8) != interval(values, np.arange(24))


def test_the_other_prompts_of_a_difference_vary_too() -> None:
    """With 12 other prompts taken as if they were all, the interval would cover no difference in 60 % of samples."""
    generator = np.random.default_rng(3)
    covered = 0
    for _ in range(SIMULATIONS):
        own = generator.normal(size=48)
        others = generator.normal(size=12)
        low, high = difference_interval(own, range(48), others, range(12))
        covered += low <= 0 <= high
    assert 0.93 <= covered / SIMULATIONS <= 0.975


def test_a_detectable_effect_is_seen_in_80_of_100_samples() -> None:
    generator = np.random.default_rng(4)
    effect = detectable(generator.normal(size=4_000), range(4_000)) * np.sqrt(4_000 / 48)
    seen = 0
    for _ in range(SIMULATIONS):
        low, _ = interval(effect + generator.normal(size=48), range(48))
        seen += low > 0
    assert 0.74 <= seen / SIMULATIONS <= 0.86


def test_the_lower_end_of_accuracy() -> None:
    assert accuracy_low(np.zeros(0)) == 0
    assert accuracy_low(np.ones(48)) == pytest.approx(0.9259, abs=1e-3)
    assert accuracy_low(np.arange(48) < 24) == pytest.approx(0.3639, abs=1e-3)
