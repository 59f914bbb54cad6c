"""Load labelled examples of several functions: cognitive questions, tasks, relations, languages, or the user's.

Each example is a prompt with a target, the function it calls for, and its split. Examples of one group share a
beginning (a main question, few-shot examples), which is run only once.
"""

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headatlas.errors import BadArgument, did_you_mean, list_names
from headatlas.models.lm import LM
from headatlas.models.loading import Parameters
from headatlas.models.log_probs import batched_log_probs
from headatlas.models.tokens import Bundle, TokenExample, make_bundle
from headatlas.tasks.built_in import check_task, relation_names
from headatlas.tasks.bundles import bundles_of
from headatlas.tasks.prompts import Example, Task, check_task_names, list_tasks, load_tasks, split_examples
from headatlas.tasks.questions import MIN_EXAMPLES, SPLITS, Question, function_names, load_questions, with_answer
from headatlas.tasks.relations import Relation, load_relations
from headatlas.tasks.used import Used, used_questions, used_rows

log = logging.getLogger(__name__)

# Share of a task's training examples that is used for validation; tasks have no validation split.
VALIDATION = 0.2


@dataclass(frozen=True)
class LabelledExamples:
    """LabelledExamples examples.

    function: indices into `names`. used: rows of training examples, and few-shot examples. subjects: by name of a
    function, the task or questions that its examples are from.
    """

    names: tuple[str, ...]
    examples: tuple[TokenExample, ...]
    function: np.ndarray
    split: np.ndarray
    group: np.ndarray
    used: Used
    subjects: Mapping[str, Task | tuple[Question, ...]]

    def indices_in(self, split: str, function: int | None = None) -> list[int]:
        """Return the indices of the examples of a split, and of a function if given."""
        mask = self.split == split
        return np.flatnonzero(mask if function is None else mask & (self.function == function)).tolist()

    def bundles(self, examples: Iterable[int]) -> tuple[list[Bundle], list[list[int]]]:
        """Bundle examples by group; also return the indices of each bundle's examples."""
        groups: dict[int, list[int]] = {}
        for i in examples:
            groups.setdefault(int(self.group[i]), []).append(i)
        return [make_bundle([self.examples[i] for i in g]) for g in groups.values()], list(groups.values())

    def hash(self) -> str:
        """Return a short hash of the examples, for provenance and resuming."""
        content = (self.names, self.examples, self.function.tolist(), self.split.tolist(), self.group.tolist())
        return hashlib.sha256(repr(content).encode()).hexdigest()[:16]


def load_labelled(
    lm: LM,
    tasks: Any = None,
    questions: Any = None,
    test: Any = None,
    *,
    functions: Sequence[str] | str | None = None,
    context: str = "retrieval",
    limit: int | None = None,
    per_function: int | None = None,
    shots: int | None = None,
    template: bool = True,
    seed: int = 0,
) -> LabelledExamples:
    """Load examples of every function, with splits.

    tasks: each is a function: names of built-in tasks and relations, files and lists as `gate` takes them, {name:
    examples}, Relations. Of a single task, each `kind` is a function.
    questions: name of a built-in set, a file, or a list in the CogQA layout (default without tasks: 'varied').
    limit: approximate number of examples in total. per_function: number per function, if there is no limit.
    """
    if tasks is not None and questions is not None:
        raise BadArgument("tasks and questions are both given: give one of them")
    if tasks is not None and test is not None:
        raise BadArgument("test is for questions only: in tasks, mark examples as held_out")
    selected: list[str] | str | None = None
    if functions is not None:
        selected = "all" if isinstance(functions, str) and functions == "all" else list_names("functions", functions)
    if tasks is None:
        # read twice, so not from an iterator
        questions, test = (list(rows) if isinstance(rows, Iterator) else rows for rows in (questions, test))
        data = _from_questions(lm, questions, test, selected, context, limit, per_function, template, seed)
    else:
        data = _from_tasks(lm, _load_tasks(lm, tasks, shots), selected, limit, per_function, seed)
    _check(data, limit)
    return data


def log_p_per_token(
    lm: LM,
    data: LabelledExamples,
    examples: Sequence[int] | None = None,
    gates: Tensor | None = None,
    batch_tokens: int | None = None,
) -> Tensor:
    """Return the mean log P per answer token of examples (default: all) under each gate: [gate, example]."""
    examples = range(len(data.examples)) if examples is None else examples
    bundles, rows_of_bundles = data.bundles(examples)
    log_p, _ = batched_log_probs(lm, bundles, gates, batch_tokens)
    position = {i: k for k, i in enumerate(i for rows in rows_of_bundles for i in rows)}
    lengths = torch.tensor([len(data.examples[i].target) for i in examples])
    return log_p[:, [position[i] for i in examples]] / lengths


def _from_questions(
    lm: LM,
    data: Any,
    test: Any,
    functions: Sequence[str] | str | None,
    context: str,
    limit: int | None,
    per_function: int | None,
    template: bool,
    seed: int,
) -> LabelledExamples:
    def read(limit: int | None) -> list[Question]:
        return load_questions(data, test, context=context, functions=functions, limit=limit, seed=seed)

    all_questions = read(None)
    questions = all_questions if limit is None else read(limit)
    names = function_names(questions)
    if limit is None and per_function is not None and len(questions) > per_function * len(names):
        log.info("using about %d of %d questions (limit)", per_function * len(names), len(questions))
        questions = read(per_function * len(names))
    groups: dict[str, int] = {}
    return LabelledExamples(
        tuple(names),
        tuple(with_answer(lm, q, q.answer, template) for q in questions),
        np.array([names.index(q.function) for q in questions]),
        np.array([q.split for q in questions]),
        np.array([groups.setdefault(q.group, len(groups)) for q in questions]),
        used_questions(q for q in questions if q.split == "train"),
        {name: tuple(q for q in all_questions if q.function == name) for name in names},
    )


def _load_tasks(lm: LM, tasks: Any, shots: int | None) -> list[Task]:
    listed = list_tasks("tasks", [tasks] if isinstance(tasks, Relation) else tasks)
    loaded = [named_task(lm, name, task, shots) for name, task in listed]
    if len(loaded) == 1 and len(loaded[0].kinds) > 1 and not listed[0][0]:
        return _by_kind(loaded[0])
    check_task_names(loaded)
    return loaded


def named_task(lm: LM | Parameters, name: str, task: Any, shots: int | None = None) -> Task:
    """Load a task or a relation as a task. name: the name that the user gave it, or ''."""
    if isinstance(task, str):
        check_task(task, relation_names())
        task = next((r for r in load_relations() if r.name == task), task)
    if isinstance(task, Relation):
        if task.prompt is None:
            raise BadArgument(f"relation {task.name!r} has no prompt: give it one, such as 'The capital of {{}} is'")
        pairs = [(Example(task.row(s), f" {t}"), "") for s, t in task.pairs]
        return split_examples(name or task.name, pairs)
    return load_tasks(lm, {name: task} if name else [task], shots)[0]


def _by_kind(task: Task) -> list[Task]:
    """Split a task into one task per kind."""

    def of_kind(examples: tuple[Example, ...], kind: str) -> tuple[Example, ...]:
        return tuple(e for e in examples if e.kind == kind)

    return [replace(task, name=k, train=of_kind(task.train, k), held_out=of_kind(task.held_out, k)) for k in task.kinds]


def _from_tasks(
    lm: LM,
    tasks: list[Task],
    functions: list[str] | str | None,
    limit: int | None,
    per_function: int | None,
    seed: int,
) -> LabelledExamples:
    names = [t.name for t in tasks]
    if isinstance(functions, list):
        for name in functions:
            if name not in names:
                choices = ", ".join(names)
                raise BadArgument(f"functions has {name!r}, expected some of {choices}.{did_you_mean(name, names)}")
        tasks = [t for t in tasks if t.name in functions]
    for first, second in combinations(tasks, 2):
        if _all_pairs(first) == _all_pairs(second):
            raise BadArgument(_IDENTICAL.format(first.name, second.name))
    tested = {(e.prompt, e.target) for task in tasks for e in task.held_out}
    examples: list[TokenExample] = []
    function: list[int] = []
    split: list[str] = []
    group: list[int] = []
    rows: list[Example] = []
    for number, task in enumerate(tasks):
        train = tuple(e for e in task.train if (e.prompt, e.target) not in tested)
        if len(train) < len(task.train):
            n_dropped = len(task.train) - len(train)
            log.info("%s: dropped %d training examples that are also test examples", task.name, n_dropped)
        max_examples = per_function if limit is None else max(1, limit // len(tasks))
        parts = _splits(replace(task, train=train), max_examples, seed)
        shown = tuple(e for e in train if e not in set(parts["validation"]))  # few-shot examples
        # with few-shot prompts, any of them may be shown
        rows += shown if task.shots else parts["train"]
        for name, part in parts.items():
            for bundle in bundles_of(lm, replace(task, train=shown, held_out=part), "held_out", seed):
                group += [group[-1] + 1 if group else 0] * len(bundle.examples)
                examples += bundle.examples
                function += [number] * len(bundle.examples)
                split += [name] * len(bundle.examples)
    labels = tuple(t.name for t in tasks)
    return LabelledExamples(
        labels,
        tuple(examples),
        np.array(function),
        np.array(split),
        np.array(group),
        used_rows(tasks, rows),
        {task.name: task for task in tasks},
    )


def _all_pairs(task: Task) -> set[tuple[Any, Any]]:
    return {(e.prompt, e.target) for e in (*task.train, *task.held_out)}


def _splits(task: Task, limit: int | None, seed: int) -> dict[str, tuple[Example, ...]]:
    """Split a task: held-out examples for the test, a fifth of the others for validation. limit: of all splits."""
    generator = np.random.default_rng([seed, *task.name.encode()])
    train, test = ([part[i] for i in generator.permutation(len(part))] for part in (task.train, task.held_out))
    if limit is not None:
        train, test = train[: max(2, round(limit * 0.8))], test[: max(1, round(limit * 0.2))]
    cut = max(1, round(VALIDATION * len(train)))
    return dict(zip(SPLITS, (tuple(train[cut:]), tuple(train[:cut]), tuple(test)), strict=True))


def _check(data: LabelledExamples, limit: int | None) -> None:
    if len(data.names) < 2:
        raise BadArgument(f"{len(data.names)} function{'s' * (len(data.names) != 1)}, expected at least 2 to compare")
    for number, name in enumerate(data.names):
        counts = [len(data.indices_in(split, number)) for split in SPLITS]
        if sum(counts) < MIN_EXAMPLES or min(counts) == 0:
            counted = ", ".join(f"{n} {split}" for n, split in zip(counts, SPLITS, strict=True)) + " examples"
            why = f" with limit={limit}" if limit else ""
            raise BadArgument(
                f"function {name!r} has {counted}{why}: too few, expected at least {MIN_EXAMPLES} and some of each"
            )
    examples = [{data.examples[i] for i in np.flatnonzero(data.function == f)} for f in range(len(data.names))]
    for first, second in combinations(range(len(data.names)), 2):
        if examples[first] == examples[second]:
            raise BadArgument(_IDENTICAL.format(data.names[first], data.names[second]))


_IDENTICAL = "functions {!r} and {!r} have identical questions, so no heads can serve only one of them"
