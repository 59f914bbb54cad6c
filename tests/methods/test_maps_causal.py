"""maps --causal: that heads are removed where it says, and that a map is compared with a fair draw."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

import headatlas as ha
from headatlas.evidence.control import DRAWS_PER_ROUND, answers_without, correct_p, same_layers
from headatlas.methods.maps.proof import MAX_DRAWS, rank_heads, relation_questions, removal_curves
from headatlas.models.lm import LM
from headatlas.models.tokens import TokenExample
from headatlas.results.method_tables import method_tables
from headatlas.tasks.relations import Relation
from tests.evidence.replayed import p_of
from tests.models.tiny import TINY, build, texts, tokenizer


@pytest.fixture(scope="module")
def lm() -> LM:
    return LM(build(TINY[0]), tokenizer(), "tiny")


def examples(prompts: list[list[int]], targets: list[int]) -> list[TokenExample]:
    return [TokenExample(tuple(p), (t,)) for p, t in zip(prompts, targets, strict=True)]


def likeliest(lm: LM, prompts: list[list[int]]) -> list[int]:
    return lm.model(**lm.batch(prompts)).logits[:, -1].argmax(-1).tolist()


@pytest.fixture(scope="module")
def questions(lm: LM) -> dict[str, list[TokenExample]]:
    """What the tiny model says anyway: that it can do. What it does not say it cannot."""
    prompts, others = texts((4, 6, 5, 7, 5, 6)), texts((5, 3, 8))
    targets = likeliest(lm, prompts)
    return {
        "can": examples(prompts, targets),
        "cannot": examples(prompts, [(t + 1) % 61 for t in targets]),
        "too": examples(others, likeliest(lm, others)),
    }


@pytest.fixture(scope="module")
def curves(lm: LM, questions: dict[str, list[TokenExample]]) -> xr.Dataset:
    return removal_curves(lm, questions, {name: [(1, h) for h in range(6)] for name in questions}, seed=3)


@pytest.mark.parametrize(
    "family", ["llama", "gpt2", "gemma2", "bloom", "falcon-rw", "mpt", "opt", "qwen3_next", "deepseek_v3"]
)
def test_answers_equal_one_prompt_at_a_time(family) -> None:
    tiny = next(t for t in TINY if t.id == family)
    lm = LM(build(tiny), tokenizer(), family)
    last = max(i for i, site in enumerate(lm.anatomy.sites) if site)
    questions = examples(texts((4, 7, 1, 5)), [9, 12, 30, 8])
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


def test_curves_of_what_the_model_can_do(curves: xr.Dataset) -> None:
    can = curves.sel(relation="can")
    assert can.baseline.sel(measure="accuracy") == 1
    assert can.effect.sel(n_removed=4, measure="log_p") != 0
    assert (can.effect.sel(n_removed=[1, 2, 4], measure="accuracy") <= 0).all()
    assert can.effect.sel(n_removed=[8, 16, 32]).isnull().all()  # there are only six to remove
    assert (can.random_effect.sel(n_removed=4).notnull().sum("draw") >= 20).all()
    for name in ("effect", "other_effect", "random_effect", "p", "p_corrected"):
        assert curves[name].sel(relation="cannot").isnull().all()
    assert curves.baseline.notnull().all()
    assert curves.measure.values.tolist() == ["accuracy", "log_p"]
    assert curves.effect.dims == curves.other_effect.dims == ("relation", "n_removed", "measure")
    assert curves.random_effect.dims == ("relation", "n_removed", "draw", "measure")


def test_random_heads_and_p_values_are_those_of_the_one_experiment(lm: LM, questions, curves: xr.Dataset) -> None:
    """Draws have as many heads in the same layers, the tested ones among the rest; p is about log P."""
    draw = same_layers(lm.n_heads, np.random.default_rng([3, 0]))
    sets = [[(1, h) for h in range(m)] for m in (1, 2, 4)]
    drawn = [[draw(heads) for _ in range(DRAWS_PER_ROUND)] for heads in sets]
    assert all({layer for layer, _ in heads} == {1} for draws in drawn for heads in draws)
    can = curves.sel(relation="can")
    for at, draws in enumerate(drawn):
        measured = answers_without(lm, questions["can"], [[], sets[at], *draws])
        effect, random_effect = measured[1] - measured[0], measured[2:] - measured[0]
        np.testing.assert_allclose(can.effect[at].sel(measure=["log_p", "accuracy"]), effect, atol=1e-5)
        first = can.random_effect[at, :DRAWS_PER_ROUND].sel(measure=["log_p", "accuracy"])
        np.testing.assert_allclose(first, random_effect, atol=1e-5)
        stored = can.isel(n_removed=at).sel(measure="log_p")
        assert stored.p == p_of(stored.effect.item(), stored.random_effect.values)
    np.testing.assert_allclose(curves.p_corrected, correct_p(curves.p.values))


def test_the_other_relation_is_the_next_that_can_be_answered(lm: LM, questions, curves: xr.Dataset) -> None:
    measured = answers_without(lm, questions["too"], [[], [(1, 0)], [(1, 0), (1, 1)]])
    other = curves.other_effect.sel(relation="can", measure=["log_p", "accuracy"])
    np.testing.assert_allclose(other[:2], measured[1:] - measured[0], atol=1e-5)


def test_questions_and_rankings(lm: LM) -> None:
    relation = Relation("r", "Knowledge", (("w1", "w2"), ("w3", "w4 w5"), ("w6", "w7")), prompt="w9 {} w8")
    questions = relation_questions(lm, relation, 5)
    decode = lm.tokenizer.decode
    assert {decode(q.prompt): decode(q.target) for q in questions} == {"w9 w1 w8": "w2", "w9 w6 w8": "w7"}
    score = xr.DataArray([[0.0, 0.5], [np.nan, 0.9]], dims=("layer", "head"))
    assert rank_heads(score) == [(1, 1), (0, 1)]


@pytest.mark.parametrize("family", ["llama", "qwen3_next"])
def test_in_a_map(family, tmp_path) -> None:
    """Targets are what the model says, so relations can be answered, and their heads are removed in real layers."""
    tiny = next(t for t in TINY if t.id == family)
    lm = LM(build(tiny), tokenizer(), family)
    likely = likeliest(lm, [lm.encode(f"w9 w{i}")[0] for i in range(40)])
    pairs = tuple((f"w{i}", lm.tokenizer.decode([t])) for i, t in enumerate(likely) if t >= 4)
    known = Relation("known", "Knowledge", pairs, prompt="w9 {}")
    without = replace(known, name="unasked", prompt=None)
    long = Relation("long", "Translation", tuple((s, f"{t} {t}") for s, t in pairs), "w9 {}", "", "last-first")
    result = ha.maps(lm, [known, without, long], causal=8, min_pairs=2, baselines=False, k=5, out=tmp_path)
    one = result.sel(relation="known")
    assert one.baseline.sel(measure="accuracy") == 1
    assert one.effect.sel(n_removed=1).notnull().all()
    assert one.p.sel(n_removed=1) >= 1 / (1 + MAX_DRAWS)
    assert result.score.sel(relation="long").notnull().any()
    assert result.effect.sel(relation=["unasked", "long"]).isnull().all()  # no prompt, no answer of one token
    rows = next(rows for title, rows in method_tables(result).items() if title.startswith("Tests"))
    assert {row["relation"] for row in rows} == {"known"}
    assert all(row["p"] > 0 for row in rows)
