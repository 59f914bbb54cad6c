"""What `taylor` and `ig` share: ∂ log P(target) / ∂ gate of every head.

taylor: ∂ log P / ∂ gate at gate = 1 (Michel et al. 2019), one backward pass for all heads and examples.
ig: the same, averaged while all gates move from 0 to 1 together; over all heads it adds up to what they contribute.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from headatlas.methods._effects import held_out_questions
from headatlas.models.gradients import for_gradients
from headatlas.models.lm import LM
from headatlas.models.log_probs import batches, log_probs
from headatlas.models.memory import halve_batch_on_oom, tokens_at_once
from headatlas.models.tokens import TokenExample, make_bundle
from headatlas.progress import Done, Progress, silent
from headatlas.tasks.prompts import Task


def gate_gradients(
    lm: LM,
    questions: Sequence[TokenExample],
    levels: Sequence[float] = (1.0,),
    *,
    tokens: int | None = None,
    label: str = "gradients",
    progress: Progress = silent,
) -> Tensor:
    """Compute ∂ log P(target) / ∂ gate [example, layer, head], averaged over `levels` that all gates are set to."""
    budget = tokens_at_once(lm, tokens)
    bundles = [make_bundle([a]) for a in questions]
    gradients = torch.zeros(len(questions), lm.n_layers, lm.n_heads)
    gradients[:, lm.layers_without_heads] = torch.nan
    with for_gradients(lm):
        for levels_now, rows in progress(list(batches(bundles, len(levels), budget)), label):
            level = torch.tensor(levels[levels_now])[:, None, None, None]
            gate = level.expand(-1, len(rows), lm.n_layers, lm.n_heads).clone().requires_grad_()
            with halve_batch_on_oom(lm, budget):
                log_p, _ = log_probs(lm, [bundles[i] for i in rows], gate)
                (gradient,) = torch.autograd.grad(log_p.sum(), gate)
            gradients[rows] += gradient.sum(0) / len(levels)
    return gradients


def compute_gradients(
    lm: LM,
    *,
    part: str,
    task: Task,
    layers: Sequence[int],
    limit: int,
    batch_tokens: int | None,
    steps: int | None = None,
    done: Done,
    progress: Progress,
) -> None:
    """Compute a part: the gradients of one task's examples, at gates of 1 or at the midpoints of `steps`."""
    questions = held_out_questions(lm, task, limit)
    levels = _levels(steps)
    gradients = gate_gradients(lm, questions, levels, tokens=batch_tokens, label=part, progress=progress)
    done[part] = (gradients[:, layers].numpy(),)


def _levels(steps: int | None) -> list[float]:
    return [1.0] if steps is None else midpoints(steps)


def midpoints(steps: int) -> list[float]:
    """Return the middles of `steps` equal parts of [0, 1]."""
    return [(i + 0.5) / steps for i in range(steps)]
