"""Few-shot tasks: prompts with few-shot examples, the same with shuffled answers, and zero-shot prompts."""

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
    """Load relations and tasks as few-shot tasks with `shots` examples.

    relations: as for `load_relations`; each source word is put into the template (by default one that does not describe
    the task), and the target follows after a space.
    tasks: as for `load_tasks`; their prompts are used unchanged.
    """
    template = TEMPLATE if template is None else template
    if not isinstance(template, str) or "{}" not in template:
        raise BadArgument(f"template is {brief(template)}, expected a text with {{}} where the source word goes")
    few_shot = []
    for relation in [] if relations is None else load_relations(relations):
        pairs = [(Example(template.replace("{}", s), f" {t}", row=relation.row(s)), "") for s, t in relation.pairs]
        few_shot.append(split_examples(relation.name, pairs))
    few_shot += [] if tasks is None else load_tasks(lm, tasks, 0)
    check_task_names(few_shot)
    few_shot = [replace(task, shots=shots) for task in few_shot]
    for task in few_shot:
        check_shots(task)
    return few_shot


def few_shot_prompts(
    lm: LM, task: Task, queries: Sequence[Example], seed: int, *, shuffled: bool = False
) -> list[TokenExample]:
    """Encode each query after few-shot examples of its kind from `train`, with the first token of its answer.

    shuffled: give every few-shot example the answer of another one; the prompts are otherwise the same.
    """
    prompts = []
    for number, query in enumerate(queries):
        # Seeded per query, so that the shuffled prompts show the same examples.
        generator = np.random.default_rng([seed, number])
        others = [e for e in task.train if e.kind == query.kind and e.prompt != query.prompt]
        shown = [others[i] for i in generator.choice(len(others), size=min(task.shots, len(others)), replace=False)]
        shift = int(generator.integers(1, len(shown))) if shuffled else 0
        answers = [e.target for e in (*shown[shift:], *shown[:shift])]
        text = "".join(f"{e.prompt}{a}{task.separator}" for e, a in zip(shown, answers, strict=True))
        prompts.append(_first_token(lm, task, text, query))
    return prompts


def zero_shot_prompts(lm: LM, task: Task, queries: Sequence[Example]) -> list[TokenExample]:
    """Encode each query alone, with the first token of its answer."""
    return [_first_token(lm, task, "", query) for query in queries]


def _first_token(lm: LM, task: Task, shown: str, query: Example) -> TokenExample:
    example = encode_target(
        lm,
        f"{shown}{query.prompt}",
        query.target,
        f"task {task.name!r}, {task.shots} shots, {str(query.prompt)[:40]!r}",
    )
    return replace(example, target=example.target[:1])
