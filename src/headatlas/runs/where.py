"""Where work runs: this process, processes of this machine, or a Ray cluster; on which device and in which dtype."""

import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import torch

from headatlas.engines.local import Local
from headatlas.engines.pool import MakeWorker, Pool
from headatlas.engines.processes import Processes
from headatlas.engines.ray import Cluster
from headatlas.errors import BadArgument, brief, check_choice, check_count
from headatlas.models.default_model import DEFAULT_MODEL
from headatlas.models.lm import LM
from headatlas.progress import Progress, silent
from headatlas.runs.worker import ModelWorker

ENGINES = ("local", "ray")
MAX_WORKERS = 10_000
DEVICES = "'auto', 'cpu', 'cuda' or 'cuda:N'"
DTYPES = "'auto', 'float32', 'bfloat16', 'float16' or 'float64'"


class WhereOptions(TypedDict, total=False):
    """The options of `Where`, as `run` and every method take them."""

    device: str
    dtype: str
    engine: str
    address: str | None
    gpus_per_job: int | None
    workers: int | None


@dataclass(frozen=True)
class Where:
    """Where work runs.

    Args:
        device: 'auto', 'cpu', 'cuda' or 'cuda:N'.
        dtype: precision in which the model is loaded; 'auto' is that of its files.
        engine: 'local' is this process, or one process per GPU if there are several; 'ray' is a cluster.
        address: HOST:PORT of a Ray cluster, or 'auto' (default: Ray is started on this machine).
        gpus_per_job: number of GPUs over which a worker spreads the model.
        workers: maximum number of workers. Results do not depend on it, nor on the engine.
    """

    device: str = "auto"
    dtype: str = "auto"
    engine: str = "local"
    address: str | None = None
    gpus_per_job: int | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        for argument, expected in (("device", DEVICES), ("dtype", DTYPES)):
            value: Any = getattr(self, argument)
            if not isinstance(value, str):
                raise BadArgument(f"{argument} is {brief(value)}, expected {expected}")
        check_choice("engine", self.engine, ENGINES)
        if self.address is not None and self.engine != "ray":
            raise BadArgument(
                f"address is {brief(self.address)}, but engine is {self.engine!r}: an address needs engine 'ray'"
            )
        if self.gpus_per_job is not None:
            check_count("gpus_per_job", self.gpus_per_job, 0, MAX_WORKERS)
        if self.workers is not None:
            check_count("workers", self.workers, 1, MAX_WORKERS)
        if self.gpus_per_job == 0 and self.device == "auto":
            object.__setattr__(self, "device", "cpu")

    @property
    def spreads_model(self) -> bool:
        """Whether a worker spreads the model over several GPUs."""
        return (self.gpus_per_job or 1) > 1

    def check_model(self, model: LM | str | Path) -> None:
        """Check that these workers can use a model: one in memory cannot be sent, or loaded in another precision."""
        if not isinstance(model, LM | str | Path):
            raise BadArgument(f"model is a {type(model).__name__}, expected an LM, a name or a path")
        if not isinstance(model, LM):
            return
        if self.engine != "local" or self.workers or self.gpus_per_job:
            raise BadArgument("model is an LM, but workers load it themselves: give its name or folder")
        if self.dtype != "auto":
            raise BadArgument(f"dtype is {self.dtype!r}, but model is an LM: it has {model.model.dtype} already")

    def pool(self, make_local: MakeWorker, make_remote: MakeWorker) -> Pool:
        """Return the pool of workers.

        Args:
            make_local: makes the worker if it is this process.
            make_remote: makes a worker in another process.
        """
        if self.engine == "ray":
            gpus_per_worker = 0 if self.device == "cpu" else self.gpus_per_job
            return Pool(Cluster(make_remote, self.address, gpus_per_worker, torch.get_num_threads(), self.workers))
        gpus = self._gpus()
        if gpus is None:
            return Pool(Local(make_local))
        return Pool(Processes(make_remote, self.workers or len(gpus), gpus))

    def count_workers(self) -> int:
        """Return the number of workers that fit, whatever `workers` is."""
        with replace(self, workers=None).pool(_no_worker, _no_worker) as pool:
            return pool.backend.size

    def _gpus(self) -> list[str] | None:
        """Return the GPUs of each worker, as in CUDA_VISIBLE_DEVICES; None if this process is the worker."""
        per_worker = self.gpus_per_job or 1
        available = torch.cuda.device_count() if self.device in ("auto", "cuda") else 0
        if self.gpus_per_job == 0:
            available = 0
        if self.gpus_per_job == 1 and self.device.startswith("cuda:"):
            return None
        if self.gpus_per_job and self.gpus_per_job > available:
            usable = f"{available or 'no'} GPU{'s' * (available != 1)}"
            raise BadArgument(f"gpus-per-job is {self.gpus_per_job}, but this machine has {usable} to use")
        if self.workers is None and available < 2 * per_worker:
            return None
        # the names that this process was given: with other names, a worker could take another process's GPUs
        names = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        if len(names) < available or names == [""]:
            names = [str(i) for i in range(available)]
        # GPUs that are left over stay unused
        starts = range(0, available - per_worker + 1, per_worker)
        gpus = [",".join(names[start : start + per_worker]) for start in starts]
        if self.workers is not None and gpus and self.workers > len(gpus):
            raise BadArgument(f"workers is {self.workers}, but this machine has GPUs for {len(gpus)} workers")
        return gpus


def start_workers(model: LM | str | Path, where: Where, progress: Progress = silent) -> Pool:
    """Return workers for a model. They start when there are tasks for them, and load it when they first need it."""
    where.check_model(model)
    source = model if isinstance(model, LM) else absolute_path(model)
    make_local = partial(ModelWorker, source, where, None, progress)
    # the same number of threads everywhere: sums depend on how they are split
    make_remote = partial(ModelWorker, source, where, torch.get_num_threads())
    return where.pool(make_local, make_remote)


def absolute_path(path: str | Path) -> str:
    """Return a path that is valid in any working directory; the name of a model stays as it is."""
    if not str(path).strip() or path == DEFAULT_MODEL or not Path(path).expanduser().exists():
        return str(path)
    return str(Path(path).expanduser().absolute())


def _no_worker() -> Any:
    return None
