"""Examples of several functions, to be told apart: cognitive questions, tasks, relations, languages, or a user's own.

Whatever they come as, each is a prompt with a target, the function it calls for, and the split it belongs to. Those of one
group begin alike (a main question, worked examples), so their beginning need be run only once.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from headatlas.errors import BadArgument, did_you_mean
from headatlas.models.lm import LM
from headatlas.models.targets import Asked, Sheet, make_sheet
from headatlas.tasks.prompts import BUILT_IN, Example, Task, load_tasks, sheets_of, split_examples
from headatlas.tasks.questions import FEWEST, FUNCTIONS, SPLITS, load_questions, with_answer
from headatlas.tasks.relations import Relation, load_relations

VALIDATION = 0.2  # of the training examples of tasks, which have no such split


@dataclass(frozen=True)
class Labelled:
    """What is asked, of which function (a number into `names`), in which split and which group."""

    names: tuple[str, ...]
    asked: tuple[Asked, ...]
    function: np.ndarray
    split: np.ndarray
    group: np.ndarray

    def of(self, split: str, function: int | None = None) -> list[int]:
        """The examples of a split, and of a function."""
        here = self.split == split
        return np.flatnonzero(here if function is None else here & (self.function == function)).tolist()

    def sheets(self, examples: Iterable[int]) -> tuple[list[Sheet], list[list[int]]]:
        """Examples on sheets, group by group, and which ones each sheet has."""
        groups: dict[int, list[int]] = {}
        for i in examples:
            groups.setdefault(int(self.group[i]), []).append(i)
        return [make_sheet([self.asked[i] for i in g]) for g in groups.values()], list(groups.values())

    def hash(self) -> str:
        """A short hash of what is asked, for provenance and resuming."""
        said = repr((self.names, self.asked, self.function.tolist(), self.split.tolist(), self.group.tolist()))
        return hashlib.sha256(said.encode()).hexdigest()[:16]


def load_labelled(
    lm: LM,
    data: Any = None,
    test: Any = None,
    *,
    functions: Sequence[str] | str | None = None,
    context: str = "retrieval",
    limit: int | None = None,
    shots: int | None = None,
    template: bool = True,
    seed: int = 0,
) -> Labelled:
    """Examples of every function, with splits.

    data: nothing for the built-in cognitive questions; a file or list of questions in the CogQA layout; or tasks, each of which
    is a function: names of built-in tasks and relations, files and lists as `gate` takes them, {name: examples}, Relations.
    Of a single task, each `kind` is a function. limit: about so many questions, or examples of tasks, of each split its share.
    """
    if data is None or are_questions(data):
        found = _from_questions(lm, data, test, functions, context, limit, template, seed)
    elif test is not None:
        raise BadArgument("test goes with questions in the CogQA layout only: of tasks, mark held_out examples as such")
    else:
        found = _from_tasks(lm, _tasks(lm, data, shots), functions, limit, seed)
    _check(found)
    return found


def are_questions(data: Any) -> bool:
    """Whether data is in the CogQA layout, rather than tasks."""
    if isinstance(data, str | Path):
        path = Path(data)
        if path.suffix.lower() == ".csv":
            try:
                return "cognitive_skill" in path.open(encoding="utf-8-sig").readline()
            except (OSError, UnicodeDecodeError):
                return False
        return path.suffix.lower() == ".json"
    return isinstance(data, list | tuple) and bool(data) and isinstance(data[0], Mapping) and "generated" in data[0]


def _from_questions(
    lm: LM,
    data: Any,
    test: Any,
    functions: Sequence[str] | str | None,
    context: str,
    limit: int | None,
    template: bool,
    seed: int,
) -> Labelled:
    questions = load_questions(data, test, context=context, functions=functions, limit=limit, seed=seed)
    there = {q.function for q in questions}
    names = [f for f in FUNCTIONS if f in there] + sorted(there - set(FUNCTIONS))
    groups: dict[str, int] = {}
    return Labelled(
        tuple(names),
        tuple(with_answer(lm, q, q.answer, template) for q in questions),
        np.array([names.index(q.function) for q in questions]),
        np.array([q.split for q in questions]),
        np.array([groups.setdefault(q.group, len(groups)) for q in questions]),
    )


def _tasks(lm: LM, data: Any, shots: int | None) -> list[Task]:
    if isinstance(data, Mapping):
        return [replace(_named(lm, examples, shots), name=str(name)) for name, examples in data.items()]
    listed: list[Any] = [data] if isinstance(data, str | Path | Task | Relation) else list(data)
    if listed and all(isinstance(e, Example) or (isinstance(e, Mapping) and "prompt" in e) for e in listed):
        listed = [listed]
    found = [_named(lm, one, shots) for one in listed]
    if len(found) == 1 and len(found[0].kinds) > 1:
        return _by_kind(found[0])
    names = [t.name for t in found]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise BadArgument(f"data has {twice[0]!r} {names.count(twice[0])} times: names must differ")
    return found


def _named(lm: LM, one: Any, shots: int | None) -> Task:
    if isinstance(one, str) and one not in BUILT_IN and not Path(one).suffix and not one.startswith("hf:"):
        known = {r.name: r for r in load_relations()}
        if one not in known:
            choices = (*BUILT_IN, *known)
            raise BadArgument(
                f"data has {one!r}, which is neither a file nor a built-in task ({', '.join(BUILT_IN)}) or relation"
                f" ({', '.join(known)}).{did_you_mean(one, choices)}"
            )
        one = known[one]
    if isinstance(one, Relation):
        if one.prompt is None:
            raise BadArgument(f"relation {one.name!r} has no prompt to ask it with")
        pairs = [(Example(one.prompt.replace("{}", s), f" {t}"), "") for s, t in one.pairs]
        return split_examples(one.name, pairs)
    (task,) = load_tasks(lm, [one], shots)
    return task


def _by_kind(task: Task) -> list[Task]:
    def of(examples: tuple[Example, ...], kind: str) -> tuple[Example, ...]:
        return tuple(e for e in examples if e.kind == kind)

    return [replace(task, name=k, train=of(task.train, k), held_out=of(task.held_out, k)) for k in task.kinds]


def _from_tasks(
    lm: LM, tasks: list[Task], functions: Sequence[str] | str | None, limit: int | None, seed: int
) -> Labelled:
    names = [t.name for t in tasks]
    if functions is not None and functions != "all":
        for name in [functions] if isinstance(functions, str) else functions:
            if name not in names:
                raise BadArgument(f"functions has {name!r}; there are {', '.join(names)}.{did_you_mean(name, names)}")
        tasks = [t for t in tasks if t.name in functions]
    asked: list[Asked] = []
    function: list[int] = []
    split: list[str] = []
    group: list[int] = []
    for number, task in enumerate(tasks):
        for name, part in _splits(task, None if limit is None else max(1, limit // len(tasks)), seed):
            for sheet in sheets_of(lm, replace(task, held_out=part), "held_out", seed):
                group += [group[-1] + 1 if group else 0] * len(sheet.asked)
                asked += sheet.asked
                function += [number] * len(sheet.asked)
                split += [name] * len(sheet.asked)
    return Labelled(tuple(t.name for t in tasks), tuple(asked), np.array(function), np.array(split), np.array(group))


def _splits(task: Task, limit: int | None, seed: int) -> list[tuple[str, tuple[Example, ...]]]:
    """What is held out is for testing; of the rest, a fifth is for choosing. With a limit, of each its share."""
    generator = np.random.default_rng([seed, *task.name.encode()])
    train, test = ([part[i] for i in generator.permutation(len(part))] for part in (task.train, task.held_out))
    if limit is not None:
        train, test = train[: max(2, round(limit * 0.8))], test[: max(1, round(limit * 0.2))]
    cut = max(1, round(VALIDATION * len(train)))
    return list(zip(SPLITS, (tuple(train[cut:]), tuple(train[:cut]), tuple(test)), strict=True))


def _check(data: Labelled) -> None:
    if len(data.names) < 2:
        raise BadArgument(
            f"data has {len(data.names)} function{'s' * (len(data.names) != 1)}, expected at least 2: nothing to tell apart"
        )
    for number, name in enumerate(data.names):
        counts = [len(data.of(split, number)) for split in SPLITS]
        if sum(counts) < FEWEST or min(counts) == 0:
            said = ", ".join(f"{n} to {what}" for n, what in zip(counts, ("fit", "choose", "test"), strict=True))
            raise BadArgument(f"function {name!r} has {said}: too few, expected at least {FEWEST} and some of each")
    for split in SPLITS:
        asked: dict[frozenset[Asked], str] = {}
        for number, name in enumerate(data.names):
            same = frozenset(data.asked[i] for i in data.of(split, number))
            if same in asked:
                raise BadArgument(
                    f"functions {asked[same]!r} and {name!r} have identical questions: nothing can lose one and keep the other"
                )
            asked[same] = name
