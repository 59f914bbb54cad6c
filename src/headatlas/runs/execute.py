"""Do plans: every part that is not done yet, on any number of workers, then the results. One way for every engine."""

import logging
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headatlas.engines.pool import Pool, Result, Task, attempt
from headatlas.progress import Progress, silent
from headatlas.results.store import PartFolder
from headatlas.runs.plan import Plan
from headatlas.runs.timeline import Timeline

log = logging.getLogger(__name__)


def execute(
    pool: Pool,
    plans: Mapping[str, Plan],
    folder: Path,
    progress: Progress = silent,
    timeline: Timeline | None = None,
) -> Generator[tuple[str, Result]]:
    """Do plans; yield each method with its result once that is written. Until then, its parts are kept to resume.

    timeline: is told what begins and ends.
    """
    finished = {name: plan.finished_parts(folder) for name, plan in plans.items()}
    counted = silent if pool.backend.local else progress  # a local worker's parts show their own
    timeline = timeline or Timeline(dict.fromkeys(plans, 0.0))
    tasks = [task for name, plan in plans.items() for task in _tasks(plan, finished[name], pool, timeline)]
    size = min(pool.backend.size, len(tasks))
    bar = iter(counted(range(len(tasks)), f"{len(tasks)} jobs on {size} worker{'s' * (size != 1)}"))
    seconds = dict.fromkeys(plans, 0.0)
    failed: set[str] = set()
    try:
        for task, result in pool.run(tasks):
            next(bar, None)
            name, plan = task.group, plans[task.group]
            seconds[name] += result.seconds
            timeline.end(name, result.seconds)
            if result.error is not None:
                if name not in failed:
                    failed.add(name)
                    yield name, Result(error=result.error_at(task.name), seconds=seconds[name])
            elif task.name == plan.task_name():
                written = attempt(lambda plan=plan, value=result.value: plan.write(value, folder))  # type: ignore[misc]
                if written.error is None:
                    finished[name].clear()
                yield name, replace(written, seconds=seconds[name])
            elif not pool.backend.local:
                finished[name].update(result.value)
        list(bar)
    finally:
        for done in finished.values():
            if not done:
                done.clear()  # nothing to resume


def _tasks(plan: Plan, done: PartFolder, pool: Pool, timeline: Timeline) -> Iterator[Task]:
    """What of a plan is to be done: parts whose arrays are missing, and the result."""

    def arguments(
        do: Callable[..., Any], given: Mapping[str, Any], outputs: tuple[str, ...], read: tuple[str, ...]
    ) -> Callable[[], tuple[Any, ...]]:
        """A local worker gets the folder itself, others the arrays they read from it."""

        def make() -> tuple[Any, ...]:
            timeline.begin(plan.method)
            arrays = done if pool.backend.local else {array: done[array] for array in read if array in done}
            return do, given, outputs, arrays, plan.stamp

        return make

    missing = [part for part in plan.work.parts if any(array not in done for array in part.outputs)]
    made_by = {array: plan.task_name(part.name) for part in missing for array in part.outputs}
    for part in missing:
        name = plan.task_name(part.name)
        make = arguments(part.do, part.arguments, part.outputs, (*part.inputs, *part.outputs))
        needs = frozenset(made_by[array] for array in part.inputs if array in made_by)
        yield Task(name, plan.method, "do", make, needs)
    name, work = plan.task_name(), plan.work
    every = tuple(array for part in work.parts for array in part.outputs)
    make = arguments(work.combine, work.arguments, (), every)
    yield Task(name, plan.method, "do", make, frozenset(made_by.values()))
