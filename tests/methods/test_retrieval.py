"""retrieval: against whole attention matrices step by step, and on a model with hand-set copying heads."""

import numpy as np
import pytest
import torch
import xarray as xr

import headatlas as ha
from headatlas.errors import BadArgument
from headatlas.evidence.control import ANSWERS, answers_without
from headatlas.evidence.fresh_prompts import load_prompts
from headatlas.methods import get_method
from headatlas.methods.retrieval import compute
from headatlas.methods.retrieval.compute import answer_lines, count_copies, retrieval_sentences, word_recall
from headatlas.models.attention import attention_of
from headatlas.models.lm import LM
from headatlas.results.method_tables import method_tables
from headatlas.tasks.needles import Haystack, Needle, hide_needle, load_sentences
from headatlas.testing import tiny_lm
from tests.models.copier import COPIERS, copier

# each begins with w1, behind which the copier reads on
NEEDLES = [{"needle": f"w1 {a}", "question": "w9", "answer": a} for a in ("w2 w3 w4 w5", "w6 w7 w8", "w3 w8 w5")]
TEXT = ["w10 w11 w12", "w13 w14", "w15 w16 w17 w18", "w19 w10 w13"]
QUICK = {"needles": NEEDLES, "text": TEXT, "lengths": (50,), "depths": 3, "new_tokens": 3, "limit": 2}


@pytest.fixture(scope="module")
def lm() -> LM:
    return copier()


@pytest.fixture(scope="module")
def result(lm: LM) -> xr.Dataset:
    return ha.retrieval(lm, **QUICK)


def test_the_heads_that_copy_are_found(result: xr.Dataset) -> None:
    """They copy every token of an answer (three of four, where the answer is cut off); no other head copies any."""
    copies = np.zeros((2, 4), dtype=bool)
    copies[tuple(zip(*COPIERS, strict=True))] = True
    score = result.score.sel(needles="needles").values
    np.testing.assert_allclose(score[copies], (3 / 4 + 1) / 2)
    assert (score[~copies] == 0).all()
    # two needles, of three texts each: one was answered to 3 / 4
    assert result.repeats.item() == 2
    np.testing.assert_allclose(result.se.values[0][copies], np.std([3 / 4, 1], ddof=1) / 2**0.5, rtol=1e-6)
    assert result.reliability.item() == pytest.approx(1)
    assert result.response.values.tolist() == ["w2 w3 w4"] * 3 + ["w6 w7 w8"] * 3
    assert result.recall.values[:3] == pytest.approx(np.full(3, word_recall("w2 w3 w4", "w2 w3 w4 w5")))
    assert (result.asked.item(), result.answered.item()) == (6, 6)
    assert result.used.values.tolist() == [True] * 6
    assert result.depth.values.tolist() == [0, 0.5, 1, 0, 0.5, 1]


def test_other_needles_are_the_subject_of_its_test(lm: LM) -> None:
    """They had no part in the score. Without the copying heads, the model is left with its guess, token 0."""
    work = get_method("retrieval").function(lm, **QUICK | {"limit": 1})
    (task,) = work.subjects.values()
    assert {lm.tokenizer.decode(e.target) for e in (*task.train, *task.held_out)} == {"w6 w7 w8", "w3 w8 w5"}
    prompts = load_prompts(lm, task, work.used, 2)
    for example in prompts.examples:
        assert len(example.prompt) <= 50
        # the end of the chat template, and the beginning of the needle
        assert lm.tokenizer.decode(example.prompt[-2:]) == "w1 w1"
        assert lm.tokenizer.decode(example.target) in lm.tokenizer.decode(example.prompt[:-2])
    whole, removed = answers_without(lm, prompts.examples, [[], list(COPIERS)])
    # after w1, the model may go on with the end of the template
    assert whole[ANSWERS.index("accuracy")] > 0.8
    assert removed[ANSWERS.index("accuracy")] == 0
    assert get_method("retrieval").function(lm, **QUICK | {"limit": 3}).subjects == {}


def slow_scores(lm: LM, prompt: Haystack, answer: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Step by step, head by head, from whole matrices: (distinct tokens copied, steps that copied) / tokens."""
    once, often = np.zeros((2, lm.n_layers, lm.n_heads))
    places: dict[tuple[int, int], set[int]] = {}
    for step, token in enumerate(answer):
        ids = [*prompt.ids, *answer[:step]]
        for layer, attention in attention_of(lm, torch.tensor([ids])).items():
            for head in range(lm.n_heads):
                place = int(attention[0, head, -1].argmax())
                if prompt.start <= place < prompt.end and ids[place] == token:
                    often[layer, head] += 1
                    places.setdefault((layer, head), set()).add(place)
    for (layer, head), of_head in places.items():
        once[layer, head] = len(of_head)
    return once / (prompt.end - prompt.start), often / (prompt.end - prompt.start)


@pytest.mark.parametrize(("hybrid", "steps"), [(False, 12), (True, 6)])
def test_equals_step_by_step(hybrid, steps) -> None:
    """On random models, which copy by accident: the answers are short cycles of the needles' own words."""
    lm, sentences = tiny_lm(hybrid, context=128), ["w1 w2 w3 w4 w5", "w6 w7 w8 w9"]
    (said,) = answer_lines(lm, [hide_needle(lm, Needle("w30 w31", "w50", "w31"), sentences, 40, 0.5).ids], steps)
    cycle = " ".join(f"w{t - 4}" for t in dict.fromkeys(said) if t >= 4)  # so that some of it will be said again
    needles = [Needle(f"w30 {cycle} {w}", "w50", f"{cycle} {w}") for w in ("w40", "w41")]
    options = {"text": sentences, "lengths": (50,), "depths": 2, "new_tokens": steps, "recall": 0.0}
    results = {kind: ha.retrieval(lm, needles, kind=kind, **options) for kind in ("paper", "published-code")}
    texts = load_sentences(sentences)
    expected = []
    for i, needle in enumerate(needles):
        first = i * len(texts) // len(needles)
        for depth in (0.0, 1.0):
            prompt = hide_needle(lm, needle, (*texts[first:], *texts[:first]), 50, depth)
            ids = list(prompt.ids)
            for _ in range(steps):
                ids.append(int(lm.model(torch.tensor([ids])).logits[0, -1].argmax()))
            answer = ids[len(prompt.ids) :]
            answer = answer[: answer.index(1)] if 1 in answer else answer
            expected.append(slow_scores(lm, prompt, answer))
    with_heads = lm.layers_with_heads
    for result, scores in zip(results.values(), zip(*expected, strict=True), strict=True):
        np.testing.assert_allclose(result.each.values[:, with_heads], np.stack(scores)[:, with_heads], atol=1e-6)
        np.testing.assert_allclose(result.score.values[0], result.each.mean("test"), atol=1e-6)
        assert result.score.sel(layer=lm.layers_without_heads).isnull().all()
    if not hybrid:  # which does not copy anything
        assert (results["paper"].each > 0).any()
        assert (results["published-code"].each > results["paper"].each).any()


def test_a_token_copied_twice_counts_once_in_the_paper_and_twice_in_the_code(lm: LM) -> None:
    ids = lm.encode("w10 w1 w2 w3 w1 w11 w12 w1")[0]  # behind w1 stood w2, and w11 too
    answer = lm.encode("w2 w3 w1 w2 w3")[0]
    once, often = count_copies(lm, Haystack(tuple(ids), 2, 4), answer)
    (layer, head), *_ = COPIERS
    assert (once[layer, head], often[layer, head]) == (2, 4)


def test_an_answer_ends_with_its_line(lm: LM, monkeypatch) -> None:
    decode = type(lm.tokenizer).decode
    monkeypatch.setattr(
        type(lm.tokenizer), "decode", lambda self, ids, **o: ".\n" if ids == [3] else decode(self, ids, **o)
    )
    short, long = lm.encode(["w10 w1 w2 w3 w4 w11 w1", "w10 w4 w5 w6 w7 w8 w9 w11 w4"])
    assert answer_lines(lm, [short], 5) == [[2, 3]]
    (alone,) = answer_lines(lm, [long], 5)
    assert len(alone) == 5
    assert answer_lines(lm, [short, long], 5) == [[2, 3], alone]  # a line ends where it is cut


def test_texts_are_answered_as_many_at_once_as_fit(lm: LM, monkeypatch) -> None:
    prompts, sizes, plain = lm.encode(["w10 w1 w2 w3 w4 w11 w1"] * 7), [], lm.generate_ids

    def generate(batch, *rest, **options):
        sizes.append(len(batch))
        return plain(batch, *rest, **options)

    monkeypatch.setattr(lm, "generate_ids", generate)
    monkeypatch.setattr(compute, "tokens_at_once", lambda lm, tokens: 40)
    assert answer_lines(lm, prompts, 5) == [plain([prompts[0]], 5)[0]] * 7
    assert sizes == [3, 3, 1]


def test_a_model_that_answers_nothing_has_no_scores(lm: LM, tmp_path) -> None:
    wrong = [{"needle": f"w2 {n['answer']}", "question": "w9", "answer": n["answer"]} for n in NEEDLES]
    needles = {"right": NEEDLES, "wrong": wrong}  # w2 is not what the chat template ends with
    result = ha.retrieval(lm, **QUICK | {"needles": needles}, out=tmp_path)
    assert result.answered.values.tolist() == [6, 0]
    assert result.score.sel(needles="wrong").isnull().all()
    assert result.score.sel(needles="right").notnull().all()
    assert retrieval_sentences(result) == [
        "wrong: the model answered none of 6 questions, so there is no score. Try shorter texts"
    ]
    heads = method_tables(result)["Retrieval heads: top heads"]
    assert [row["top heads"] for row in heads] == ["L1.H2 0.875, L1.H3 0.875", "none"]
    ha.open(tmp_path)["retrieval"].heads.figure()  # can be drawn


def test_kind_and_recall_are_settings_of_the_result(lm: LM, tmp_path) -> None:
    """Another one is another result. A stricter recall leaves out the needle whose answer was cut off."""
    first = ha.retrieval(lm, **QUICK, out=tmp_path)
    strict = ha.retrieval(lm, **QUICK, recall=0.95, kind="published-code", out=tmp_path)
    assert (first.answered.item(), strict.answered.item()) == (6, 3)
    assert strict.score.values[0][COPIERS[0]] == 1
    assert strict.attrs["kind"] == "published-code"
    assert strict.attrs["key"] != first.attrs["key"]


def test_lengths_are_cut_to_the_context(lm: LM, caplog) -> None:
    result = ha.retrieval(lm, **QUICK | {"lengths": (1000, 40, 2000), "depths": 1})
    assert "lengths: copier has room for prompts of 125 tokens" in caplog.text
    assert len(result.test) == 2 * 2
    assert (result.length <= [40, 125, 40, 125]).all()
    assert (result.length > [35, 120, 35, 120]).all()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"lengths": "many"}, "lengths is 'many', expected numbers of tokens"),
        ({"lengths": ()}, r"lengths is \(\), expected numbers of tokens"),
        ({"lengths": (0,)}, r"lengths is \(0,\), expected numbers of tokens"),
        ({"lengths": (5,)}, "needles, needle 1: with its question it has 17 tokens, but lengths has 5"),
        ({"depths": 0}, "depths is 0, expected a whole number from 1"),
        ({"kind": "papers"}, "kind is 'papers', expected one of paper, published-code.*Did you mean 'paper'"),
        ({"limit": 0}, "limit is 0, expected a whole number, at least 1"),
        ({"recall": 1.5}, "recall is 1.5, expected 0 to 1"),
        ({"new_tokens": 200}, "new_tokens is 200, but the model's context is 128 tokens"),
        ({"text": ["w1 w6 w7 w8"]}, "needles, needle 2 is already in the text"),
    ],
)
def test_what_is_asked_wrongly_is_told(lm: LM, options, told) -> None:
    with pytest.raises(BadArgument, match=told):
        ha.retrieval(lm, **QUICK | options)


def test_it_is_in_full_runs_only() -> None:
    assert set(get_method("retrieval").presets) == {"full"}
