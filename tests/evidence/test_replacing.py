"""Answers with replaced heads equal a slow and plain oracle: one prompt and one set at a time."""

from functools import cache

import numpy as np
import pytest
import torch

from headatlas.evidence.fresh_prompts import PromptSet
from headatlas.evidence.replacing import DONORS, REPLACEMENTS, ModelSurvey, answers_replaced, survey
from headatlas.models.lm import LM
from headatlas.models.tokens import TokenExample
from tests.models.tiny import TINY, build

FAMILIES = ("llama", "gpt2", "gemma2", "qwen3_next")  # the last has a layer without heads


@cache
def lm_of(family: str) -> LM:
    return LM(build(next(tiny for tiny in TINY if tiny.id == family)), None, family)


def examples(n: int, seed: int = 0) -> tuple[TokenExample, ...]:
    generator = np.random.default_rng(seed)

    def draw(length: int) -> tuple[int, ...]:
        return tuple(generator.integers(1, 50, length).tolist())

    return tuple(TokenExample(draw(3 + i % 4), draw(1 + i % 3)) for i in range(n))


def prompt_set(n: int) -> PromptSet:
    tested = examples(n)
    candidates = tuple((example.target[0], 50, 51 + i % 3) for i, example in enumerate(tested))
    return PromptSet("random", tested, candidates, tuple(range(n)))


def some_heads(lm: LM) -> list[list[tuple[int, int]]]:
    first, last = lm.layers_with_heads[0], lm.layers_with_heads[-1]
    return [[], [(first, 1)], [(first, 0), (first, 3), (last, 2)]]


def replaced_by_hand(
    lm: LM, example: TokenExample, candidates, heads, values: torch.Tensor | None, everywhere: bool
) -> list[float]:
    """Measure one answer with one set of heads replaced. values: [layer, head, d_head], None for zero."""
    ids = [*example.prompt, *example.target[:-1]]
    start = len(example.prompt) - 1
    where = "all" if everywhere else list(range(start, len(ids)))
    if not heads:
        logits = lm.model(torch.tensor([ids])).logits
    elif values is None:
        gate = torch.ones(lm.n_layers, lm.n_heads)
        for layer, head in heads:
            gate[layer, head] = 0
        with lm.gated(gate, where):
            logits = lm.model(**lm.batch([ids])).logits
    else:
        with lm.patched(heads, values, positions=where):
            logits = lm.model(**lm.batch([ids])).logits
    answers = logits[0, start:].double()
    targets = torch.tensor(example.target)
    log_p = answers.log_softmax(-1).gather(1, targets[:, None]).mean()
    among = answers[0, list(candidates)].exp()
    choice = (answers[0, example.target[0]].exp() / among.sum()).log()
    right = answers[0, example.target[0]] >= answers[0, list(candidates)].max()
    return [log_p.item(), choice.item(), float(right)]


@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_answers_equal_one_prompt_and_one_set_at_a_time(family, everywhere) -> None:
    lm = lm_of(family)
    prompts = prompt_set(6)
    known = survey(lm, examples(4, 1), examples(7, 2))
    sets = some_heads(lm)
    for replacement in REPLACEMENTS:
        result = answers_replaced(lm, prompts, sets, replacement, known, everywhere=everywhere)
        assert result.shape == (3, 6, 3)
        for e, example in enumerate(prompts.examples):
            values = {"zero": None, "mean": known.mean, "resample": known.donors[e % DONORS]}[replacement]
            for s, heads in enumerate(sets):
                expected = replaced_by_hand(lm, example, prompts.candidates[e], heads, values, everywhere)
                np.testing.assert_allclose(result[s, e], expected, rtol=1e-4, atol=1e-4)
        assert np.abs(result[1:, :, 0] - result[0, :, 0]).max() > 1e-3
    one_by_one = answers_replaced(lm, prompts, sets, replacement, known, everywhere=everywhere, tokens=1)
    np.testing.assert_allclose(one_by_one, result, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", ["llama", "qwen3_next"])
def test_a_survey_equals_plain_runs(family) -> None:
    lm = lm_of(family)
    mixture = examples(7, 2)
    known = survey(lm, examples(4, 1), mixture)
    outputs = [
        lm.head_outputs([[*e.prompt, *e.target[:-1]]])[0, len(e.prompt) - 1 :].float().nan_to_num() for e in mixture
    ]
    torch.testing.assert_close(known.mean, torch.cat(outputs).mean(0), rtol=1e-5, atol=1e-6)
    donors = torch.stack([outputs[i][0] for i in (0, 2, 4, 6)])
    torch.testing.assert_close(known.donors, donors, rtol=1e-5, atol=1e-6)
    has_heads = np.isfinite(known.influence)
    assert has_heads[lm.layers_with_heads].all()
    assert not has_heads[lm.layers_without_heads].any()


def test_without_candidates_there_is_no_choice() -> None:
    lm = lm_of("llama")
    prompts = PromptSet("text", examples(3), cluster=(0, 1, 2))
    known = ModelSurvey(np.zeros((3, 6)), torch.zeros(3, 6, 10), torch.zeros(1, 3, 6, 10))
    result = answers_replaced(lm, prompts, [[], [(0, 0)]], "mean", known)
    assert np.isnan(result[..., 1]).all()
    assert np.isfinite(result[..., [0, 2]]).all()
    zero = answers_replaced(lm, prompts, [[], [(0, 0)]], "zero", known)
    np.testing.assert_allclose(result, zero, atol=1e-6)
