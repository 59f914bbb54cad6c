"""Generate answers to many prompts, in batches that fit into memory, and store them as arrays."""

from collections.abc import Sequence

import numpy as np

from headatlas.models.lm import LM
from headatlas.models.memory import halve_batch_on_oom, tokens_at_once
from headatlas.progress import FinishedParts, Progress, silent

MAX_BATCH = 32  # prompts


def generate_answers(
    lm: LM,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    *,
    done: FinishedParts | None = None,
    label: str = "answering",
    progress: Progress = silent,
) -> list[list[int]]:
    """Generate greedily and return the new tokens of each prompt. Prompts of similar length share a batch.

    Args:
        done: where finished batches are stored, so that interrupted work can resume.
    """
    done = {} if done is None else done
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    budget = tokens_at_once(lm, None)
    longest = max(map(len, prompts)) + max_new_tokens
    size = max(1, MAX_BATCH // lm.state.batch_divisor, budget // longest)
    answers: list[list[int]] = [[] for _ in prompts]
    for start in progress(range(0, len(order), size), label):
        batch = order[start : start + size]
        name = f"{label} {start} to {start + len(batch)}"
        if name not in done:
            with halve_batch_on_oom(lm, budget):
                generated = lm.generate_ids([list(prompts[i]) for i in batch], max_new_tokens)
            done[name] = (pad_answers(generated, max_new_tokens),)
        for i, tokens in zip(batch, unpad_answers(done[name][0]), strict=True):
            answers[i] = tokens
    return answers


def pad_answers(answers: Sequence[Sequence[int]], width: int) -> np.ndarray:
    """Return answers as an array [answer, token], with −1 after each end."""
    array = np.full((len(answers), width), -1)
    for row, ids in zip(array, answers, strict=True):
        row[: len(ids)] = ids
    return array


def unpad_answers(array: np.ndarray) -> list[list[int]]:
    """Return the tokens of each answer in an array of `pad_answers`."""
    return [row[row >= 0].tolist() for row in array]
