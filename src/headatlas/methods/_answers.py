"""How well a model answers with heads removed: what `evidence.removal` asks of models that answer prompts."""

from collections.abc import Sequence

import numpy as np

from headatlas.evidence.removal import Heads, gates_without
from headatlas.models.answers import MEASURES as ANSWERED
from headatlas.models.answers import Change, answers_under
from headatlas.models.lm import LM
from headatlas.models.targets import TokenExample

MEASURES = ("log_p", "accuracy")  # the first is what p is about


def answers(
    lm: LM, questions: Sequence[TokenExample], removed: Sequence[Heads], tokens: int | None = None
) -> np.ndarray:
    """[set, measure]: mean log P of the target's tokens, and the share of them that are the likeliest, with each set of
    heads removed from the prompt's last token on. tokens: through the model at once.

    Draws that are alike are asked once, so that they have the same bits.
    """
    sets = [tuple(sorted(heads)) for heads in removed]
    once = {heads: i for i, heads in enumerate(dict.fromkeys(sets))}
    changes = [Change(gate) for gate in gates_without([list(s) for s in once], (lm.n_layers, lm.n_heads))]
    each = answers_under(lm, questions, changes, tokens=tokens).double().mean(1).numpy()
    return each[[once[heads] for heads in sets]][:, [ANSWERED.index("log_p"), ANSWERED.index("first")]]
