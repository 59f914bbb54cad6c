"""What does the work: it loads a model once, plans methods for it, and does their parts.

It lives in this process, in another one, or on a Ray cluster; its methods are called with plain data.
"""

import gc
import hashlib
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
import xarray as xr

from headatlas.engines.pool import attempt
from headatlas.errors import CannotDo, HeadAtlasError, OutOfMemory, one_line
from headatlas.methods.method import Method, Work
from headatlas.models.lm import LM
from headatlas.models.loading import Parameters, load, load_skeleton, open_parameters
from headatlas.models.memory import tokens_at_once
from headatlas.progress import Done, Progress, doing, silent
from headatlas.results.provenance import describe_model, describe_run, describe_weights, flat
from headatlas.runs.plan import Plan, RunPlan
from headatlas.tasks.used import Used

if TYPE_CHECKING:
    from headatlas.runs.where import Where

T = TypeVar("T")
# options that name rows: which of them a method uses, only its `Work` can say
_DATA = {"tasks", "questions", "relations", "needles", "texts"}
Model = LM | Parameters
log = logging.getLogger(__name__)


class ModelWorker:
    """Does tasks on a model.

    Args:
        source: the model, or what to load it from; '' where parts bring their own models.
        where: on which device, in which dtype, and whether over all GPUs that this process sees.
        threads: of torch, because sums are the same only if they are split alike.
    """

    def __init__(
        self, source: LM | str, where: "Where", threads: int | None = None, progress: Progress = silent
    ) -> None:
        if threads is not None:
            torch.set_num_threads(threads)
        self.source, self.where, self.progress = source, where, progress
        self.model: Model | None = source if isinstance(source, LM) else None
        self.held = ExitStack()
        self.stamp: dict[str, Any] = {}

    def close(self) -> None:
        self.held.close()

    # --- planning

    def plan(self, methods: Sequence[tuple[Method, Mapping[str, Any]]]) -> RunPlan:
        """Plan methods with their options, on a model without weights: wrong arguments are found before any load."""
        bare = self._bare(not any(method.needs_model for method, _ in methods))
        works = {method.name: self._work(method, bare, options) for method, options in methods}
        planned = [work for work in works.values() if isinstance(work, Work)]
        model = self.loaded(any(work.needs_model for work in planned), bare) if planned else bare
        plans: dict[str, Plan | HeadAtlasError] = {}
        for method, _ in methods:
            work = works[method.name]
            plans[method.name] = plan_of(method, work, self.stamp) if isinstance(work, Work) else work
        return RunPlan(*_described(model), plans)

    def _work(self, method: Method, model: Model, options: Mapping[str, Any]) -> Work | HeadAtlasError:
        with doing(self.progress, f"planning {method.name}"):
            result = attempt(lambda: work_of(method, model, options))
        work: Work | HeadAtlasError = result.error or result.value
        return work

    def _bare(self, parameters: bool) -> Model:
        """The model without its weights, unless it is loaded already."""
        if self.model is not None:
            return self.model
        assert not isinstance(self.source, LM)
        with doing(self.progress, f"opening {self.source}"):
            if parameters:
                return open_parameters(self.source, self.where.device)
            return load_skeleton(self.source, self.where.dtype, self.where.device)[0]

    def loaded(self, needs_model: bool, bare: Model | None = None) -> Model:
        """The model, with its weights hashed once for all that is stamped."""
        if self.model is None or (needs_model and not isinstance(self.model, LM)):
            assert not isinstance(self.source, LM)
            if needs_model:
                self.model = self._load(self.source, bare)
            else:
                self.model = bare if isinstance(bare, Parameters) else open_parameters(self.source, self.where.device)
            self.stamp = {}
        if not self.stamp:
            with doing(self.progress, f"reading the weights of {self.model.name} for their fingerprint"):
                self.held.enter_context(self.model.weights.unchanged())
                self.stamp = model_stamp(self.model)
        return self.model

    def _load(self, source: str, bare: Model | None) -> LM:
        tokenizer = bare._tokenizer if isinstance(bare, LM) else None
        device_map = "auto" if self.where.spreads else None
        with doing(self.progress, f"loading {source}"):
            return load(source, self.where.device, self.where.dtype, tokenizer=tokenizer, device_map=device_map)

    def expected(self, plans: Sequence[Plan]) -> dict[str, dict[str, float]]:
        """Return the seconds of every task, by method: one part of each kind is timed."""
        from headatlas.runs.estimate import time_plan

        model = self.loaded(any(plan.work.needs_model for plan in plans))
        return {plan.method: time_plan(plan, model) for plan in self.progress(plans, "timing a part of each kind")}

    def tokens_at_once(self) -> int:
        """Return how many tokens are run at once on this worker's device; 0 where no model was loaded."""
        return tokens_at_once(self.model, None) if isinstance(self.model, LM) else 0

    # --- doing

    def do(
        self,
        do: Callable[..., Any],
        arguments: Mapping[str, Any],
        outputs: tuple[str, ...],
        done: Done,
        stamp: Mapping[str, Any],
    ) -> Any:
        """Do a part and return its arrays by name; without outputs, combine the parts and return the result.

        What a worker receives is made in `runs/execute.py`.

        Args:
            do: the function of the part, or that combines the parts.
            arguments: for it, by name.
            outputs: names of the arrays that the part makes.
            done: the arrays of earlier parts.
            stamp: of the plan; a model that differs from the one it was made for is refused.
        """
        model = None
        if stamp.get("read_from"):  # the benchmark's parts bring their own models
            model = self.loaded(stamp["read_from"] == "memory")
            for key, value in stamp.items():
                if self.stamp.get(key, value) != value:
                    raise CannotDo(f"{key} is {self.stamp[key]} there, but {value} where the work was planned")
        try:
            result = retry_smaller(lambda: do(model, **arguments, done=done, progress=self.progress))
        except torch.OutOfMemoryError as e:  # where nothing can be halved: this method is given up, not the others
            raise CannotDo(f"out of memory: {one_line(e)}") from e
        return {name: done[name] for name in outputs} if outputs else result


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
        arguments={"function": method.function, "options": options},
        settings=plain,
        needs_model=method.needs_model,
        used=None if _DATA & set(options) else Used(),
    )


def _call_function(
    model: Model, *, function: Callable[..., xr.Dataset], options: Mapping[str, Any], done: Done, progress: Progress
) -> xr.Dataset:
    shown = {"progress": progress} if "progress" in inspect.signature(function).parameters else {}
    return function(model, **options, **shown)


def _plain(value: Any) -> Any:
    """A value as an attribute of a file, and as part of a key. A path to a file becomes a hash of its content."""
    if isinstance(value, Path):
        return f"{value.name} {hashlib.sha256(value.read_bytes()).hexdigest()[:16]}" if value.is_file() else str(value)
    if isinstance(value, bool | np.bool_):
        return int(value)
    return "" if value is None else list(value) if isinstance(value, tuple) else value


def plan_of(method: Method, work: Work, stamp: Mapping[str, Any]) -> Plan:
    """A method's work, with the stamp of the model and all else that it depends on."""
    stamped = {**stamp, "data": work.data, **work.settings}
    return Plan(method.name, work, stamped, method.measures, method.variables, method.seconds)


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
