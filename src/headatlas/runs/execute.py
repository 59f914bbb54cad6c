"""Execute plans on any number of workers: every part that is not done yet, then the results."""

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
    """Execute plans; yield each method with its result once that is written.

    Until then, finished parts are kept in the folder, so that an interrupted run can resume.

    Args:
        timeline: notes when methods begin and end.
    """
    finished = {name: plan.finished_parts(folder) for name, plan in plans.items()}
    # a local worker shows the progress inside each part, which says more than the number of parts
    task_progress = silent if pool.backend.local else progress
    timeline = timeline or Timeline(dict.fromkeys(plans, 0.0))
    tasks = [task for name, plan in plans.items() for task in _tasks(plan, finished[name], pool, timeline)]
    size = min(pool.backend.size, len(tasks))
    bar = iter(task_progress(range(len(tasks)), f"{len(tasks)} jobs on {size} worker{'s' * (size != 1)}"))
    seconds = dict.fromkeys(plans, 0.0)
    failed: set[str] = set()
    try:
        for task, result in pool.run(tasks):
            next(bar, None)
            name = task.group
            plan = plans[name]
            seconds[name] += result.seconds
            timeline.end(name, result.seconds)
            if result.error is not None:
                # parts of the same method may fail on several workers at once
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
        # fewer tasks than planned are run if one fails: let the bar end all the same
        list(bar)
    finally:
        for done in finished.values():
            if not done:
                # removes the empty folder: there is nothing to resume
                done.clear()


def _tasks(plan: Plan, done: PartFolder, pool: Pool, timeline: Timeline) -> Iterator[Task]:
    """Yield the tasks of a plan: parts whose arrays are missing, then the result."""

    def make_arguments(
        do: Callable[..., Any], arguments: Mapping[str, Any], outputs: tuple[str, ...], inputs: tuple[str, ...]
    ) -> Callable[[], tuple[Any, ...]]:
        """Return a function that makes the arguments of `ModelWorker.do`, with the arrays that are done by then."""

        def make() -> tuple[Any, ...]:
            timeline.begin(plan.method)
            # a local worker reads and writes the folder itself; others are sent copies of the arrays that they need
            arrays = done if pool.backend.local else {array: done[array] for array in inputs if array in done}
            return do, arguments, outputs, arrays, plan.stamp

        return make

    work = plan.work
    missing = [part for part in work.parts if any(array not in done for array in part.outputs)]
    made_by = {array: plan.task_name(part.name) for part in missing for array in part.outputs}
    for part in missing:
        # its outputs too: some of them may be done, and are then not computed again
        make = make_arguments(part.do, part.arguments, part.outputs, (*part.inputs, *part.outputs))
        dependencies = frozenset(made_by[array] for array in part.inputs if array in made_by)
        yield Task(plan.task_name(part.name), plan.method, "do", make, dependencies)
    all_arrays = tuple(array for part in work.parts for array in part.outputs)
    make = make_arguments(work.combine, work.arguments, (), all_arrays)
    yield Task(plan.task_name(), plan.method, "do", make, frozenset(made_by.values()))
