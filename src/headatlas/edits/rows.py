"""Rows to test an edit on: none that a map which chose its heads has used, asked with as many few-shot examples."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from headatlas.errors import BadArgument, BadFile, one_line
from headatlas.models.lm import LM
from headatlas.models.loading import Parameters
from headatlas.results.atlas import Atlas
from headatlas.results.used import recorded_rows
from headatlas.tasks.built_in import BUILT_IN, relation_names
from headatlas.tasks.labelled import named_task
from headatlas.tasks.prompts import Task, check_shots, check_task_names, list_tasks
from headatlas.tasks.used import Used, row_id

ROWS = "headatlas-rows.json"  # beside an edited checkpoint, for `evaluate`
MIN_ROWS = 8  # test rows of a task that a map was made from


@dataclass(frozen=True)
class UsedRows:
    """What the maps that chose heads used, and the other maps of their atlas.

    by_method: rows and shots of every map; those that chose heads come first. subjects: the tasks that heads were
    chosen for. unknown: the maps that chose heads and do not record their rows.
    """

    by_method: Mapping[str, Used] = field(default_factory=dict)
    subjects: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    def __or__(self, other: "UsedRows") -> "UsedRows":
        both = {name: self.by_method.get(name, Used()) | used for name, used in other.by_method.items()}
        return UsedRows(
            {**self.by_method, **both}, self.subjects + other.subjects, tuple({*self.unknown, *other.unknown})
        )

    def shots(self, task: Task) -> int:
        """The few-shot examples that the map of this task had; for other rows of yours, the subject's."""
        built_in = task.name in BUILT_IN or task.name in relation_names()
        names = [task.name] if built_in else [task.name, *self.subjects]
        found = [used.shots[name] for name in names for used in self.by_method.values() if name in used.shots]
        return found[0] if found else task.shots


def rows_of_atlas(atlas: Atlas, choosers: Iterable[str] = (), subjects: Iterable[str] = ()) -> UsedRows:
    """The rows that maps of an atlas used. choosers: the methods that chose heads; without any, all may have."""
    chosen = list(dict.fromkeys(choosers)) or list(atlas)
    found = {name: recorded_rows(atlas[name]) for name in dict.fromkeys([*chosen, *atlas])}
    unknown = tuple(name for name in chosen if found[name] is None)
    return UsedRows({name: used for name, used in found.items() if used is not None}, tuple(subjects), unknown)


def rows_of_checkpoint(folder: Path) -> UsedRows:
    """The rows that `edit` noted beside a checkpoint; none beside others."""
    path = folder / ROWS
    if not path.is_file():
        return UsedRows()
    try:
        noted = json.loads(path.read_text(encoding="utf-8"))
        maps = {n: Used(frozenset(map(int, one["rows"])), one["shots"]) for n, one in noted["maps"].items()}
        return UsedRows(maps, tuple(noted["subjects"]), tuple(noted["unknown"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise BadFile(f"cannot read {path}: {one_line(e)}") from e


def write_rows(used: UsedRows, folder: Path) -> None:
    """Note rows beside a checkpoint, for `evaluate`."""
    maps = {name: {"rows": sorted(one.rows), "shots": dict(one.shots)} for name, one in used.by_method.items()}
    noted = {"maps": maps, "subjects": used.subjects, "unknown": used.unknown}
    (folder / ROWS).write_text(json.dumps(noted) + "\n", encoding="utf-8")


def load_tests(
    model: LM | Parameters, tasks: Any, used: UsedRows, limit: int, shots: int | None
) -> tuple[list[Task], dict[str, str]]:
    """Tasks with nothing but test rows held out; and by name, why there are too few of other tasks."""
    loaded = [named_task(model, name, task) for name, task in list_tasks("tasks", tasks)]
    check_task_names(loaded)
    tests, refused = [], {}
    for task in loaded:
        try:
            tests.append(_test(task, used, limit, shots))
        except BadArgument as e:
            refused[task.name] = str(e)
    return tests, refused


def _test(task: Task, used: UsedRows, limit: int, shots: int | None) -> Task:
    """The task with test rows, which no map used, held out, and only other rows to show as few-shot examples.

    Test rows are held-out ones, and where these do not suffice, training rows.
    """
    rows = {row_id(e): e for e in (*task.train, *task.held_out)}
    counts = {name: len(one.rows & rows.keys()) for name, one in used.by_method.items()}
    unused = {i: e for i, e in rows.items() if not any(i in one.rows for one in used.by_method.values())}
    tested = list(task.held_out)
    if used.unknown:
        raise BadArgument(
            f"task {task.name!r} cannot be tested: {', '.join(f'{name}.nc' for name in used.unknown)} does not record"
            " the rows it used; make this map again with this version of HeadAtlas (a plug-in must set Work.used)"
        )
    if len(unused) < len(rows):
        if len(unused) < (least := min(limit, MIN_ROWS)):
            by = ", ".join(f"{name} {n}" for name, n in counts.items() if n)
            raise BadArgument(
                f"task {task.name!r} has {len(rows)} rows, the maps used {len(rows) - len(unused)} of them ({by}) and"
                f" {len(unused)} are left to test on, expected at least {least}: give a file with more rows as a task,"
                " or make the maps from fewer rows"
            )
        held_out = {row_id(e) for e in task.held_out}
        tested = [e for i, e in unused.items() if i in held_out]
        others = [e for i, e in unused.items() if i not in held_out]
        order = np.random.default_rng(0).permutation(len(others))
        tested += [others[i] for i in order[: max(0, limit - len(tested))]]
    ids, prompts = {row_id(e) for e in tested}, {e.prompt for e in tested}
    shown = [e for i, e in rows.items() if i not in ids and e.prompt not in prompts]
    if len(unused) == len(rows):
        shown = [e for e in task.train if e.prompt not in prompts]
    test = replace(task, train=tuple(shown), held_out=tuple(tested))
    test = replace(test, shots=used.shots(task) if shots is None else shots)
    check_shots(test)
    return test
