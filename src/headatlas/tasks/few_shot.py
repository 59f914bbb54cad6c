"""Tasks told by examples alone: prompts with worked examples, the same with shuffled answers, and without any."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headatlas.errors import BadArgument, brief
from headatlas.models.lm import LM
from headatlas.models.tokens import TokenExample, encode_target
from headatlas.tasks.prompts import Example, Task, check_shots, check_task_names, load_tasks, split_examples
from headatlas.tasks.relations import load_relations

TEMPLATE = "Q: {}\nA:"


def few_shot_tasks(
    lm: LM | None, relations: Any = None, tasks: Any = None, *, shots: int, template: str | None = None
) -> list[Task]:
    """Relations and tasks, each to be told by `shots` examples.

    relations: as for `load_relations`; their words are put into the template (by default one that
    says nothing about the task), the target follows behind a space.
    tasks: as for `load_tasks`; their prompts are used as they are.
    """
    template = TEMPLATE if template is None else template
    if not isinstance(template, str) or "{}" not in template:
        raise BadArgument(f"template is {brief(template)}, expected a text with {{}} where the source word goes")
    chosen = []
    for relation in [] if relations is None else load_relations(relations):
        pairs = [(Example(template.replace("{}", s), f" {t}", row=relation.row(s)), "") for s, t in relation.pairs]
        chosen.append(split_examples(relation.name, pairs))
    chosen += [] if tasks is None else load_tasks(lm, tasks, 0)
    check_task_names(chosen)
    chosen = [replace(task, shots=shots) for task in chosen]
    for task in chosen:
        check_shots(task)
    return chosen


def few_shot_prompts(
    lm: LM, task: Task, queries: Sequence[Example], seed: int, *, shuffled: bool = False
) -> list[TokenExample]:
    """Each query behind worked examples of its kind out of `train`, with the first token of its answer.

    shuffled: every worked example has the answer of another one. Without it the prompts are otherwise the same.
    """
    prompts = []
    for number, query in enumerate(queries):
        generator = np.random.default_rng([seed, number])
        others = [e for e in task.train if e.kind == query.kind and e.prompt != query.prompt]
        shown = [others[i] for i in generator.choice(len(others), size=min(task.shots, len(others)), replace=False)]
        shift = int(generator.integers(1, len(shown))) if shuffled else 0
        answers = [e.target for e in (*shown[shift:], *shown[:shift])]
        text = "".join(f"{e.prompt}{a}{task.separator}" for e, a in zip(shown, answers, strict=True))
        prompts.append(_first_token(lm, task, text, query))
    return prompts


def zero_shot_prompts(lm: LM, task: Task, queries: Sequence[Example]) -> list[TokenExample]:
    """Each query alone, with the first token of its answer."""
    return [_first_token(lm, task, "", query) for query in queries]


def _first_token(lm: LM, task: Task, shown: str, query: Example) -> TokenExample:
    example = encode_target(
        lm,
        f"{shown}{query.prompt}",
        query.target,
        f"task {task.name!r}, {task.shots} shots, {str(query.prompt)[:40]!r}",
    )
    return replace(example, target=example.target[:1])
