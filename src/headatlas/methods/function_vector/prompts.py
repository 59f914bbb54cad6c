"""Make the prompts of a task: few-shot, with right and with shuffled answers, and zero-shot."""

from dataclasses import dataclass

import numpy as np

from headatlas.methods._effects import MAX_TEST_QUESTIONS
from headatlas.models.lm import LM
from headatlas.models.tokens import TokenExample
from headatlas.tasks.built_in import BUILT_IN
from headatlas.tasks.few_shot import few_shot_prompts, few_shot_tasks, zero_shot_prompts
from headatlas.tasks.prompts import Example, Task

SHOTS = 10


@dataclass(frozen=True)
class Prompts:
    """The prompts of one task.

    Args:
        right: few-shot prompts of training questions.
        shuffled: few-shot prompts of other training questions, with shuffled answers.
        choosing: zero-shot prompts of the questions of `shuffled`, to choose the layer on.
        testing: zero-shot prompts of held-out questions.
        testing_few_shot: few-shot prompts of the same held-out questions.
    """

    right: tuple[TokenExample, ...]
    shuffled: tuple[TokenExample, ...]
    choosing: tuple[TokenExample, ...]
    testing: tuple[TokenExample, ...]
    testing_few_shot: tuple[TokenExample, ...]


def make_prompts(lm: LM, task: Task, limit: int, seed: int) -> Prompts:
    """Make at most `limit` prompts of each kind. A prompt that is too long raises an error."""
    train, testing = _draw_questions(task, limit, seed)
    # from both ends, so that the two share as few questions as possible
    shuffled = train[:limit]
    right = train[::-1][:limit]
    return Prompts(
        right=tuple(few_shot_prompts(lm, task, right, 3 * seed)),
        shuffled=tuple(few_shot_prompts(lm, task, shuffled, 3 * seed + 1, shuffled=True)),
        choosing=tuple(zero_shot_prompts(lm, task, shuffled)),
        testing=tuple(zero_shot_prompts(lm, task, testing)),
        testing_few_shot=tuple(few_shot_prompts(lm, task, testing, 3 * seed + 2)),
    )


def _draw_questions(task: Task, limit: int, seed: int) -> tuple[list[Example], list[Example]]:
    """Return all training questions and at most `limit` held-out ones, both in random order."""
    generator = np.random.default_rng([seed, *task.name.encode()])
    train, held_out = ([part[i] for i in generator.permutation(len(part))] for part in (task.train, task.held_out))
    return train, held_out[:limit]


def ask_held_out(lm: LM, subject: str) -> list[TokenExample]:
    """Return held-out questions of a built-in relation or task, each after two draws of few-shot examples.

    They are not used for the map, because contributions are measured on training questions.
    """
    relations, tasks = (None, subject) if subject in BUILT_IN else ([subject], None)
    (task,) = few_shot_tasks(lm, relations, tasks, shots=SHOTS)
    generator = np.random.default_rng([0, *subject.encode()])
    queries = [task.held_out[i] for i in generator.permutation(len(task.held_out))[: MAX_TEST_QUESTIONS // 2]]
    prompts_by_draw = [few_shot_prompts(lm, task, queries, seed) for seed in (0, 1)]
    return [prompt for pair in zip(*prompts_by_draw, strict=True) for prompt in pair]
