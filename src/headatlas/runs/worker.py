"""What does the work: it loads a model once, plans jobs for it, and does their parts.

It lives in this process, in another one, or on a Ray cluster. It is sent `PlanRequest`s and `Step`s: plain data.
"""

import gc
import hashlib
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import xarray as xr

from headatlas.errors import CannotDo, HeadAtlasError, OutOfMemory, one_line
from headatlas.methods.method import Method, Work
from headatlas.models.cost import Cost, measure_loaded
from headatlas.models.lm import LM
from headatlas.models.loading import Parameters, load, load_skeleton, open_parameters
from headatlas.progress import Done, Progress, doing, silent
from headatlas.results.provenance import describe_model, describe_run, describe_weights, flat
from headatlas.runs.job import Job
from headatlas.runs.messages import ModelSource, Planned, PlanRequest, Step, TimeRequest
from headatlas.tasks.used import Used

T = TypeVar("T")
# options that name rows: which of them a method uses, only its `Work` can say
_DATA = {"tasks", "questions", "relations", "needles", "texts"}
Model = LM | Parameters
log = logging.getLogger(__name__)


class ModelWorker:
    """threads: of torch, for sums are the same only if they are cut alike."""

    def __init__(self, source: ModelSource, threads: int | None = None, progress: Progress = silent) -> None:
        if threads is not None:
            torch.set_num_threads(threads)
        self.source, self.progress = source, progress
        self.model: Model | None = source.model if isinstance(source.model, LM) else None
        self.held = ExitStack()
        self.stamp: dict[str, Any] = {}

    def __call__(self, message: PlanRequest | TimeRequest | Step) -> Any:
        if isinstance(message, PlanRequest):
            return self.plan(message.methods)
        return self.expected(message.jobs) if isinstance(message, TimeRequest) else self.do(message)

    def close(self) -> None:
        self.held.close()

    # --- planning

    def plan(self, methods: Sequence[tuple[Method, Mapping[str, Any]]]) -> Planned:
        """Plan on a model without weights, so that wrong arguments are told before any are loaded."""
        bare = self._bare(not any(method.needs_model for method, _ in methods))
        works = [(method, _work_or_error(method, bare, options, self.progress)) for method, options in methods]
        planned = [work for _, work in works if isinstance(work, Work)]
        if not planned:
            return Planned(*_described(bare), {m.name: w for m, w in works if isinstance(w, HeadAtlasError)})
        model = self.loaded(any(work.needs_model for work in planned), bare)
        jobs = {m.name: job_of(m, work, self.stamp) if isinstance(work, Work) else work for m, work in works}
        return Planned(*_described(model), jobs)

    def _bare(self, parameters: bool) -> Model:
        """The model without its weights, unless it is loaded already."""
        if self.model is not None:
            return self.model
        source = self.source
        assert not isinstance(source.model, LM)
        with doing(self.progress, f"opening {source.model}"):
            if parameters:
                return open_parameters(source.model, source.device)
            return load_skeleton(source.model, source.dtype, source.device)[0]

    def loaded(self, loads: bool, bare: Model | None = None) -> Model:
        """The model, with its weights hashed once for all that is stamped."""
        if self.model is None or (loads and not isinstance(self.model, LM)):
            source = self.source
            assert not isinstance(source.model, LM)
            if loads:
                tokenizer = bare._tokenizer if isinstance(bare, LM) else None
                with doing(self.progress, f"loading {source.model}"):
                    spread = "auto" if source.spread else None
                    self.model = load(source.model, source.device, source.dtype, tokenizer=tokenizer, device_map=spread)
            else:
                self.model = bare if isinstance(bare, Parameters) else open_parameters(source.model, source.device)
            self.stamp = {}
        if not self.stamp:
            with doing(self.progress, f"reading the weights of {self.model.name} for their fingerprint"):
                self.held.enter_context(self.model.weights.unchanged())
                self.stamp = model_stamp(self.model)
        return self.model

    def expected(self, jobs: Sequence[Job]) -> dict[str, dict[str, float]]:
        """Seconds of every item of work, by job; without the model in memory, none is known."""
        if not isinstance(self.model, LM):
            return {job.name: dict.fromkeys([*(job.item(p.name) for p in job.parts), job.item()], 0.0) for job in jobs}
        with doing(self.progress, "estimating how long it will take"):
            machine = measure_loaded(self.model)
            return {job.name: job.expected(self.model, machine) for job in jobs}

    # --- doing

    def do(self, step: Step) -> Any:
        """The arrays that a part leaves, or the result of a job."""
        model = None
        if step.stamp.get("read_from"):  # the benchmark's jobs bring their own models
            model = self.loaded(step.stamp["read_from"] == "memory")
            for key, value in step.stamp.items():
                if self.stamp.get(key, value) != value:
                    raise CannotDo(f"{key} is {self.stamp[key]} there, but {value} where the work was planned")
        try:
            result = retry_smaller(lambda: step.do(model, *step.arguments, done=step.done, progress=self.progress))
        except torch.OutOfMemoryError as e:  # where nothing can be halved: this job is given up, not the others
            raise CannotDo(f"out of memory: {one_line(e)}") from e
        return {leaf: step.done[leaf] for leaf in step.leaves} if step.leaves else result


def retry_smaller(do: Callable[[], T]) -> T:
    """Do something. If memory runs out, do it again: whoever raises `OutOfMemory` has halved the tokens at once."""
    while True:
        try:
            return do()
        except OutOfMemory as e:
            log.warning(str(e))  # not the error itself: whoever keeps the record would keep all its tensors
        gc.collect()  # what the error held on to
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _work_or_error(
    method: Method, model: Model, options: Mapping[str, Any], progress: Progress
) -> Work | HeadAtlasError:
    try:
        with doing(progress, f"planning {method.name}"):
            return work_of(method, model, options)
    except HeadAtlasError as e:
        return e


def work_of(method: Method, model: Model, options: Mapping[str, Any]) -> Work:
    """What a method would do with a model: the `Work` it returns, or a call of its function."""
    if method.in_parts:
        work: Work = method.function(model, **options)
        if not isinstance(work, Work):
            raise CannotDo(f"method {method.name} gave a {type(work).__name__}, but declares in_parts: expected Work")
        return work
    options = {o.name: o.default for o in method.options.values()} | dict(options)
    plain = {k: _plain(v) for k, v in options.items()}
    listed = ", ".join(f"{k} {v}" for k, v in options.items() if v is not None)
    return Work(
        summary=method.title + f": {listed}" * bool(listed),
        combine=_call_function,
        arguments=(method.function, dict(options)),
        settings=plain,
        cost=None if method.cost is None else partial(_call_cost, method.cost),
        needs_model=method.needs_model,
        used=None if _DATA & set(options) else Used(),
    )


def _call_function(
    model: Model, function: Callable[..., xr.Dataset], options: Mapping[str, Any], *, done: Done, progress: Progress
) -> xr.Dataset:
    shown = {"progress": progress} if "progress" in inspect.signature(function).parameters else {}
    return function(model, **options, **shown)


def _call_cost(cost: Callable[..., Cost], model: Model, function: Any, options: Mapping[str, Any]) -> Cost:
    return cost(model, **options)


def _plain(value: Any) -> Any:
    """A value as an attribute of a file, and as part of a key. A path to a file becomes a hash of its content."""
    if isinstance(value, Path):
        return f"{value.name} {hashlib.sha256(value.read_bytes()).hexdigest()[:16]}" if value.is_file() else str(value)
    if isinstance(value, bool | np.bool_):
        return int(value)
    return "" if value is None else list(value) if isinstance(value, tuple) else value


def job_of(method: Method, work: Work, stamp: Mapping[str, Any]) -> Job:
    """A job: work, with the stamp of the model and all else that it depends on."""
    stamped = {**stamp, "data": work.data, **work.settings}
    parts = tuple(work.parts)
    settings, measures = work.result_settings, method.measures
    arguments = (stamped, work.combine, work.arguments, parts, settings, work.cost, measures, work.used)
    return Job(method.name, work.summary, *arguments)


def model_stamp(model: Model) -> dict[str, Any]:
    """What a file says about the model it is of; no time of day, so that the same work gives the same file.

    The fingerprint is of the weights in their precision; the values_hash does not depend on it. The config_hash is of
    configuration and tokenizer.
    """
    weights = model.weights
    bare = weights.embedding().is_meta  # a model without weights: only for planning
    return {
        "model": model.name,
        "fingerprint": "" if bare else weights.fingerprint(),
        "values_hash": "" if bare else weights.values_hash(),
        "read_from": weights.source,
        "config_hash": model.config_hash(),
        "n_kv_heads": weights.anatomy.n_kv_heads,
    } | {k: v for k, v in flat(describe_run()).items() if k != "time"}


def _described(model: Model) -> tuple[Mapping[str, Any], str]:
    if isinstance(model, LM):
        described = describe_model(model)
        return described, f"{model!r}, fingerprint {described['fingerprint'] or 'not read'}"
    described = describe_weights(model.weights, model.name, str(model.device))
    return described, f"{model.name}, not loaded, fingerprint {described['fingerprint']}"
