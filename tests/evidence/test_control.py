"""The one experiment: it draws fairly, measures what it says, and its p-values are true."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headatlas.evidence.control import (
    answers_without,
    cached_by_heads,
    compare_with_random,
    control_rounds,
    correct_p,
    gates_without,
    same_layers,
    top_heads,
)
from headatlas.models.lm import LM
from headatlas.models.tokens import TokenExample
from tests.evidence.replayed import p_of
from tests.models.tiny import TINY, build, texts, tokenizer

SETS = st.sets(st.tuples(st.integers(0, 5), st.integers(0, 7)), max_size=20)


@given(heads=SETS, seed=st.integers(0, 100))
def test_random_heads_match_layer_by_layer(heads, seed) -> None:
    drawn = same_layers(8, np.random.default_rng(seed))(sorted(heads))
    assert len(set(drawn)) == len(drawn) == len(heads)
    expected, counts = ([sum(at == layer for at, _ in sets) for layer in range(6)] for sets in (heads, drawn))
    assert counts == expected
    assert all(0 <= head < 8 for _, head in drawn)


def test_every_head_of_a_layer_is_drawn_as_often_as_another() -> None:
    """The tested ones, too: only so is p uniform for a map that means nothing."""
    draw = same_layers(4, np.random.default_rng(0))
    counts = np.zeros(4)
    for _ in range(2000):
        for _, head in draw([(1, 0), (1, 1)]):
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


def removed(value, sets, draws=59, **options):
    draw = same_layers(6, np.random.default_rng(0))
    return compare_with_random(cached_by_heads(value), sets, draw, draws=draws, reference=[], **options)


def test_removal_by_hand() -> None:
    sets = [top_heads(WORTH, n) for n in (1, 3)]
    result = removed(quality, sets, 19)
    assert result.reference.shape == (2,)
    assert result.effect.shape == (2, 2)
    assert result.random_effect.shape == (2, 19, 2)
    np.testing.assert_allclose(result.effect[:, 0], [-sum(WORTH[head] for head in heads) for heads in sets])
    np.testing.assert_allclose(result.effect[:, 1], -result.effect[:, 0])
    draw = same_layers(6, np.random.default_rng(0))
    for i, heads in enumerate(sets):
        drawn = [draw(heads) for _ in range(19)]
        by_hand = [-sum(WORTH[head] for head in sample) for sample in drawn]
        np.testing.assert_allclose(result.random_effect[i, :, 0], by_hand)
        assert result.p[i] == p_of(result.effect[i, 0], np.array(by_hand))
    alone = removed(lambda s: quality(s)[:, 0], sets, 19)
    np.testing.assert_array_equal(alone.effect, result.effect[:, 0])
    np.testing.assert_array_equal(alone.p, result.p)


def listed(effect: float, random: list[float], **options):
    """A control of one set whose value is `effect`, against random sets with these values."""
    left = iter(random)
    draws = {"draws": len(random), "draws_per_round": 10} | options
    return compare_with_random(np.array, [effect], lambda _: next(left), **draws)


@pytest.mark.parametrize(
    ("direction", "effect", "random", "expected", "drawn"),
    [
        ("lower", -3.0, [-1.0, 0, -4, *[0] * 17], 2 / 21, 20),
        ("higher", 2.0, [1.0, 0, -1, *[0] * 17], 1 / 21, 20),
        ("nearer zero", -0.5, [1.0, -0.1, 2, *[3] * 17], 2 / 21, 20),
        ("lower", -3.0, [0.0, -4, -4, -4, -4, 0, -4, *[0] * 13], 5 / 7, 10),  # the fifth is the seventh draw
    ],
)
def test_p_by_hand_and_when_drawing_ends(direction, effect, random, expected, drawn) -> None:
    control = listed(effect, random, direction=direction)
    assert control.p[0] == pytest.approx(expected)
    assert control.n_drawn == drawn
    assert control.random_effect[0, :drawn].tolist() == random[:drawn]
    assert np.isnan(control.random_effect[0, drawn:]).all()


def test_all_draws_are_made_where_they_are_wanted() -> None:
    control = listed(-3.0, [0.0, *[-4.0] * 19], stop_early=False)
    assert control.n_drawn == 20
    assert control.p[0] == 20 / 21
    assert listed(-3.0, []).p[0] == 1


@pytest.mark.parametrize("direction", ["lower", "higher", "nearer zero"])
def test_what_was_not_measured_is_never_significant(direction) -> None:
    assert listed(np.nan, [0.0] * 19, direction=direction).p[0] == 1
    some = {"lower": -1.0, "higher": 1.0, "nearer zero": 0.0}[direction]
    assert listed(some, [np.nan, np.nan, 5 * (0.5 - some)], direction=direction, draws_per_round=20).p[0] == 3 / 4


def test_rounds_show_how_far_it_is() -> None:
    left = iter([0.0] * 25)
    rounds = list(control_rounds(np.array, [-1.0], lambda _: next(left), draws=25, draws_per_round=10))
    assert [int(r.n_drawn[0]) for r in rounds] == [10, 20, 25]
    assert [r.p[0] for r in rounds] == [1 / 11, 1 / 21, 1 / 26]


def test_drawing_continues_only_for_undecided_sets() -> None:
    best, worst = top_heads(WORTH, 3), [(1, int(WORTH[1].argmin()))]
    rounds = []

    def counted(sets) -> np.ndarray:
        rounds.append(len(sets))
        return quality(sets)

    result = removed(counted, [best, worst])
    assert len(rounds) == 3  # the first of them decides about the worst
    drawn = np.isfinite(result.random_effect).sum(1)
    np.testing.assert_array_equal(drawn, [[59, 59], [20, 20]])
    assert result.p[0] == (1 + (result.random_effect[0, :, 0] <= result.effect[0, 0]).sum()) / 60 < 0.1
    assert result.p[1] >= 0.5
    alone = removed(lambda s: quality(s)[:, 0], [worst], draws_per_round=10)
    assert np.isfinite(alone.random_effect).sum() == 10
    none = removed(quality, [])
    assert none.effect.shape == (0, 2)
    assert none.p.shape == (0,)


def test_heads_that_are_drawn_again_have_the_same_value() -> None:
    """Though a model's answer is rounded differently in every batch: a draw of the tested head counts as much."""
    noise = np.random.default_rng(2)

    def rounded(sets) -> np.ndarray:
        return quality(sets)[:, 0] + 1e-9 * noise.random(len(sets))

    best = [(1, int(WORTH[1].argmax()))]
    result = removed(rounded, [best], 199)
    drawn = result.random_effect[0][np.isfinite(result.random_effect[0])]
    assert len(set(drawn)) <= 6  # heads of that layer
    assert (drawn == result.effect[0]).any()
    assert 1 / 12 < result.p[0] < 1 / 3  # about one of six draws is that head
    again = cached_by_heads(rounded)
    assert again([[(0, 1), (2, 3)]]) == again([[(2, 3), (0, 1)]])


def test_p_is_uniform_where_the_ranking_means_nothing() -> None:
    """Effects add up, heads are ranked at random, half of some layers are tested.

    To exclude the tested heads from the draws would give 0.3 and more.
    """
    generator = np.random.default_rng(0)
    small = 0
    for _ in range(400):
        worth = generator.normal(size=(4, 8))
        ranked = top_heads(generator.random((4, 8)), 12)

        def value(sets, worth=worth) -> np.ndarray:
            return np.array([sum(worth[head] for head in sorted(heads)) for heads in sets])

        control = compare_with_random(value, [ranked], same_layers(8, generator), draws=20, draws_per_round=10)
        small += control.p[0] <= 0.05
    assert 6 <= small <= 36  # 20 expected


@pytest.mark.parametrize("draws", [19, 59])
def test_p_is_uniform_for_what_means_nothing(draws) -> None:
    generator = np.random.default_rng(0)
    p = []
    for _ in range(2000):
        control = compare_with_random(np.array, [generator.normal()], lambda _: generator.normal(), draws=draws)
        p.append(control.p[0])
    for level in (0.05, 0.1, 0.25, 0.5):
        assert np.mean(np.array(p) <= level) <= level + 0.02


def test_p_is_corrected_for_the_number_of_tests() -> None:
    np.testing.assert_allclose(correct_p(np.array([0.01, 0.02, 0.9])), [0.03, 0.03, 0.9])
    np.testing.assert_allclose(correct_p(np.array([0.01, np.nan, 0.9])), [0.02, np.nan, 0.9])
    assert len(correct_p(np.empty(0))) == 0
    assert np.isnan(correct_p(np.full(2, np.nan))).all()


@pytest.mark.parametrize(
    "family", ["llama", "gpt2", "gemma2", "bloom", "falcon-rw", "mpt", "opt", "qwen3_next", "deepseek_v3"]
)
def test_answers_equal_one_prompt_at_a_time(family) -> None:
    tiny = next(t for t in TINY if t.id == family)
    lm = LM(build(tiny), tokenizer(), family)
    last = max(i for i, site in enumerate(lm.anatomy.sites) if site)
    prompts = zip(texts((4, 7, 1, 5)), (9, 12, 30, 8), strict=True)
    questions = [TokenExample(tuple(prompt), (target,)) for prompt, target in prompts]
    sets = [[], [(last, 1)], [(last, 1), (last, 5)]]
    measured = answers_without(lm, questions, sets)
    for removed, (log_p, accuracy) in zip(sets, measured, strict=True):
        right, total = [], []
        for question in questions:
            with lm.patched(removed, 0.0, positions=[len(question.prompt) - 1]):
                logits = lm.model(**lm.batch([list(question.prompt)])).logits[0, -1].float()
            right.append(int(logits.argmax()) == question.target[0])
            total.append(logits.log_softmax(-1)[question.target[0]].item())
        assert accuracy == pytest.approx(np.mean(right))
        assert log_p == pytest.approx(np.mean(total), abs=1e-5)
