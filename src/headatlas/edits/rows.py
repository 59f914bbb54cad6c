"""Find rows to test an edit on: rows that the maps of its atlas did not use, with as many few-shot examples."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

from headatlas.errors import BadArgument, BadFile, one_line
from headatlas.evidence.fresh_prompts import MIN_PROMPTS, fresh_rows, with_test_rows
from headatlas.models.lm import LM
from headatlas.models.loading import Parameters
from headatlas.results.atlas import Atlas
from headatlas.results.used import recorded_rows
from headatlas.tasks.built_in import BUILT_IN, relation_names
from headatlas.tasks.labelled import named_task
from headatlas.tasks.prompts import Example, Task, check_shots, check_task_names, list_tasks
from headatlas.tasks.used import Used, row_id

# In the folder of an edited checkpoint, for `evaluate`.
ROWS = "headatlas-rows.json"


@dataclass(frozen=True)
class UsedRows:
    """The rows that maps of an atlas used.

    by_method: rows and shots of every map; maps that heads were selected by come first. subjects: the tasks that heads
    were selected for. unknown: maps that heads were selected by and that do not record their rows.
    """

    by_method: Mapping[str, Used] = field(default_factory=dict)
    subjects: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    def __or__(self, other: "UsedRows") -> "UsedRows":
        both = {name: self.by_method.get(name, Used()) | used for name, used in other.by_method.items()}
        return UsedRows(
            {**self.by_method, **both}, self.subjects + other.subjects, tuple({*self.unknown, *other.unknown})
        )

    @property
    def all(self) -> Used:
        """The rows and shots of all maps together."""
        return reduce(or_, reversed(list(self.by_method.values())), Used())

    def shots(self, task: Task) -> int:
        """Return how many few-shot examples the map of this task had; for your tasks, also those of the subjects."""
        built_in = task.name in BUILT_IN or task.name in relation_names()
        names = [task.name] if built_in else [task.name, *self.subjects]
        recorded = [used.shots[name] for name in names for used in self.by_method.values() if name in used.shots]
        return recorded[0] if recorded else task.shots


def rows_of_atlas(atlas: Atlas, methods: Iterable[str] = (), subjects: Iterable[str] = ()) -> UsedRows:
    """Return the rows that maps of an atlas used. methods: those that heads were selected by (default: all)."""
    selecting = list(dict.fromkeys(methods)) or list(atlas)
    used_rows = {name: recorded_rows(atlas[name]) for name in dict.fromkeys([*selecting, *atlas])}
    unknown = tuple(name for name in selecting if used_rows[name] is None)
    return UsedRows({name: used for name, used in used_rows.items() if used is not None}, tuple(subjects), unknown)


def rows_of_checkpoint(folder: Path) -> UsedRows:
    """Return the rows that `edit` recorded in the folder of a checkpoint; none for other checkpoints."""
    path = folder / ROWS
    if not path.is_file():
        return UsedRows()
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        maps = {name: Used(frozenset(map(int, used["rows"])), used["shots"]) for name, used in record["maps"].items()}
        return UsedRows(maps, tuple(record["subjects"]), tuple(record["unknown"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise BadFile(f"cannot read {path}: {one_line(e)}") from e


def write_rows(used: UsedRows, folder: Path) -> None:
    """Record used rows in the folder of a checkpoint, for `evaluate`."""
    maps = {name: {"rows": sorted(rows.rows), "shots": dict(rows.shots)} for name, rows in used.by_method.items()}
    record = {"maps": maps, "subjects": used.subjects, "unknown": used.unknown}
    (folder / ROWS).write_text(json.dumps(record) + "\n", encoding="utf-8")


def load_tests(
    model: LM | Parameters, tasks: Any, used: UsedRows, limit: int, shots: int | None
) -> tuple[list[Task], dict[str, str]]:
    """Load tasks with only test rows held out; and the errors of tasks with too few rows, by name."""
    loaded = [named_task(model, name, task) for name, task in list_tasks("tasks", tasks)]
    check_task_names(loaded)
    tests: list[Task] = []
    refused: dict[str, str] = {}
    for task in loaded:
        try:
            tests.append(_test(task, used, limit, shots))
        except BadArgument as e:
            refused[task.name] = str(e)
    return tests, refused


def _test(task: Task, used: UsedRows, limit: int, shots: int | None) -> Task:
    """Return the task with test rows held out and only other rows for few-shot examples.

    Test rows are rows that no map used: held-out ones first, then training rows if these are too few.
    """
    rows = {row_id(e) for e in (*task.train, *task.held_out)}
    counts = {name: len(map_rows.rows & rows) for name, map_rows in used.by_method.items()}
    if used.unknown:
        raise BadArgument(
            f"task {task.name!r} cannot be tested: {', '.join(f'{name}.nc' for name in used.unknown)} does not record"
            " the rows it used; make this map again with this version of HeadAtlas (a plug-in must set Work.used)"
        )
    # If no map used rows of this task, its held-out rows stay as they are and are never shown.
    tested: Sequence[Example] = task.held_out
    if any(counts.values()):
        unused = fresh_rows(task, used.all, len(rows))
        minimum = min(limit, MIN_PROMPTS)
        if len(unused) < minimum:
            used_counts = ", ".join(f"{name} {n}" for name, n in counts.items() if n)
            raise BadArgument(
                f"task {task.name!r} has {len(rows)} rows, the maps used {len(rows) - len(unused)} of them"
                f" ({used_counts}) and {len(unused)} are left to test on, expected at least {minimum}:"
                " give a file with more rows as a task, or make the maps from fewer rows"
            )
        tested = unused[:limit]
    test = replace(with_test_rows(task, tested), shots=used.shots(task) if shots is None else shots)
    check_shots(test)
    return test
