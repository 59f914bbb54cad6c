"""Jobs done by workers elsewhere. Each worker loads the model, plans the same jobs, and is asked for their parts by name.

What travels are names, and arrays that parts leave or need; never a model. Parts that come back are kept in the job's folder, as if
they had been done here, so that interrupted work goes on with any engine.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
import xarray as xr

from headatlas.engines.cluster import Cluster
from headatlas.engines.pool import Piece, Pool
from headatlas.engines.processes import Processes
from headatlas.errors import BadArgument, CannotDo, HeadAtlasError, check_choice, check_count
from headatlas.headmap.files import alone_in
from headatlas.headmap.store import Finished, load
from headatlas.models.cost import Cost
from headatlas.models.default import DEFAULT_MODEL
from headatlas.progress import Progress, silent
from headatlas.public.common import Job, Part, check_model, finished_parts, keep, patiently
from headatlas.public.shown import show_maps

ENGINES = ("local", "ray")
MOST_WORKERS = 10_000  # more is a mistake
T = TypeVar("T")


@dataclass(frozen=True)
class Planned:
    """A model, described, and what is to be done with it, by method: a job, or why it cannot be done."""

    model: dict[str, Any]
    title: str
    jobs: Mapping[str, Job | HeadAtlasError]


class Hand:
    """What a worker is."""

    def __init__(
        self, planning: Callable[[], Planned], threads: int, expected: Mapping[str, Any] | None = None
    ) -> None:
        """expected: stamps of the jobs that were planned elsewhere, which this worker must plan too."""
        torch.set_num_threads(threads)  # sums are the same only if they are cut alike
        self.planned = planning()
        for name, stamp in (expected or {}).items():
            self._job(name, stamp)

    def _job(self, name: str, stamp: Mapping[str, Any]) -> Job:
        job = self.planned.jobs[name]
        if not isinstance(job, Job):
            raise job
        for key, value in stamp.items():
            if job.stamp[key] != value:
                raise CannotDo(f"{key} is {job.stamp[key]} there, but {value} where the work was planned")
        return job

    def __call__(self, what: tuple[Any, ...]) -> Any:
        if what == ("plan",):
            jobs = {name: _sketch(job) if isinstance(job, Job) else job for name, job in self.planned.jobs.items()}
            return replace(self.planned, jobs=jobs)
        name, part_name, stamp, given = what
        job, done = self._job(name, stamp), dict(given)
        if part_name is None:
            return patiently(lambda: job.work(done, silent))
        part = next(p for p in job.parts if p.name == part_name)
        patiently(lambda: part.do(done, silent))
        return {leaf: done[leaf] for leaf in part.leaves}


def _sketch(job: Job) -> Job:
    """A job without what cannot travel."""
    parts = [replace(part, do=_elsewhere, cost=Cost) for part in job.parts]
    return replace(job, work=_elsewhere, progress=silent, parts=parts, cost=Cost)


def _elsewhere(*_: Any) -> Any:
    raise AssertionError("this is done by workers")


def hired(
    planning: Callable[[], Planned],
    engine: str,
    address: str | None,
    gpus_per_job: int | None,
    workers: int | None,
    device: str,
) -> Pool | None:
    """Workers as asked for; none, where this process does the work itself."""
    check_choice("engine", engine, ENGINES)
    if address is not None and engine != "ray":
        raise BadArgument(
            f"address is {address!r}, but the engine is {engine}: a cluster's address goes with engine ray"
        )
    for name, value in (("gpus_per_job", gpus_per_job), ("workers", workers)):
        least = 0 if name == "gpus_per_job" else 1
        if value is not None:
            check_count(name, value, least, MOST_WORKERS)
    make = partial(Hand, planning, torch.get_num_threads())
    if engine == "ray":
        of_each = 0 if device == "cpu" else gpus_per_job
        return Pool(Cluster(make, address, of_each, torch.get_num_threads(), workers))
    there, each = torch.cuda.device_count() if device in ("auto", "cuda") else 0, gpus_per_job or 1
    if gpus_per_job == 0:
        there = 0
    if gpus_per_job == 1 and device.startswith("cuda:"):
        return None
    if gpus_per_job and gpus_per_job > there:
        raise BadArgument(
            f"gpus-per-job is {gpus_per_job}, but this machine has {there or 'no'} GPU{'s' * (there != 1)} to use"
        )
    if workers is None and there < 2 * each:
        return None
    names = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    names = names if len(names) >= there and names != [""] else [str(i) for i in range(there)]
    gpus = [",".join(names[a : a + each]) for a in range(0, there - each + 1, each)]
    if workers is not None and gpus and workers > len(gpus):
        raise BadArgument(f"workers is {workers}, but there are GPUs for {len(gpus)}")
    return Pool(Processes(make, workers or len(gpus), gpus))


def for_workers(path: str | Path) -> str:
    """A path as others can follow it; a name as it is."""
    if path == DEFAULT_MODEL or not Path(path).expanduser().exists():
        return str(path)
    return str(Path(path).expanduser().absolute())


def count_workers(engine: str, address: str | None, gpus_per_job: int | None, device: str) -> int:
    """How many workers `hired` would hire."""
    pool = hired(_no_planning, engine, address, gpus_per_job, None, device)
    if pool is None:
        return 1
    with pool:
        return pool.crew.size


def _no_planning() -> Planned:
    raise AssertionError("nothing is planned to be counted")


def ask_for_plan(pool: Pool) -> Planned:
    [(_, answer)] = pool.run([Piece("plan", "plan", lambda: ("plan",))])
    if answer.error:
        raise CannotDo(f"{answer.where}: {answer.error}")
    planned: Planned = answer.value
    stamps = {name: job.stamp for name, job in planned.jobs.items() if isinstance(job, Job)}
    pool.crew.make_one = partial(pool.crew.make_one, expected=stamps)  # type: ignore[call-arg]
    return planned


@dataclass(frozen=True)
class Outcome:
    """How a job went: its result, or why there is none; and the seconds that workers spent on it."""

    found: xr.Dataset | None
    why: str
    seconds: float


def spread(pool: Pool, jobs: Mapping[str, Job], progress: Progress = silent) -> Iterator[tuple[str, Outcome]]:
    """Do jobs on workers; each comes when it is finished, with its parts still in its folder."""
    pieces: list[Piece] = []
    folders = {name: finished_parts(job) for name, job in jobs.items()}
    for name, job in jobs.items():
        missing = [part for part in job.parts if part.missing(folders[name])]
        left_by = {leaf: f"{name}: {part.name}" for part in missing for leaf in part.leaves}
        for part in missing:
            what = partial(_question, name, job, part, folders[name])
            needs = frozenset(left_by[leaf] for leaf in part.needs if leaf in left_by)
            pieces.append(Piece(f"{name}: {part.name}", name, what, needs))
        what = partial(_question, name, job, None, folders[name])
        pieces.append(Piece(f"{name}: result", name, what, frozenset(left_by.values())))
    seconds = dict.fromkeys(jobs, 0.0)
    size = min(pool.crew.size, len(pieces))
    bar = iter(progress(range(len(pieces)), f"{len(pieces)} jobs on {size} worker{'s' * (size != 1)}"))
    given_up: set[str] = set()
    for piece, answer in _cleared(pool.run(pieces), folders.values()):
        next(bar, None)
        name = piece.group
        seconds[name] += answer.seconds
        if answer.error:
            if name not in given_up:
                given_up.add(name)
                where = f", on {answer.where}" if answer.where else ""
                yield name, Outcome(None, f"{piece.name}{where}: {answer.error}", seconds[name])
        elif isinstance(answer.value, xr.Dataset):
            yield name, Outcome(answer.value, "", seconds[name])
        else:
            folders[name].update(answer.value)
    list(bar)


def _cleared(answers: Iterator[T], folders: Iterable[Finished]) -> Iterator[T]:
    """Answers; in the end, folders in which nothing was begun that could go on are gone."""
    try:
        yield from answers
    finally:
        for done in folders:
            if not done:
                done.clear()


def finish_elsewhere(pool: Pool, name: str, out: Path, progress: Progress) -> xr.Dataset:
    """`common.finish` on workers, of the one job that they plan."""
    job = ask_for_plan(pool).jobs[name]
    if not isinstance(job, Job):
        raise job
    job = replace(job, out=out)
    with alone_in(out):
        if job.state == "done":
            return show_maps(load(job.path))
        check_model(job)
        [(_, outcome)] = spread(pool, {name: job}, progress)
        if outcome.found is None:
            raise CannotDo(outcome.why)
        return show_maps(keep(job, outcome.found, finished_parts(job)))


def _question(name: str, job: Job, part: Part | None, done: Finished) -> tuple[Any, ...]:
    wanted = [leaf for p in job.parts for leaf in p.leaves] if part is None else [*part.needs, *part.leaves]
    return name, None if part is None else part.name, job.stamp, {leaf: done[leaf] for leaf in wanted if leaf in done}
