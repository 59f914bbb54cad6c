"""Random heads are drawn from the strata of the tested ones, and from wider ones where these are too small."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from headatlas.evidence.matching import LEVELS, MatchedSets, match, terciles

LAYERS, HEADS, GROUPS = 4, 8, 4
SETS = st.sets(st.tuples(st.integers(0, LAYERS - 1), st.integers(0, HEADS - 1)), min_size=1, max_size=12)


def strata(heads, influence: np.ndarray) -> list[dict[int, object]]:
    """Return, by level, what a set has in each layer; of level 0, everything that is matched."""
    layers = {layer: [head for at, head in heads if at == layer] for layer, _ in heads}
    by_layer = {layer: len(members) for layer, members in layers.items()}
    by_group = {
        layer: (by_layer[layer], sorted(Counter(head // (HEADS // GROUPS) for head in members).values()))
        for layer, members in layers.items()
    }
    by_influence = {
        layer: (by_group[layer], sorted(int(terciles(influence[layer])[head]) for head in members))
        for layer, members in layers.items()
    }
    return [by_influence, by_group, by_layer]


@settings(max_examples=60, deadline=None)
@given(heads=SETS, seed=st.integers(0, 50), min_sets=st.sampled_from([1, 30, 400]))
def test_draws_are_in_the_strata_of_the_tested_heads(heads, seed, min_sets) -> None:
    generator = np.random.default_rng(seed)
    influence = generator.random((LAYERS, HEADS))
    matched = match(sorted(heads), influence, GROUPS, generator, min_sets)
    tested = strata(heads, influence)
    for _ in range(10):
        drawn = matched.draw(generator)
        assert len(set(drawn)) == len(drawn) == len(heads)
        found = strata(drawn, influence)
        for layer, level in matched.level.items():
            for wider in range(level, len(LEVELS)):
                assert found[wider][layer] == tested[wider][layer]


@settings(max_examples=60, deadline=None)
@given(heads=SETS, seed=st.integers(0, 50))
def test_the_tested_heads_can_be_drawn_and_nothing_is_dropped_without_need(heads, seed) -> None:
    generator = np.random.default_rng(seed)
    influence = generator.random((LAYERS, HEADS))
    matched = match(sorted(heads), influence, GROUPS, generator)
    for layer, sets in matched.by_layer.items():
        assert tuple(sorted(head for at, head in heads if at == layer)) in sets
        assert len(set(sets)) == len(sets)
    assert matched.n_sets >= 400 or set(matched.level.values()) == {len(LEVELS) - 1}
    strict = match(sorted(heads), influence, GROUPS, generator, min_sets=1)
    assert set(strict.level.values()) == {0}
    assert strict.n_sets <= matched.n_sets
    if strict.n_sets >= 400:
        assert matched.level == strict.level


def test_what_is_matched_less_is_reported() -> None:
    influence = np.arange(8.0)[None]
    matched = match([(0, 0), (0, 1)], influence, 4, np.random.default_rng(0), min_sets=5)
    # one group, both of the lowest tercile: only the heads themselves; one group: 4 sets; any two heads: 28
    assert matched.n_sets == 28
    assert matched.text == "matched by layer, key-value group and influence; in 1 of 1 layers by layer only"
    some = match([(0, 0), (0, 1)], influence, 4, np.random.default_rng(0), min_sets=4)
    assert some.by_layer == {0: [(0, 1), (2, 3), (4, 5), (6, 7)]}
    assert some.text.endswith("; in 1 of 1 layers by layer and key-value group only")
    assert match([(0, 0)], influence, 4, np.random.default_rng(0), 1).text == f"matched by {LEVELS[0]}"


def test_every_set_of_a_stratum_is_drawn_as_often_as_another() -> None:
    influence = np.arange(9.0)[None]
    matched = match([(0, 4)], influence, 9, np.random.default_rng(0), min_sets=1)
    generator = np.random.default_rng(1)
    drawn = Counter(matched.draw(generator)[0][1] for _ in range(3_000))
    assert sorted(drawn) == [3, 4, 5]
    assert max(drawn.values()) < 1.15 * min(drawn.values())


def test_missing_heads_are_not_drawn() -> None:
    influence = np.array([[0.1, np.nan, 0.3, 0.4, np.nan, 0.6]])
    assert terciles(influence[0]).tolist() == [0, -1, 0, 1, -1, 2]
    matched = match([(0, 0)], influence, 2, np.random.default_rng(0))
    assert {head for sets in matched.by_layer[0] for head in [*sets]} == {0, 2, 3, 5}


def test_of_many_heads_some_sets_are_drawn_and_the_tested_one_is_among_them() -> None:
    influence = np.random.default_rng(0).random((1, 64))
    tested = [(0, head) for head in range(10)]
    matched = match(tested, influence, 64, np.random.default_rng(0))
    assert tuple(range(10)) in matched.by_layer[0]
    assert matched.n_sets >= 400


def test_there_may_be_more_sets_than_the_largest_float() -> None:
    every = [(head,) for head in range(5_000)]
    matched = MatchedSets(dict.fromkeys(range(126), every), dict.fromkeys(range(126), 0))
    assert matched.n_sets == np.inf
