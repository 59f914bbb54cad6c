"""Heads removed while a model answers: the gates that remove them, and what the answers are then worth.

Every file has the same names for it: `baseline`, the quality of the model as it is; `effect`, how it changes without
the heads (below 0 is worse); `random_effect`, the same without random heads, draw by draw; `p`, how often random heads
lower it as much; `p_corrected`, for the number of tests; `n_removed`, how many heads.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from headatlas.evidence.control import DRAWS_PER_ROUND, Heads
from headatlas.models.answers import MEASURES, Change, answers_under
from headatlas.models.cost import Cost, answering
from headatlas.models.lm import LM
from headatlas.models.targets import TokenExample

ANSWERS = ("log_p", "accuracy")  # the measures of `answers_without`; p is about the first
DRAWN = 0.6  # typical share of the allowed draws before early stopping


def removal_cost(
    lm: LM, examples: Sequence[TokenExample], sets: int, draws: int, tokens: int | None = None, everywhere: bool = False
) -> Cost:
    """Of a control experiment with so many sets, whose value is of answers to these examples."""
    changes, rounds = 1 + sets * (1 + expected_draws(draws)), max(1.0, draws / DRAWS_PER_ROUND)
    return answering(lm, examples, changes, rounds=rounds, everywhere=everywhere, tokens=tokens)


def expected_draws(draws: int) -> float:
    """About how many of the allowed draws are made."""
    return min(draws, max(DRAWS_PER_ROUND, DRAWN * draws))


def gates_without(sets: Sequence[Heads], shape: tuple[int, int], scale: float = 0.0) -> Tensor:
    """Gates [set, layer, head] that multiply each set's heads by `scale` and leave the rest."""
    gates = torch.ones(len(sets), *shape)
    for gate, heads in zip(gates, sets, strict=True):
        for layer, head in heads:
            gate[layer, head] = scale
    return gates


def answers_without(
    lm: LM, examples: Sequence[TokenExample], sets: Sequence[Heads], tokens: int | None = None
) -> np.ndarray:
    """Measure answers with each set of heads removed from the prompt's last token on.

    Returns [set, measure]: mean log P of an answer's tokens, and how often each is the likeliest (ANSWERS).
    """
    changes = [Change(gate) for gate in gates_without(sets, (lm.n_layers, lm.n_heads))]
    values = answers_under(lm, examples, changes, tokens=tokens).double().mean(1).numpy()
    return np.asarray(values[:, [MEASURES.index("log_p"), MEASURES.index("first")]])
