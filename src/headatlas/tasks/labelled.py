"""Examples of several functions: cognitive questions, tasks, relations, languages, or a user's own.

Each is a prompt with a target, the function it calls for, and the split it belongs to. Those of one group begin alike
(a main question, worked examples), so their beginning is run only once.
"""

import hashlib
import logging
from collections.abc import Iterable, Iterator, Sequence
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
from headatlas.tasks.questions import FEWEST, SPLITS, Question, function_names, load_questions, with_answer
from headatlas.tasks.relations import Relation, load_relations
from headatlas.tasks.used import Used, used_questions, used_rows

log = logging.getLogger(__name__)

VALIDATION = 0.2  # of the training examples of tasks, which have no such split


@dataclass(frozen=True)
class Labelled:
    """Examples, and of each its function (a number into `names`), its split and its group; the rows they are from."""

    names: tuple[str, ...]
    examples: tuple[TokenExample, ...]
    function: np.ndarray
    split: np.ndarray
    group: np.ndarray
    used: Used

    def of(self, split: str, function: int | None = None) -> list[int]:
        """The examples of a split, and of a function."""
        here = self.split == split
        return np.flatnonzero(here if function is None else here & (self.function == function)).tolist()

    def bundles(self, examples: Iterable[int]) -> tuple[list[Bundle], list[list[int]]]:
        """Examples in bundles, group by group, and which ones each bundle has."""
        groups: dict[int, list[int]] = {}
        for i in examples:
            groups.setdefault(int(self.group[i]), []).append(i)
        return [make_bundle([self.examples[i] for i in g]) for g in groups.values()], list(groups.values())

    def hash(self) -> str:
        """A short hash of what is asked, for provenance and resuming."""
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
    each: int | None = None,
    shots: int | None = None,
    template: bool = True,
    seed: int = 0,
) -> Labelled:
    """Examples of every function, with splits.

    tasks: each is a function: names of built-in tasks and relations, files and lists as `gate` takes them, {name:
    examples}, Relations. Of a single task, each `kind` is a function. questions: built in, by name, or a file
    or a list in the CogQA layout; without tasks and questions, the built-in 'varied'. limit: about so many examples, of
    each split its share; each: without a limit, so many of each function.
    """
    if tasks is not None and questions is not None:
        raise BadArgument("tasks and questions are both given: give one or the other")
    if tasks is not None and test is not None:
        raise BadArgument("test goes with questions only: of tasks, mark held_out examples as such")
    wanted: list[str] | str | None = None
    if functions is not None:
        wanted = "all" if isinstance(functions, str) and functions == "all" else list_names("functions", functions)
    if tasks is None:
        questions = list(questions) if isinstance(questions, Iterator) else questions
        data = _from_questions(lm, questions, test, wanted, context, limit, each, template, seed)
    else:
        data = _from_tasks(lm, _tasks(lm, tasks, shots), wanted, limit, each, seed)
    _check(data, limit)
    return data


def log_p_per_token(
    lm: LM,
    data: Labelled,
    examples: Sequence[int] | None = None,
    gates: Tensor | None = None,
    batch_tokens: int | None = None,
) -> Tensor:
    """Mean log P per answer token of examples (without them, of all) under each gate: [gate, example]."""
    examples = range(len(data.examples)) if examples is None else examples
    bundles, on = data.bundles(examples)
    log_p, _ = batched_log_probs(lm, bundles, gates, batch_tokens)
    place = {i: k for k, i in enumerate(i for bundle in on for i in bundle)}
    lengths = torch.tensor([len(data.examples[i].target) for i in examples])
    return log_p[:, [place[i] for i in examples]] / lengths


def _from_questions(
    lm: LM,
    data: Any,
    test: Any,
    functions: Sequence[str] | str | None,
    context: str,
    limit: int | None,
    each: int | None,
    template: bool,
    seed: int,
) -> Labelled:
    def read(limit: int | None) -> list[Question]:
        return load_questions(data, test, context=context, functions=functions, limit=limit, seed=seed)

    questions = read(limit)
    names = function_names(questions)
    if limit is None and each is not None and len(questions) > each * len(names):
        log.info("using about %d of %d questions (limit)", each * len(names), len(questions))
        questions = read(each * len(names))
    groups: dict[str, int] = {}
    return Labelled(
        tuple(names),
        tuple(with_answer(lm, q, q.answer, template) for q in questions),
        np.array([names.index(q.function) for q in questions]),
        np.array([q.split for q in questions]),
        np.array([groups.setdefault(q.group, len(groups)) for q in questions]),
        used_questions(questions),
    )


def _tasks(lm: LM, tasks: Any, shots: int | None) -> list[Task]:
    listed = list_tasks("tasks", [tasks] if isinstance(tasks, Relation) else tasks)
    loaded = [named_task(lm, name, task, shots) for name, task in listed]
    if len(loaded) == 1 and len(loaded[0].kinds) > 1 and not listed[0][0]:
        return _by_kind(loaded[0])
    check_task_names(loaded)
    return loaded


def named_task(lm: LM | Parameters, name: str, task: Any, shots: int | None = None) -> Task:
    """A task or a relation, as a task. name: what the user calls it, or ''."""
    if isinstance(task, str):
        check_task(task, relation_names())
        task = next((r for r in load_relations() if r.name == task), task)
    if isinstance(task, Relation):
        if task.prompt is None:
            raise BadArgument(f"relation {task.name!r} has no prompt to ask it with")
        pairs = [(Example(task.row(s), f" {t}"), "") for s, t in task.pairs]
        return split_examples(name or task.name, pairs)
    return load_tasks(lm, {name: task} if name else [task], shots)[0]


def _by_kind(task: Task) -> list[Task]:
    def of(examples: tuple[Example, ...], kind: str) -> tuple[Example, ...]:
        return tuple(e for e in examples if e.kind == kind)

    return [replace(task, name=k, train=of(task.train, k), held_out=of(task.held_out, k)) for k in task.kinds]


def _from_tasks(
    lm: LM, tasks: list[Task], functions: list[str] | str | None, limit: int | None, each: int | None, seed: int
) -> Labelled:
    names = [t.name for t in tasks]
    if isinstance(functions, list):
        for name in functions:
            if name not in names:
                raise BadArgument(f"functions has {name!r}; there are {', '.join(names)}.{did_you_mean(name, names)}")
        tasks = [t for t in tasks if t.name in functions]
    for one, other in combinations(tasks, 2):
        if _all(one) == _all(other):
            raise BadArgument(_SAME.format(one.name, other.name))
    tested = {(e.prompt, e.target) for task in tasks for e in task.held_out}
    examples: list[TokenExample] = []
    function: list[int] = []
    split: list[str] = []
    group: list[int] = []
    rows: list[Example] = []
    for number, task in enumerate(tasks):
        kept = tuple(e for e in task.train if (e.prompt, e.target) not in tested)
        if len(kept) < len(task.train):
            log.info("%s: left %d examples out of training: they are tested", task.name, len(task.train) - len(kept))
        most = each if limit is None else max(1, limit // len(tasks))
        parts = _splits(replace(task, train=kept), most, seed)
        shown = tuple(e for e in kept if e not in set(parts["validation"]))  # worked examples
        rows += [e for part in parts.values() for e in part]
        rows += shown if task.shots else ()  # any of them may be a few-shot example
        for name, part in parts.items():
            for bundle in bundles_of(lm, replace(task, train=shown, held_out=part), "held_out", seed):
                group += [group[-1] + 1 if group else 0] * len(bundle.examples)
                examples += bundle.examples
                function += [number] * len(bundle.examples)
                split += [name] * len(bundle.examples)
    labels = tuple(t.name for t in tasks)
    used = used_rows(tasks, rows)
    return Labelled(labels, tuple(examples), np.array(function), np.array(split), np.array(group), used)


def _all(task: Task) -> set[tuple[Any, Any]]:
    return {(e.prompt, e.target) for e in (*task.train, *task.held_out)}


def _splits(task: Task, limit: int | None, seed: int) -> dict[str, tuple[Example, ...]]:
    """Held-out examples are the test split; a fifth of the rest is for validation. limit: shared among the splits."""
    generator = np.random.default_rng([seed, *task.name.encode()])
    train, test = ([part[i] for i in generator.permutation(len(part))] for part in (task.train, task.held_out))
    if limit is not None:
        train, test = train[: max(2, round(limit * 0.8))], test[: max(1, round(limit * 0.2))]
    cut = max(1, round(VALIDATION * len(train)))
    return dict(zip(SPLITS, (tuple(train[cut:]), tuple(train[:cut]), tuple(test)), strict=True))


def _check(data: Labelled, limit: int | None) -> None:
    if len(data.names) < 2:
        raise BadArgument(
            f"{len(data.names)} function{'s' * (len(data.names) != 1)}, expected at least 2: nothing to tell apart"
        )
    for number, name in enumerate(data.names):
        counts = [len(data.of(split, number)) for split in SPLITS]
        if sum(counts) < FEWEST or min(counts) == 0:
            counted = ", ".join(f"{n} to {what}" for n, what in zip(counts, ("fit", "choose", "test"), strict=True))
            why = f" with limit={limit}" if limit else ""
            raise BadArgument(
                f"function {name!r} has {counted}{why}: too few, expected at least {FEWEST} and some of each"
            )
    examples = [{data.examples[i] for i in np.flatnonzero(data.function == f)} for f in range(len(data.names))]
    for one, other in combinations(range(len(data.names)), 2):
        if examples[one] == examples[other]:
            raise BadArgument(_SAME.format(data.names[one], data.names[other]))


_SAME = "functions {!r} and {!r} have identical questions: nothing can lose one and keep the other"
