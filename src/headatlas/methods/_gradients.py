"""Gradients ∂ log P(target) / ∂ gate of every head, for `taylor` and `ig`.

taylor: ∂ log P / ∂ gate at gate = 1 (Michel et al. 2019), one backward pass for all heads and examples.
ig: its average while all gates move from 0 to 1 together; summed over heads it is what all of them contribute.
"""

from collections.abc import Sequence

from headatlas.methods._effects import held_out_questions
from headatlas.models.gradients import gate_gradients
from headatlas.models.lm import LM
from headatlas.progress import FinishedParts, Progress
from headatlas.tasks.prompts import Task


def compute_gradients(
    lm: LM,
    *,
    part: str,
    task: Task,
    layers: Sequence[int],
    limit: int,
    batch_tokens: int | None,
    steps: int | None = None,
    done: FinishedParts,
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
    """Return the midpoints of `steps` equal parts of [0, 1]."""
    return [(i + 0.5) / steps for i in range(steps)]
