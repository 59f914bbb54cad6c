"""taylor and ig: what removing a head would do to log P(target), read from gradients in its gate instead of tried.

taylor: ∂ log P / ∂ gate at gate = 1 (Michel et al. 2019), one backward pass for all heads and examples.
ig: the same, averaged while all gates move from 0 to 1 together; over all heads it adds up to what they contribute.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headatlas.methods._effects import Piece
from headatlas.models.cost import Cost, learning
from headatlas.models.gradients import for_gradients
from headatlas.models.lm import LM
from headatlas.models.log_probs import batches, log_probs
from headatlas.models.memory import halve_batch_on_oom, tokens_at_once
from headatlas.models.tokens import TokenExample, make_bundle
from headatlas.progress import Progress, silent


def gate_gradients(
    lm: LM,
    questions: Sequence[TokenExample],
    levels: Sequence[float] = (1.0,),
    *,
    tokens: int | None = None,
    label: str = "gradients",
    progress: Progress = silent,
) -> Tensor:
    """∂ log P(target) / ∂ gate [example, layer, head], averaged over all gates standing at each of `levels`."""
    budget = tokens_at_once(lm, tokens)
    bundles = [make_bundle([a]) for a in questions]
    gradients = torch.zeros(len(questions), lm.n_layers, lm.n_heads)
    gradients[:, lm.layers_without_heads] = torch.nan
    with for_gradients(lm):
        for gates, chosen in progress(list(batches(bundles, len(levels), budget)), label):
            at = torch.tensor(levels[gates])[:, None, None, None]
            gate = at.expand(-1, len(chosen), lm.n_layers, lm.n_heads).clone().requires_grad_()
            with halve_batch_on_oom(lm, budget):
                log_p, _ = log_probs(lm, [bundles[i] for i in chosen], gate)
                (change,) = torch.autograd.grad(log_p.sum(), gate)
            gradients[chosen] += change.sum(0) / len(levels)
    return gradients


@dataclass(frozen=True)
class Gradients:
    """Effects as gradients predict them."""

    levels: Sequence[float] = (1.0,)

    def measure(self, lm: LM, piece: Piece, progress: Progress) -> np.ndarray:
        questions, tokens = piece.questions(lm), piece.batch_tokens
        gradients = gate_gradients(lm, questions, self.levels, tokens=tokens, label=piece.name, progress=progress)
        return gradients[:, piece.layers].numpy()

    def cost(self, lm: LM, piece: Piece) -> Cost:
        bundles = [make_bundle([a]) for a in piece.questions(lm)]
        return learning(lm, bundles, len(self.levels), tokens=piece.batch_tokens, packed=False)


def midpoints(steps: int) -> list[float]:
    """Where `ig` looks: the middles of equal parts of [0, 1]."""
    return [(i + 0.5) / steps for i in range(steps)]
