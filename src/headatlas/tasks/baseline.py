"""How well the whole model does a task, and how well guessing does."""

import logging
from collections import Counter
from collections.abc import Sequence

from headatlas.models.lm import LM
from headatlas.models.log_probs import batched_log_probs
from headatlas.models.tokens import Bundle
from headatlas.tasks.prompts import Task

CAN = 0.2  # below this accuracy the model cannot do the task
log = logging.getLogger(__name__)


def baseline(lm: LM, task: Task, held_out: Sequence[Bundle], tokens: int | None = None) -> dict[str, float]:
    """How well the whole model does the task; `baseline` is log P(target). Warns where a map would say little."""
    log_p, right = batched_log_probs(lm, held_out, None, tokens)
    accuracy, quality, guess = right.float().mean().item(), log_p.mean().item(), best_guess(task)
    n = right.shape[1]
    message = "%s: the whole model gets %.0f %% of %d held-out prompts right, −log P(target) %.2f"
    log.info(message, task.name, 100 * accuracy, n, -quality)
    if accuracy < max(CAN, guess + 0.1 * (1 - guess)):
        message = "%s: hardly better than guessing (%.0f %%): a map of a task the model fails says little"
        log.warning(message, task.name, 100 * guess)
    return {"baseline": quality, "whole_accuracy": accuracy, "guess_accuracy": guess, "examples": n}


def best_guess(task: Task) -> float:
    """Accuracy of always giving the commonest training target of the same kind."""
    common = {
        kind: Counter(e.target for e in task.train if e.kind == kind).most_common(1)[0][0]
        for kind in {e.kind for e in task.train}
    }
    return sum(common.get(e.kind) == e.target for e in task.held_out) / len(task.held_out)
