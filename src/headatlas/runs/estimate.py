"""What `run` would take: jobs, seconds and memory, without loading the model or running anything of it."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from headatlas.errors import HeadAtlasError
from headatlas.methods.method import Method
from headatlas.models.cost import Machine, measure_machine
from headatlas.models.default_model import DEFAULT_MODEL
from headatlas.models.loading import check_device, load_skeleton
from headatlas.models.memory import SPARE, Memory, check_room, good_on_gpu, memory, tokens_at_once
from headatlas.progress import Progress, doing, silent
from headatlas.runs.job import Job, Jobs
from headatlas.runs.request import check_run
from headatlas.runs.worker import Model, job_of, model_stamp, work_of


@dataclass(frozen=True)
class Estimate:
    """jobs: by method, how many there are and the seconds of each; or why it cannot be done."""

    title: str
    machine: Machine
    memory: Memory
    at_once: int  # tokens
    jobs: dict[str, list[float] | str]
    seconds: float  # with so many workers
    workers: int

    @property
    def work(self) -> float:
        """Seconds of all jobs together."""
        return sum(sum(each) for each in self.jobs.values() if not isinstance(each, str))


def estimate(
    model: str | Path = DEFAULT_MODEL,
    *,
    preset: str = "quick",
    methods: Sequence[str] | str | None = None,
    functions: Sequence[str] | str | None = None,
    workers: int = 1,
    gpus_per_job: int = 1,
    device: str = "auto",
    dtype: str = "auto",
    machine: Machine | None = None,
    progress: Progress = silent,
) -> Estimate:
    """Plan a run on so many workers, each as fast as this machine. preset, methods, functions: as in `run`."""
    request = check_run(preset, methods, functions)
    place = check_device(device)
    with doing(progress, f"reading the configuration of {model}"):
        lm, precision = load_skeleton(model, dtype, device)
    jobs = _plan(lm, request, progress)
    needs, at_once = memory(lm.model, lm.n_layers, precision), tokens_at_once(lm, None)
    if place.type == "cuda":
        room = gpus_per_job * (torch.cuda.get_device_properties(place).total_memory - SPARE)
        check_room(lm.name, needs, precision, room + gpus_per_job * SPARE, gpus_per_job)
        lm.state.planned_tokens = at_once = min(good_on_gpu(lm), needs.largest(room))
    with doing(progress, f"timing {place} on copies of the model with few layers"):
        machine = machine or measure_machine(lm.model.config, lm.n_layers, place, precision)
    seconds = {name: _seconds(jobs[name], lm, machine) for name in progress(list(jobs), "adding up what the jobs take")}
    return Estimate(
        f"{lm.name}: {lm.n_layers} layers × {lm.n_heads} heads, {str(precision).removeprefix('torch.')}",
        machine,
        needs,
        at_once,
        seconds,
        makespan(jobs, seconds, workers),
        workers,
    )


def _plan(model: Model, methods: Sequence[tuple[Method, Mapping[str, Any]]], progress: Progress) -> Jobs:
    jobs: dict[str, Job | HeadAtlasError] = {}
    stamp = model_stamp(model)
    for method, options in progress(methods, "planning"):
        try:
            jobs[method.name] = job_of(method, work_of(method, model, options), stamp)
        except HeadAtlasError as e:
            jobs[method.name] = e
    return jobs


def _seconds(job: Job | HeadAtlasError, model: Model, machine: Machine) -> list[float] | str:
    """Of each part, and of the result in the end; or why there is none. What has no estimate counts as nothing."""
    if isinstance(job, HeadAtlasError):
        return str(job)
    return list(job.expected(model, machine).values())


def makespan(jobs: Jobs, seconds: Mapping[str, Sequence[float] | str], workers: int) -> float:
    """When the last job ends, if each worker takes the next one that can begin, as `engines.pool` does."""
    waiting: list[tuple[float, frozenset[str], frozenset[str]]] = []  # seconds, what it leaves, what it needs
    for name, job in jobs.items():
        each = seconds[name]
        if isinstance(job, Job) and not isinstance(each, str):
            for part, of_part in zip(job.parts, each, strict=False):
                leaves, needs = (frozenset(f"{name} {x}" for x in xs) for xs in (part.outputs, part.inputs))
                waiting.append((of_part, leaves, needs))
            everything = frozenset(f"{name} {leaf}" for part in job.parts for leaf in part.outputs)
            waiting.append((each[-1], frozenset(), everything))
    now, done, busy = 0.0, set[str](), list[tuple[float, int, frozenset[str]]]()
    while waiting or busy:
        for one in [w for w in waiting if w[2] <= done][: workers - len(busy)]:
            waiting.remove(one)
            heapq.heappush(busy, (now + one[0], id(one), one[1]))
        now, _, leaves = heapq.heappop(busy)
        done |= leaves
    return now
