"""Removal curves: that they remove what they say, where they say, and compare with a fair draw."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from headatlas.models.lm import LM
from headatlas.tasks.relations import Relation
from headatlas.methods.maps.causal import rank_heads, relation_questions
from headatlas.evidence.removal import Questions, answers, matched_random, removal_curves
from tests.models.tiny import TINY, build, texts, tokenizer


@pytest.fixture(scope="module")
def lm() -> LM:
    return LM(build(TINY[0]), tokenizer(), "tiny")


@given(heads=st.sets(st.tuples(st.integers(0, 5), st.integers(0, 7)), max_size=20), seed=st.integers(0, 100))
def test_random_heads_match_layer_by_layer(heads, seed) -> None:
    drawn = matched_random(sorted(heads), range(6), 8, np.random.default_rng(seed))
    assert not set(drawn) & heads
    assert len(set(drawn)) == len(drawn) == len(heads)
    mine, theirs = ([sum(at == layer for at, _ in some) for layer in range(6)] for some in (heads, drawn))
    if max(mine, default=0) <= 4:  # every layer has as many others left as were taken from it
        assert mine == theirs


@pytest.mark.parametrize(
    "family", ["llama", "gpt2", "gemma2", "bloom", "falcon-rw", "mpt", "opt", "qwen3_next", "deepseek_v3"]
)
def test_answers_equal_one_prompt_at_a_time(family) -> None:
    tiny = next(t for t in TINY if t.id == family)
    lm = LM(build(tiny), tokenizer(), family)
    last = max(i for i, site in enumerate(lm.anatomy.sites) if site)
    questions = Questions(texts((4, 7, 1, 5)), [9, 12, 30, 8])
    sets = [[], [(last, 1)], [(last, 1), (last, 5)]]
    found = answers(lm, questions, sets, batch_size=4)
    for removed, (accuracy, log_p) in zip(sets, found, strict=True):
        right, total = [], []
        for prompt, target in zip(questions.prompts, questions.targets, strict=True):
            with lm.patched(removed, 0.0, positions=[len(prompt) - 1]):
                logits = lm.model(**lm.batch([prompt])).logits[0, -1].float()
            right.append(int(logits.argmax()) == target)
            total.append(logits.log_softmax(-1)[target].item())
        assert accuracy == pytest.approx(np.mean(right))
        assert log_p == pytest.approx(np.mean(total), abs=1e-5)


def test_curves_of_what_the_model_can_do(lm: LM) -> None:
    """Ask for what the tiny model says anyway: it can do that, and removing every head of a layer changes it."""
    prompts = texts((4, 6, 5, 7, 5, 6))
    said = lm.model(**lm.batch(prompts)).logits[:, -1].argmax(-1).tolist()
    questions = {"can": Questions(prompts, said), "cannot": Questions(prompts, [(t + 1) % 61 for t in said])}
    ranking = {name: [(1, h) for h in range(6)] for name in questions}
    found = removal_curves(lm, questions, ranking, draws=3)
    can = found.sel(relation="can")
    assert can.whole_model.sel(measure="accuracy") == 1
    assert can.removal_top.sel(removed=0, measure="accuracy") == 1
    assert can.removal_top.sel(removed=4, measure="log_p") != can.whole_model.sel(measure="log_p")
    assert can.removal_top.sel(removed=[8, 16, 32]).isnull().all()  # there are only six to remove
    assert can.removal_random.sel(removed=4).notnull().all()
    assert found.removal_top.sel(relation="cannot").isnull().all()


def test_questions_and_rankings(lm: LM) -> None:
    relation = Relation("r", "Knowledge", (("w1", "w2"), ("w3", "w4 w5"), ("w6", "w7")), prompt="w9 {} w8")
    questions = relation_questions(lm, relation, 5)
    asked = {
        lm.tokenizer.decode(p): lm.tokenizer.decode([t])
        for p, t in zip(questions.prompts, questions.targets, strict=True)
    }
    assert asked == {"w9 w1 w8": "w2", "w9 w6 w8": "w7"}
    score = xr.DataArray([[0.0, 0.5], [np.nan, 0.9]], dims=("layer", "head"))
    assert rank_heads(score) == [(1, 1), (0, 1)]


def test_random_heads_are_real_heads() -> None:
    """Layers of a hybrid without heads would make a control that removes nothing."""
    drawn = matched_random([(3, h) for h in range(6)], [3, 7], 8, np.random.default_rng(0))
    assert sorted(at for at, _ in drawn) == [3, 3, 7, 7, 7, 7]
