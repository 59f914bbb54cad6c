"""How long a run will take: one part of each kind is timed on the model itself, with every loop cut short.

1. Long work runs its loops through `progress(items, label)`. A `Sample` hands on the first items only, and counts the
   others with what these took; loops within loops multiply.
2. Parts that call the same function are of one kind: the first is timed, the others are taken to be as long. Its
   arrays replace those of the others, whose values do not matter, so that later parts and the result can be timed.
3. A part that fails because a loop was cut short is timed up to that point.
"""

import heapq
import logging
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch

from headatlas.models.default_model import DEFAULT_MODEL
from headatlas.models.lm import LM
from headatlas.models.loading import load_skeleton
from headatlas.models.memory import Memory, memory
from headatlas.progress import FinishedParts, Progress, silent
from headatlas.runs.plan import Plan, RunPlan
from headatlas.runs.selection import select_methods
from headatlas.runs.where import Where, WhereOptions, start_workers

log = logging.getLogger(__name__)

MAX_ITEMS = 2  # the first one also fills caches and chooses kernels
MAX_SECONDS = 5.0  # in one loop: items that take long are not repeated
SECONDS_TO_WRITE = 0.5  # to check a result and write it


class Sample:
    """A `Progress` that hands on the first items of every loop, and a clock that counts the others too.

    Args:
        timer: returns the time in seconds; on a GPU, after all queued work is done.
        max_items: number of items of each loop that are done; the last one gives the time of the others.
        max_seconds: time after which no further item of a loop is done.
    """

    def __init__(
        self,
        timer: Callable[[], float] = time.perf_counter,
        max_items: int = MAX_ITEMS,
        max_seconds: float = MAX_SECONDS,
    ) -> None:
        self.timer = timer
        self.max_items = max_items
        self.max_seconds = max_seconds
        self.left_out = 0.0  # seconds

    def clock(self) -> float:
        """Return the time as it would be if every loop had run to its end."""
        return self.timer() + self.left_out

    def __call__(self, items: Sequence[Any], label: str) -> Iterator[Any]:
        seconds = 0.0
        done = 0
        start = self.timer()
        for item in items:
            begin = self.clock()
            yield item
            seconds = self.clock() - begin
            done += 1
            if done == self.max_items or self.timer() - start >= self.max_seconds:
                break
        self.left_out += seconds * (len(items) - done)


def time_plan(plan: Plan, model: Any) -> dict[str, float]:
    """Return the seconds of every part of a plan and of its result, by task."""
    arrays: dict[str, tuple[np.ndarray, ...]] = {}
    timed: dict[Callable[..., Any], tuple[tuple[str, ...], float]] = {}
    seconds = {}
    with _quiet():
        for part in plan.work.parts:
            if part.do not in timed:
                done = {name: arrays[name] for name in part.inputs if name in arrays}
                timed[part.do] = part.outputs, _time(part.do, model, part.arguments, done)
                arrays |= done
            outputs, seconds[plan.task_name(part.name)] = timed[part.do]
            stand_ins = zip(outputs, part.outputs, strict=False)
            arrays |= {name: arrays[stand_in] for stand_in, name in stand_ins if stand_in in arrays}
        result = _time(plan.work.combine, model, plan.work.arguments, arrays)
    return seconds | {plan.task_name(): result + SECONDS_TO_WRITE}


def _time(do: Callable[..., Any], model: Any, arguments: Mapping[str, Any], done: FinishedParts) -> float:
    on_gpu = model is not None and torch.device(model.device).type == "cuda"
    sample = Sample(_now_on_gpu) if on_gpu else Sample()
    begin = sample.clock()
    try:
        do(model, **arguments, done=done, progress=sample)
    except Exception as e:  # noqa: BLE001  # what a cut loop leaves may be of no use to what follows
        log.info("%s was timed up to this: %s: %s", do.__name__, type(e).__name__, e)
    return sample.clock() - begin


def _now_on_gpu() -> float:
    torch.cuda.synchronize()
    return time.perf_counter()


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide warnings about numbers that are wrong because loops were cut short."""
    package = logging.getLogger("headatlas")
    level = package.level
    package.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        package.setLevel(level)


@dataclass(frozen=True)
class Estimate:
    """What a run would take.

    Args:
        title: the model.
        planned: what would be done, and why some of it cannot be.
        tasks: by method, the seconds of each of its tasks.
        seconds: until all is done, with this number of workers.
        tokens: how many are run at once.
    """

    title: str
    planned: RunPlan
    tasks: Mapping[str, Mapping[str, float]]
    seconds: float
    workers: int
    memory: Memory
    tokens: int

    @property
    def work(self) -> float:
        """Seconds of all tasks together."""
        return sum(sum(tasks.values()) for tasks in self.tasks.values())


def estimate(
    model: LM | str | Path = DEFAULT_MODEL,
    *,
    preset: str = "quick",
    methods: Sequence[str] | str | None = None,
    functions: Sequence[str] | str | None = None,
    progress: Progress = silent,
    **where: Unpack[WhereOptions],
) -> Estimate:
    """Estimate a run on `workers` workers (default: one), each as fast as a worker on this machine.

    preset, methods, functions, where: as in `run`.
    """
    selected = select_methods(preset, methods, functions)
    place = Where(**where)
    lm, precision = (model, model.model.dtype) if isinstance(model, LM) else load_skeleton(model, place.dtype, "cpu")
    with start_workers(model, place, progress) as pool:
        planned: RunPlan = pool.ask("plan", selected)
        tasks: dict[str, dict[str, float]] = pool.ask("expected", list(planned.possible.values()))
        tokens: int = pool.ask("tokens_at_once")
    workers = place.workers or 1
    seconds = makespan(planned.possible, tasks, workers)
    model_memory = memory(lm.model, lm.n_layers, precision)
    return Estimate(planned.title, planned, tasks, seconds, workers, model_memory, tokens)


def makespan(plans: Mapping[str, Plan], tasks: Mapping[str, Mapping[str, float]], workers: int) -> float:
    """Return when the last task ends, if each worker takes the next one that can begin, as `engines.pool` does."""
    inputs_of: dict[str, set[str]] = {}
    for plan in plans.values():
        made_by = {name: plan.task_name(part.name) for part in plan.work.parts for name in part.outputs}
        inputs_of |= {plan.task_name(p.name): {made_by[name] for name in p.inputs} for p in plan.work.parts}
        inputs_of[plan.task_name()] = set(made_by.values())
    seconds = {task: of_task for of_plan in tasks.values() for task, of_task in of_plan.items()}
    waiting = list(inputs_of)
    done: set[str] = set()
    busy: list[tuple[float, str]] = []
    elapsed = 0.0
    while waiting or busy:
        for task in [t for t in waiting if inputs_of[t] <= done][: workers - len(busy)]:
            waiting.remove(task)
            heapq.heappush(busy, (elapsed + seconds[task], task))
        elapsed, ended_task = heapq.heappop(busy)
        done.add(ended_task)
    return elapsed
