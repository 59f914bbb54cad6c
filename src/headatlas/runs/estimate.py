"""What `run` would take: jobs, seconds and memory, without loading the model or running anything of it."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import torch

from headatlas.errors import HeadAtlasError
from headatlas.methods.method import Method
from headatlas.models.cost import Machine, measure_machine
from headatlas.models.default_model import DEFAULT_MODEL
from headatlas.models.loading import check_device, load_skeleton
from headatlas.models.memory import SPARE, Memory, check_room, good_on_gpu, memory, tokens_at_once
from headatlas.progress import Progress, doing, silent
from headatlas.runs.plan import Plan, Plans
from headatlas.runs.selection import select_methods
from headatlas.runs.where import Where, WhereOptions
from headatlas.runs.worker import Model, model_stamp, plan_of, work_of


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
    machine: Machine | None = None,
    progress: Progress = silent,
    **where: Unpack[WhereOptions],
) -> Estimate:
    """Estimate a run on so many workers (by default one), each as fast as this machine.

    preset, methods, functions, where: as in `run`.
    """
    selected = select_methods(preset, methods, functions)
    place = Where(**where)
    device, gpus = check_device(place.device), place.gpus_per_job or 1
    with doing(progress, f"reading the configuration of {model}"):
        lm, precision = load_skeleton(model, place.dtype, place.device)
    plans = _plan(lm, selected, progress)
    needs, at_once = memory(lm.model, lm.n_layers, precision), tokens_at_once(lm, None)
    if device.type == "cuda":
        room = gpus * (torch.cuda.get_device_properties(device).total_memory - SPARE)
        check_room(lm.name, needs, precision, room + gpus * SPARE, gpus)
        lm.state.planned_tokens = at_once = min(good_on_gpu(lm), needs.largest(room))
    with doing(progress, f"timing {device} on copies of the model with few layers"):
        machine = machine or measure_machine(lm.model.config, lm.n_layers, device, precision)
    seconds = {
        name: _seconds(plans[name], lm, machine) for name in progress(list(plans), "adding up what the jobs take")
    }
    workers = place.workers or 1
    return Estimate(
        f"{lm.name}: {lm.n_layers} layers × {lm.n_heads} heads, {str(precision).removeprefix('torch.')}",
        machine,
        needs,
        at_once,
        seconds,
        makespan(plans, seconds, workers),
        workers,
    )


def _plan(model: Model, methods: Sequence[tuple[Method, Mapping[str, Any]]], progress: Progress) -> Plans:
    plans: dict[str, Plan | HeadAtlasError] = {}
    stamp = model_stamp(model)
    for method, options in progress(methods, "planning"):
        try:
            plans[method.name] = plan_of(method, work_of(method, model, options), stamp)
        except HeadAtlasError as e:
            plans[method.name] = e
    return plans


def _seconds(plan: Plan | HeadAtlasError, model: Model, machine: Machine) -> list[float] | str:
    """Of each part, and of the result in the end; or why there is none. What has no estimate counts as nothing."""
    if isinstance(plan, HeadAtlasError):
        return str(plan)
    return list(plan.expected(model, machine).values())


def makespan(plans: Plans, seconds: Mapping[str, Sequence[float] | str], workers: int) -> float:
    """When the last job ends, if each worker takes the next one that can begin, as `engines.pool` does."""
    waiting: list[tuple[float, frozenset[str], frozenset[str]]] = []  # seconds, what it leaves, what it needs
    for name, plan in plans.items():
        each = seconds[name]
        if isinstance(plan, Plan) and not isinstance(each, str):
            for part, of_part in zip(plan.work.parts, each, strict=False):
                leaves, needs = (frozenset(f"{name} {x}" for x in xs) for xs in (part.outputs, part.inputs))
                waiting.append((of_part, leaves, needs))
            everything = frozenset(f"{name} {leaf}" for part in plan.work.parts for leaf in part.outputs)
            waiting.append((each[-1], frozenset(), everything))
    now, done, busy = 0.0, set[str](), list[tuple[float, int, frozenset[str]]]()
    while waiting or busy:
        for one in [w for w in waiting if w[2] <= done][: workers - len(busy)]:
            waiting.remove(one)
            heapq.heappush(busy, (now + one[0], id(one), one[1]))
        now, _, leaves = heapq.heappop(busy)
        done |= leaves
    return now
