"""Measure how well the whole model does a task, and how well guessing does."""

import logging
from collections import Counter
from collections.abc import Sequence

from headatlas.models.lm import LM
from headatlas.models.log_probs import batched_log_probs
from headatlas.models.tokens import Bundle
from headatlas.tasks.prompts import Task

# Below this accuracy, the model counts as unable to do the task.
MIN_ACCURACY = 0.2
log = logging.getLogger(__name__)


def measure_baseline(lm: LM, task: Task, held_out: Sequence[Bundle], tokens: int | None = None) -> dict[str, float]:
    """Measure how well the whole model does the task; warn if it does little better than guessing.

    Returns:
        `baseline`, the mean log P(target); `whole_accuracy`; `guess_accuracy`; the number of `examples`.
    """
    log_p, right = batched_log_probs(lm, held_out, None, tokens)
    accuracy = right.float().mean().item()
    quality = log_p.mean().item()
    guess = best_guess(task)
    n = right.shape[1]
    message = "%s: the whole model gets %.0f %% of %d held-out prompts right, −log P(target) %.2f"
    log.info(message, task.name, 100 * accuracy, n, -quality)
    if accuracy < max(MIN_ACCURACY, guess + 0.1 * (1 - guess)):
        message = "%s: too close to guessing (%.0f %% right): a map of a task that the model fails shows little"
        log.warning(message, task.name, 100 * guess)
    return {"baseline": quality, "whole_accuracy": accuracy, "guess_accuracy": guess, "examples": n}


def best_guess(task: Task) -> float:
    """Return the accuracy of always answering with the most frequent training target of the same kind."""
    common = {
        kind: Counter(e.target for e in task.train if e.kind == kind).most_common(1)[0][0]
        for kind in {e.kind for e in task.train}
    }
    return sum(common.get(e.kind) == e.target for e in task.held_out) / len(task.held_out)
