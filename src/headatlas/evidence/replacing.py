"""What removed heads give instead: nothing, what heads give on average, or what they gave for another prompt.

The average and the other prompts are of a mixture of tasks and texts, so that what a head always does for one task is
removed too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from headatlas.errors import BadArgument
from headatlas.evidence.control import Heads, gates_without
from headatlas.evidence.fresh_prompts import PromptSet
from headatlas.models.gradients import gate_gradients
from headatlas.models.interventions import MEASURES, Change, answers_under
from headatlas.models.lm import LM
from headatlas.models.memory import tokens_at_once
from headatlas.models.tokens import TokenExample

REPLACEMENTS = ("zero", "mean", "resample")
TEST_MEASURES = ("log_p", "choice", "right")
DONORS = 4  # prompts that replacements are taken from, each for a share of the tested prompts


@dataclass(frozen=True)
class ModelSurvey:
    """What tests of heads need to know of a model, from a mixture of prompts.

    Args:
        influence: mean |∂ log P / ∂ gate| of each head on plain text [layer, head]; NaN marks a missing head.
        mean: mean output of each head where it answers [layer, head, d_head].
        donors: outputs of each head at the last token of some prompts [donor, layer, head, d_head].
    """

    influence: np.ndarray
    mean: Tensor
    donors: Tensor


def survey(
    lm: LM, texts: Sequence[TokenExample], mixture: Sequence[TokenExample], *, tokens: int | None = None
) -> ModelSurvey:
    """Measure what heads do in general.

    Args:
        lm: the model.
        texts: plain texts, for generic influence.
        mixture: prompts with answers, of several tasks.
        tokens: run at once, at most.
    """
    if not texts or not mixture:
        raise BadArgument("survey: no prompts, expected at least one text and one prompt of the mixture")
    influence = generic_influence(lm, texts, tokens)
    read = [(*example.prompt, *example.target[:-1]) for example in mixture]
    answering = [list(range(len(e.prompt) - 1, len(ids))) for e, ids in zip(mixture, read, strict=True)]
    at_once = max(1, tokens_at_once(lm, tokens) // max(map(len, read)))
    z = lm.head_outputs(read, answering, batch_size=at_once).float()  # [example, token, layer, head, d_head]
    places = np.linspace(0, len(mixture) - 1, min(DONORS, len(mixture))).round().astype(int)
    mean = z.nanmean((0, 1)).nan_to_num(0.0)
    return ModelSurvey(influence, mean, z[places, 0].nan_to_num(0.0))


def generic_influence(lm: LM, texts: Sequence[TokenExample], tokens: int | None = None) -> np.ndarray:
    """Return the mean |∂ log P / ∂ gate| of each head on texts [layer, head]; NaN marks a missing head."""
    return np.asarray(gate_gradients(lm, texts, tokens=tokens).abs().mean(0).numpy())


def answers_replaced(
    lm: LM,
    prompts: PromptSet,
    sets: Sequence[Heads],
    replacement: str,
    surveyed: ModelSurvey,
    *,
    everywhere: bool = False,
    tokens: int | None = None,
) -> np.ndarray:
    """Measure the answers to each prompt with each set of heads replaced: [set, example, measure] (TEST_MEASURES).

    log_p: mean log P of the answer's tokens; choice: log P of its first token among the candidates; right: whether
    that token is the likeliest of the candidates, or, without candidates, whether all its tokens are the likeliest.
    """
    gates = gates_without(sets, (lm.n_layers, lm.n_heads))
    result = np.full((len(sets), len(prompts), len(TEST_MEASURES)), np.nan)
    for examples, values in _values(replacement, surveyed, len(prompts)):
        added = None if values is None else [(1 - gate)[..., None] * values for gate in gates]
        changes = [Change(gate) for gate in gates] if added is None else list(map(Change, gates, added))
        result[:, examples] = answers_changed(lm, prompts, changes, examples, everywhere=everywhere, tokens=tokens)
    return result


def answers_changed(
    lm: LM,
    prompts: PromptSet,
    changes: Sequence[Change],
    examples: Sequence[int],
    *,
    everywhere: bool = False,
    tokens: int | None = None,
) -> np.ndarray:
    """Measure the answers to some of the prompts under each change: [change, example, measure] (TEST_MEASURES)."""
    measured = answers_under(
        lm,
        [prompts.examples[i] for i in examples],
        changes,
        everywhere=everywhere,
        tokens=tokens,
        candidates=[prompts.candidates[i] for i in examples] if prompts.has_choice else None,
    ).double()
    log_p = measured[..., MEASURES.index("log_p")].numpy()
    if prompts.has_choice:
        choice, right = measured[..., len(MEASURES) :].numpy().transpose(2, 0, 1)
    else:
        choice = np.full_like(log_p, np.nan)
        # The mean of zeros and ones may be rounded.
        right = measured[..., MEASURES.index("first")].numpy() > 1 - 1e-6
    return np.stack([log_p, choice, right], axis=-1)


def _values(replacement: str, surveyed: ModelSurvey, n: int) -> list[tuple[list[int], Tensor | None]]:
    """Return what heads give instead [layer, head, d_head], and for which of n examples; None for zero."""
    if replacement == "zero":
        return [(list(range(n)), None)]
    if replacement == "mean":
        return [(list(range(n)), surveyed.mean)]
    donors = len(surveyed.donors)
    shares = [(list(range(d, n, donors)), surveyed.donors[d]) for d in range(donors)]
    return [(examples, values) for examples, values in shares if examples]
