"""The worker: it loads a model once, plans methods for it, and does their parts.

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
from headatlas.progress import FinishedParts, Progress, show_step, silent
from headatlas.results.provenance import describe_model, describe_run, describe_weights, flat
from headatlas.runs.plan import Plan, RunPlan
from headatlas.tasks.used import Used

if TYPE_CHECKING:
    from headatlas.runs.where import Where

T = TypeVar("T")
# Options that choose data. The examples that a method uses of it are known only to its `Work`.
_DATA_OPTIONS = {"tasks", "questions", "relations", "needles", "texts"}
Model = LM | Parameters
log = logging.getLogger(__name__)


class ModelWorker:
    """A model, and the methods that a pool calls to plan and do work on it.

    Args:
        source: the model, or the name or path to load it from; '' if the parts bring their own models.
        where: device and dtype, and whether the model is spread over all GPUs that this process sees.
        threads: number of threads of torch (default: unchanged). Sums are equal to the bit only for equal numbers.
        progress: shows what is being loaded or planned.
    """

    def __init__(
        self, source: LM | str, where: "Where", threads: int | None = None, progress: Progress = silent
    ) -> None:
        if threads is not None:
            torch.set_num_threads(threads)
        self.source = source
        self.where = where
        self.progress = progress
        self.model: Model | None = source if isinstance(source, LM) else None
        # open as long as the worker: inside, the weights are assumed not to change
        self.contexts = ExitStack()
        self.stamp: dict[str, Any] = {}

    def close(self) -> None:
        """Release the model's weights, which may change from now on."""
        self.contexts.close()

    # --- planning

    def plan(self, methods: Sequence[tuple[Method, Mapping[str, Any]]]) -> RunPlan:
        """Plan methods with their options.

        Each method plans on a model without weights, so that wrong arguments are found before anything is loaded.
        """
        skeleton = self._open_skeleton(not any(method.needs_model for method, _ in methods))
        works = {method.name: self._try_work(method, skeleton, options) for method, options in methods}
        possible = [work for work in works.values() if isinstance(work, Work)]
        model = self.load_model(any(work.needs_model for work in possible), skeleton) if possible else skeleton
        plans: dict[str, Plan | HeadAtlasError] = {}
        for method, _ in methods:
            work = works[method.name]
            plans[method.name] = make_plan(method, work, self.stamp) if isinstance(work, Work) else work
        return RunPlan(*_describe(model), plans)

    def _try_work(self, method: Method, model: Model, options: Mapping[str, Any]) -> Work | HeadAtlasError:
        with show_step(self.progress, f"planning {method.name}"):
            result = attempt(lambda: make_work(method, model, options))
        work: Work | HeadAtlasError = result.error or result.value
        return work

    def _open_skeleton(self, parameters_only: bool) -> Model:
        """Return the model without its weights, or the model itself if it is loaded already.

        Args:
            parameters_only: no method runs the model: its matrices will be read from disk.
        """
        if self.model is not None:
            return self.model
        assert not isinstance(self.source, LM)
        with show_step(self.progress, f"opening {self.source}"):
            if parameters_only:
                return open_parameters(self.source, self.where.device)
            return load_skeleton(self.source, self.where.dtype, self.where.device)[0]

    def load_model(self, needs_model: bool, skeleton: Model | None = None) -> Model:
        """Return the model, loaded and fingerprinted when it is first needed.

        Args:
            needs_model: whether an LM that can run is needed, or parameters on disk are enough.
            skeleton: the model without its weights, if it was opened already.
        """
        if self.model is None or (needs_model and not isinstance(self.model, LM)):
            assert not isinstance(self.source, LM)
            if needs_model:
                self.model = self._load(self.source, skeleton)
            elif isinstance(skeleton, Parameters):
                self.model = skeleton
            else:
                self.model = open_parameters(self.source, self.where.device)
            self.stamp = {}
        if not self.stamp:
            with show_step(self.progress, f"reading the weights of {self.model.name} for their fingerprint"):
                self.contexts.enter_context(self.model.weights.unchanged())
                self.stamp = model_stamp(self.model)
        return self.model

    def _load(self, source: str, skeleton: Model | None) -> LM:
        # that of the skeleton, because reading one takes seconds
        tokenizer = skeleton._tokenizer if isinstance(skeleton, LM) else None
        device_map = "auto" if self.where.spreads_model else None
        with show_step(self.progress, f"loading {source}"):
            return load(source, self.where.device, self.where.dtype, tokenizer=tokenizer, device_map=device_map)

    def expected(self, plans: Sequence[Plan]) -> dict[str, dict[str, float]]:
        """Return the seconds of every task, by method: one part of each kind is timed."""
        from headatlas.runs.estimate import time_plan

        model = self.load_model(any(plan.work.needs_model for plan in plans))
        return {plan.method: time_plan(plan, model) for plan in self.progress(plans, "timing a part of each kind")}

    def tokens_at_once(self) -> int:
        """Return the number of tokens that run at once on this worker's device; 0 if no model is loaded."""
        return tokens_at_once(self.model, None) if isinstance(self.model, LM) else 0

    # --- doing

    def do(
        self,
        do: Callable[..., Any],
        arguments: Mapping[str, Any],
        outputs: tuple[str, ...],
        done: FinishedParts,
        stamp: Mapping[str, Any],
    ) -> Any:
        """Do a part and return its arrays by name; without outputs, combine the parts and return the result.

        The arguments are made in `runs/execute.py`.

        Args:
            do: the function of a part, or the function that combines the parts.
            arguments: its arguments by name.
            outputs: names of the arrays that the part makes.
            done: the arrays of finished parts; those of this part are added.
            stamp: the plan's stamp.

        Raises:
            CannotDo: the model differs from the one in the stamp, or memory runs out.
        """
        model = None
        # the benchmark's parts bring their own models
        if stamp.get("read_from"):
            model = self.load_model(stamp["read_from"] == "memory")
            for key, value in stamp.items():
                if self.stamp.get(key, value) != value:
                    raise CannotDo(
                        f"{key} is {self.stamp[key]} on this worker, but {value} in the plan: all workers need"
                        " the same model and versions"
                    )
        try:
            result = retry_smaller(lambda: do(model, **arguments, done=done, progress=self.progress))
        except torch.OutOfMemoryError as e:
            # this part cannot be halved: its method fails, the others continue
            raise CannotDo(f"out of memory: {one_line(e)}") from e
        return {name: done[name] for name in outputs} if outputs else result


def retry_smaller(do: Callable[[], T]) -> T:
    """Call a function, again and again while memory runs out: `OutOfMemory` means that the batch size was halved."""
    while True:
        try:
            return do()
        except OutOfMemory as e:
            # its text alone: log handlers may keep the record, and the error keeps every tensor of its traceback
            log.warning(str(e))
        # the error's traceback is part of reference cycles: without this, its tensors stay in memory
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def make_work(method: Method, model: Model, options: Mapping[str, Any]) -> Work:
    """Return the work of a method on a model: what it returns if it works in parts, else a call of its function."""
    if method.in_parts:
        work: Work = method.function(model, **options)
        if not isinstance(work, Work):
            raise CannotDo(
                f"method {method.name} returned a {type(work).__name__}, but declares in_parts: expected Work"
            )
        return work
    options = {o.name: o.default for o in method.options.values()} | dict(options)
    listed = ", ".join(f"{k} {v}" for k, v in options.items() if v is not None)
    return Work(
        summary=method.title + f": {listed}" * bool(listed),
        combine=_call_function,
        arguments={"function": method.function, "options": options},
        settings={k: _plain(v) for k, v in options.items()},
        needs_model=method.needs_model,
        used=None if _DATA_OPTIONS & set(options) else Used(),
    )


def _call_function(
    model: Model,
    *,
    function: Callable[..., xr.Dataset],
    options: Mapping[str, Any],
    done: FinishedParts,
    progress: Progress,
) -> xr.Dataset:
    progress_option = {"progress": progress} if "progress" in inspect.signature(function).parameters else {}
    return function(model, **options, **progress_option)


def _plain(value: Any) -> Any:
    """Return a value that can be a file's attribute and part of a key. A file's path becomes its name and a hash."""
    if isinstance(value, Path):
        return f"{value.name} {hashlib.sha256(value.read_bytes()).hexdigest()[:16]}" if value.is_file() else str(value)
    if isinstance(value, bool | np.bool_):
        return int(value)
    return "" if value is None else list(value) if isinstance(value, tuple) else value


def make_plan(method: Method, work: Work, stamp: Mapping[str, Any]) -> Plan:
    """Return the plan of a method's work, stamped with everything on which its parts depend."""
    full_stamp = {**stamp, "data": work.data, **work.settings}
    return Plan(method.name, work, full_stamp, method.measures, method.variables, method.seconds)


def model_stamp(model: Model) -> dict[str, Any]:
    """Return the attributes that identify a model and the versions in use.

    The fingerprint covers the weights in their precision; the values_hash does not depend on precision. The config_hash
    covers configuration and tokenizer. There is no time of day, so that equal work gives equal files.
    """
    weights = model.weights
    is_skeleton = weights.embedding().is_meta
    return {
        "model": model.name,
        "fingerprint": "" if is_skeleton else weights.fingerprint(),
        "values_hash": "" if is_skeleton else weights.values_hash(),
        "read_from": weights.source,
        "config_hash": model.config_hash(),
        "n_kv_heads": weights.anatomy.n_kv_heads,
    } | {k: v for k, v in flat(describe_run()).items() if k != "time"}


def _describe(model: Model) -> tuple[Mapping[str, Any], str]:
    """Return a description of the model for atlas.json, and one line of text."""
    if isinstance(model, LM):
        description = describe_model(model)
        return description, f"{model!r}, fingerprint {description['fingerprint'] or 'not read'}"
    description = describe_weights(model.weights, model.name, str(model.device))
    return description, f"{model.name}, not loaded, fingerprint {description['fingerprint']}"
