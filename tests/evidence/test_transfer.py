"""Outputs of heads moved between prompts: against one pair and one set at a time, and on a model with known heads."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import headatlas as ha
from headatlas.errors import BadArgument
from headatlas.evidence.fresh_prompts import answers_apart
from headatlas.evidence.inference import interval
from headatlas.evidence.matching import match
from headatlas.evidence.transfer import draw_pairs, last_outputs, log_p_moved, transfer_heads
from headatlas.models.lm import LM
from headatlas.models.tokens import TokenExample
from headatlas_bench.ground_truth import planted_folder, read_truth
from headatlas_bench.prompts import planted_task
from tests.models.tiny import TINY, build, texts, tokenizer

PROMPTS = [tuple(ids) for ids in texts((9, 6, 9, 1, 5))]
EXAMPLES = [TokenExample(p, t) for p, t in zip(PROMPTS, [(5,), (7, 3), (5,), (9,), (7, 3)], strict=True)]


@torch.no_grad()
def by_hand(lm, examples, x, y, heads) -> tuple[float, float]:
    """log P of Y's first answer token and of X's after prompt Y, one run at a time."""
    z = lm.head_outputs([examples[x].prompt], "last")[0, 0]
    mask = torch.zeros(lm.n_layers, lm.n_heads, dtype=torch.bool)
    for head in heads:
        mask[head] = True
    with lm.patched(mask, z, positions="last"):
        log_p = lm.model(**lm.batch([examples[y].prompt])).logits[0, -1].log_softmax(-1)
    return log_p[examples[y].target[0]].item(), log_p[examples[x].target[0]].item()


@pytest.mark.parametrize("tokens", [None, 12])
@pytest.mark.parametrize("tiny", TINY, ids=lambda t: t.id)
def test_many_at_once_equal_one_at_a_time(tiny, tokens) -> None:
    lm = LM(build(tiny), tokenizer(), tiny.id)
    with_heads = lm.layers_with_heads
    first, last = with_heads[0], with_heads[-1]
    sets = [[], [(first, 0)], [(first, 1), (last, 5), (last, 0)]]
    pairs = [(0, 1), (3, 1), (2, 0), (1, 3), (1, 4)]
    z = last_outputs(lm, PROMPTS, tokens)
    result = log_p_moved(lm, EXAMPLES, pairs, z, sets, tokens)
    expected = [[by_hand(lm, EXAMPLES, x, y, heads) for x, y in pairs] for heads in sets]
    close = max(tiny.tolerance, 1e-6) * 10  # log P is measured in float32 at least
    np.testing.assert_allclose(result, expected, rtol=close, atol=close)


def test_what_is_said_of_a_set_by_hand() -> None:
    lm = LM(build(TINY[0]), tokenizer(), "llama")
    heads = [(0, 1), (2, 3), (2, 5)]
    influence = np.random.default_rng(0).random((3, 6))
    result = transfer_heads(lm, EXAMPLES, heads, n=4, draws=7, seed=3, influence=influence)
    generator = np.random.default_rng(3)
    other, same = draw_pairs(EXAMPLES, 4, generator)

    def values(pairs, heads) -> np.ndarray:
        return np.array([by_hand(lm, EXAMPLES, x, y, heads) for x, y in pairs])

    def measures(heads) -> tuple[float, float]:
        change = values(other, heads) - values(other, [])
        return (change[:, 1] - change[:, 0]).mean(), (values(same, heads) - values(same, []))[:, 0].mean()

    follows, disturbs = measures(heads)
    assert result.follows == pytest.approx(follows, abs=1e-5)
    assert result.disturbs == pytest.approx(disturbs, abs=1e-5)
    ahead = [values(other, h)[:, 1] > values(other, h)[:, 0] for h in ([], heads)]
    assert result.followed == (ahead[1] & ~ahead[0]).mean()
    matched = match(heads, influence, lm.n_kv_heads, generator)
    drawn = [matched.draw(generator) for _ in range(7)]
    random = np.array([measures(others) for others in drawn])
    np.testing.assert_allclose(result.random_follows, random[:, 0], atol=1e-5)
    np.testing.assert_allclose(result.random_disturbs, random[:, 1], atol=1e-5)
    as_much = np.flatnonzero(random[:, 0] >= follows)
    assert result.p == (5 / (as_much[4] + 1) if len(as_much) >= 5 else (1 + len(as_much)) / 8)
    assert (result.other_pairs, result.same_pairs) == (4, 4)

    def leads(heads) -> np.ndarray:
        change = values(other, heads) - values(other, [])
        return change[:, 1] - change[:, 0]

    beyond = leads(heads) - np.mean([leads(others) for others in drawn[: len(result.random_follows)]], axis=0)
    sources = [x for x, _ in other]
    np.testing.assert_allclose([result.low, result.high], interval(beyond, sources), atol=1e-5)
    assert result.matched == matched.text
    assert result.outcome == "undecided"  # 7 draws never give p below 0.05
    assert "7 draws are too few" in result.reason or "different sets" in result.reason


def test_the_same_set_drawn_again_counts_as_doing_as_much() -> None:
    """Not now and then, by rounding: all heads of a layer can only be drawn as they are."""
    lm = LM(build(TINY[0]), tokenizer(), "llama")
    result = transfer_heads(lm, EXAMPLES, [(1, head) for head in range(6)], n=4, draws=9)
    assert result.p == 1
    np.testing.assert_array_equal(result.random_follows, result.follows)


ANSWERS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=3).map(tuple), min_size=1, max_size=8)


@given(answers=ANSWERS, n=st.integers(1, 6), seed=st.integers(0, 9))
def test_pairs(answers, n, seed) -> None:
    examples = [TokenExample((i // 2,), a) for i, a in enumerate(answers)]
    other, same = draw_pairs(examples, n, np.random.default_rng(seed))
    for pairs in (other, same):
        assert len(pairs) == len(set(pairs)) <= n
        assert all(examples[x].prompt != examples[y].prompt for x, y in pairs)
    assert all(answers[x][0] != answers[y][0] for x, y in other)
    assert all(answers[x] == answers[y] for x, y in same)
    every = [(x, y) for x in range(len(answers)) for y in range(len(answers)) if x // 2 != y // 2]
    assert len(other) == min(n, sum(answers[x][0] != answers[y][0] for x, y in every))
    assert len(same) == min(n, sum(answers[x] == answers[y] for x, y in every))
    assert draw_pairs(examples, n, np.random.default_rng(seed)) == (other, same)


@given(answers=ANSWERS)
def test_what_all_answers_begin_with_is_counted_to_the_prompts(answers) -> None:
    examples = [TokenExample((9, i), a) for i, a in enumerate(answers)]
    apart = answers_apart(examples)
    assert [a.prompt + a.target for a in apart] == [a.prompt + a.target for a in examples]
    assert all(a.target for a in apart)
    assert len({a.target[0] for a in apart}) > 1 or min(len(a.target) for a in apart) == 1


def test_without_another_answer_nothing_is_measured() -> None:
    lm = LM(build(TINY[0]), tokenizer(), "llama")
    result = transfer_heads(lm, [replace(a, target=(5,)) for a in EXAMPLES], [(0, 0)])
    assert np.isnan([result.follows, result.followed, result.disturbs, result.p]).all()
    assert (result.other_pairs, result.same_pairs) == (0, 16)
    alone = transfer_heads(lm, [replace(a, target=(i,)) for i, a in enumerate(EXAMPLES)], [(0, 0)], draws=5)
    assert np.isnan(alone.disturbs)
    assert np.isnan(alone.random_disturbs).all()
    assert np.isfinite(alone.follows)


@pytest.fixture(scope="module")
def lm() -> LM:
    return ha.load(planted_folder("one"), device="cpu")


class TestPlanted:
    """One layer does the function: its heads carry the answer, and no others do."""

    @pytest.mark.parametrize(
        ("function", "p"),
        [
            ("Knowledge Recall", 0.3),  # L5.H4 alone carries it, so any draw with this head may do as much
            ("Math Calculation", 0.05),
            pytest.param("Semantic Understanding", 0.05, marks=pytest.mark.slow),
            pytest.param("Syntactic Understanding", 0.05, marks=pytest.mark.slow),
        ],
    )
    def test_answers_follow_the_functions_own_heads_alone(self, lm, function, p) -> None:
        truth, task = read_truth(planted_folder("one")), planted_task(function, 8, 32)
        function_heads = truth.functions[function]
        # Of two of eight heads, one draw in 28 is the planted two.
        carried = ha.transfer(lm, function_heads, task, draws=299)
        assert carried.moved.values.tolist() == [f"L{layer}.H{head}" for layer, head in function_heads]
        assert carried.p < p
        assert carried.low > 5
        assert (carried.outcome == "supported") == (carried.p < 0.05)
        assert carried.followed == 1
        assert carried.follows > 5 + carried.random_follows.mean()
        assert carried.disturbs > -0.5
        rest = [(function_heads[0][0], head) for head in range(8) if (function_heads[0][0], head) not in function_heads]
        others = [heads for name, heads in truth.functions.items() if name != function]
        for heads in (rest, truth.background, *others):  # by size: p of a decoy is below 0.05 now and then
            decoy = ha.transfer(lm, heads, task, draws=1)
            assert decoy.followed == 0
            assert abs(decoy.follows) < 1

    def test_a_map_gives_its_best_heads(self, lm) -> None:
        score = xr.DataArray(np.zeros((6, 8)), dims=("layer", "head"))
        score[5, 4], score[5, 6] = 2, 1
        task = planted_task("Knowledge Recall", 4, 8)
        by_map = ha.transfer(lm, score.transpose("head", "layer"), task, n=4, draws=5)
        listed = ha.transfer(lm, ["L5.H4", (5, 6)], task, n=4, draws=5)
        xr.testing.assert_identical(by_map, listed)
        xr.testing.assert_identical(ha.transfer(lm, score > 0, task, n=4, draws=5), listed)
        assert ha.transfer(lm, score, task, n=4, draws=5, top=1).moved.values.tolist() == ["L5.H4"]

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"heads": ["L9.H0"]}, "L9.H0|layer 9"),
            ({"heads": 5}, "heads is 5, expected heads such as"),
            ({"heads": []}, "heads is .*names none, expected heads such as"),
            ({"heads": np.zeros((6, 8))}, "expected a bool mask"),
            ({"heads": xr.DataArray(np.zeros((2, 8)), dims=("layer", "head"))}, r"heads has shape \(2, 8\)"),
            ({"heads": xr.DataArray(np.zeros((2, 8)), dims=("seed", "head"))}, "heads has dimensions"),
            ({"heads": xr.DataArray(np.full((6, 8), np.nan), dims=("layer", "head"))}, "without any finite score"),
            ({"heads": xr.DataArray(np.ones((6, 8)), dims=("layer", "head")), "top": 49}, "top is 49"),
            ({"top": 3}, "top is 3, but heads is no map"),
            ({"task": "maths"}, "maths"),
            ({"task": ["math", "syntax"]}, "2 tasks, expected one"),
            ({"task": [("a b", " same"), ("b c", " same"), ("c d", " same")]}, "answers? begin alike"),
            ({"n": 0}, "n is 0"),
            ({"draws": 0}, "draws is 0"),
            ({"seed": -1}, "seed is -1"),
            ({"batch_tokens": 0}, "batch_tokens is 0"),
        ],
    )
    def test_asked_wrongly(self, lm, options, message) -> None:
        task = planted_task("Knowledge Recall", 4, 8)
        with pytest.raises(BadArgument, match=message):
            ha.transfer(**{"model": lm, "heads": ["L5.H4"], "task": task, "draws": 1} | options)
