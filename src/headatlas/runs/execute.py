"""Do jobs: every part that is not done yet, on any number of workers, then the result. One way for every engine."""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import xarray as xr

from headatlas.engines.pool import Pool, Reply, WorkItem
from headatlas.errors import CannotDo, HeadAtlasError
from headatlas.methods.method import Method
from headatlas.progress import Progress, Watch, silent
from headatlas.results.store import Finished
from headatlas.runs.job import Job
from headatlas.runs.messages import Planned, PlanRequest, Step, TimeRequest
from headatlas.runs.timeline import Timeline

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """How a job went: its result, or why there is none; and the seconds that workers spent on it."""

    name: str
    result: xr.Dataset | None
    error: HeadAtlasError | None
    seconds: float


def ask_for_plan(pool: Pool, methods: Sequence[tuple[Method, Mapping[str, Any]]]) -> Planned:
    """Jobs for these methods, planned by a worker, for it has the model."""
    [(_, reply)] = pool.run([WorkItem("plan", "plan", lambda: PlanRequest(methods))])
    if reply.error:
        raise _told("", reply)
    planned: Planned = reply.value
    return planned


def ask_for_time(pool: Pool, jobs: Mapping[str, Job], watch: Watch) -> Timeline:
    """How long jobs will take, by a worker that has the model: the quickest first, what cannot be told last."""
    expected = {name: {job.item(): 0.0} for name, job in jobs.items()}
    if jobs:
        [(_, reply)] = pool.run([WorkItem("time", "time", lambda: TimeRequest(list(jobs.values())))])
        if reply.error:
            log.info("how long it will take cannot be told: %s", reply.error)
        expected = reply.value or expected
    expected = dict(sorted(expected.items(), key=lambda of: sum(of[1].values()) or math.inf))
    timeline = Timeline(expected, pool.backend.size, watch)
    watch.begins(timeline)
    return timeline


def execute(
    pool: Pool,
    jobs: Mapping[str, Job],
    folder: Path,
    progress: Progress = silent,
    timeline: Timeline | None = None,
) -> Iterator[Outcome]:
    """Do jobs; each is yielded when its result is written. Until then its parts are kept in the folder, to resume.

    timeline: is told what begins and ends.
    """
    finished = {name: job.finished_parts(folder) for name, job in jobs.items()}
    counted = silent if pool.backend.local else progress  # a local worker's parts show their own
    timeline = timeline or Timeline({name: {} for name in jobs})
    local = pool.backend.local
    items = [item for name, job in jobs.items() for item in _items(job, finished[name], local, timeline)]
    size = min(pool.backend.size, len(items))
    bar = iter(counted(range(len(items)), f"{len(items)} jobs on {size} worker{'s' * (size != 1)}"))
    seconds = dict.fromkeys(jobs, 0.0)
    failed: set[str] = set()
    try:
        for item, reply in pool.run(items):
            next(bar, None)
            name = item.group
            seconds[name] += reply.seconds
            timeline.end(item.name, reply.seconds)
            if reply.error:
                if name not in failed:
                    failed.add(name)
                    yield Outcome(name, None, _told(item.name, reply), seconds[name])
            elif isinstance(reply.value, xr.Dataset):
                yield _kept(jobs[name], reply.value, folder, finished[name], seconds[name])
            elif not pool.backend.local:
                finished[name].update(reply.value)
        list(bar)
    finally:
        for done in finished.values():
            if not done:
                done.clear()  # nothing to resume


def _items(job: Job, done: Finished, local: bool, timeline: Timeline) -> Iterator[WorkItem]:
    """What of a job is to be sent: parts that are missing, and the result."""
    missing = [part for part in job.parts if any(leaf not in done for leaf in part.outputs)]
    left_by = {leaf: job.item(part.name) for part in missing for leaf in part.outputs}
    for part in missing:
        needed = (*part.inputs, *part.outputs)
        name = job.item(part.name)
        step = partial(_step, job, name, part.do, part.arguments, part.outputs, needed, done, local, timeline)
        needs = frozenset(left_by[leaf] for leaf in part.inputs if leaf in left_by)
        yield WorkItem(name, job.name, step, needs)
    everything = tuple(leaf for part in job.parts for leaf in part.outputs)
    step = partial(_step, job, job.item(), job.combine, job.arguments, (), everything, done, local, timeline)
    yield WorkItem(job.item(), job.name, step, frozenset(left_by.values()))


def _step(
    job: Job,
    item: str,
    do: Any,
    arguments: tuple[Any, ...],
    leaves: tuple[str, ...],
    needed: tuple[str, ...],
    done: Finished,
    local: bool,
    timeline: Timeline,
) -> Step:
    """A local worker gets the folder itself, others the arrays they need from it."""
    timeline.begin(job.name, item)
    arrays = done if local else {leaf: done[leaf] for leaf in needed if leaf in done}
    return Step(job.name, do, arguments, leaves, arrays, job.stamp)


def _kept(job: Job, result: xr.Dataset, folder: Path, done: Finished, seconds: float) -> Outcome:
    try:
        result = job.keep(result, folder)
    except CannotDo as e:
        return Outcome(job.name, None, e, seconds)
    done.clear()
    return Outcome(job.name, result, None, seconds)


def _told(item: str, reply: Reply) -> HeadAtlasError:
    """A worker's error; of another process, with where it was."""
    assert reply.error is not None
    if not reply.where:
        return reply.error
    return CannotDo(f"{item}, on {reply.where}: {reply.error}" if item else f"{reply.where}: {reply.error}")
