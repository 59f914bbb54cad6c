"""Workers as asked for: this process, processes of this machine, or a Ray cluster."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import torch

from headatlas.engines.local import Local
from headatlas.engines.pool import MakeWorker, Pool
from headatlas.engines.processes import Processes
from headatlas.engines.ray import Cluster
from headatlas.errors import BadArgument, brief, check_choice, check_count
from headatlas.models.default_model import DEFAULT_MODEL
from headatlas.models.lm import LM
from headatlas.progress import Progress, silent
from headatlas.runs.messages import ModelSource
from headatlas.runs.worker import ModelWorker

ENGINES = ("local", "ray")
MOST_WORKERS = 10_000  # more is a mistake


def start_workers(
    model: LM | str | Path,
    *,
    device: str = "auto",
    dtype: str = "auto",
    engine: str = "local",
    address: str | None = None,
    gpus_per_job: int | None = None,
    workers: int | None = None,
    progress: Progress = silent,
) -> Pool:
    """Workers for a model. They are started when there is work for them, and load it when they first need it."""
    if not isinstance(model, LM | str | Path):
        raise BadArgument(f"model is a {type(model).__name__}, expected an LM, a name or a path")
    if not isinstance(device, str):
        raise BadArgument(f"device is {brief(device)}, expected 'auto', 'cpu', 'cuda' or 'cuda:N'")
    if isinstance(model, LM) and (engine != "local" or workers or gpus_per_job):
        raise BadArgument("model is an LM, but workers load it themselves: give its name or folder")
    if not isinstance(dtype, str):
        raise BadArgument(f"dtype is {brief(dtype)}, expected 'auto', 'float32', 'bfloat16', 'float16' or 'float64'")
    if isinstance(model, LM) and dtype != "auto":
        raise BadArgument(f"dtype is {brief(dtype)}, but model is an LM: it has {model.model.dtype} already")
    if gpus_per_job == 0 and device == "auto":
        device = "cpu"
    spread = (gpus_per_job or 1) > 1
    source = ModelSource(model if isinstance(model, LM) else absolute(model), device, dtype, spread)
    elsewhere = partial(ModelWorker, source, torch.get_num_threads())
    here = partial(ModelWorker, source, None, progress)
    return start_pool(here, elsewhere, engine, address, gpus_per_job, workers, device)


def start_pool(
    here: MakeWorker,
    elsewhere: MakeWorker,
    engine: str,
    address: str | None,
    gpus_per_job: int | None,
    workers: int | None,
    device: str,
) -> Pool:
    """here, elsewhere: what makes the worker that is this process, and one that is not."""
    check_choice("engine", engine, ENGINES)
    if address is not None and engine != "ray":
        raise BadArgument(
            f"address is {address!r}, but the engine is {engine}: a cluster's address goes with engine ray"
        )
    for name, value, least in (("gpus_per_job", gpus_per_job, 0), ("workers", workers, 1)):
        if value is not None:
            check_count(name, value, least, MOST_WORKERS)
    if engine == "ray":
        of_each = 0 if device == "cpu" else gpus_per_job
        return Pool(Cluster(elsewhere, address, of_each, torch.get_num_threads(), workers))
    gpus = _gpus(gpus_per_job, workers, device)
    if gpus is None:
        return Pool(Local(here))
    return Pool(Processes(elsewhere, workers or len(gpus), gpus))


def _gpus(gpus_per_job: int | None, workers: int | None, device: str) -> list[str] | None:
    """The names of the GPUs that each process sees; None where this process does the work itself."""
    available, each = torch.cuda.device_count() if device in ("auto", "cuda") else 0, gpus_per_job or 1
    if gpus_per_job == 0:
        available = 0
    if gpus_per_job == 1 and device.startswith("cuda:"):
        return None
    if gpus_per_job and gpus_per_job > available:
        usable = f"{available or 'no'} GPU{'s' * (available != 1)}"
        raise BadArgument(f"gpus-per-job is {gpus_per_job}, but this machine has {usable} to use")
    if workers is None and available < 2 * each:
        return None
    names = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    names = names if len(names) >= available and names != [""] else [str(i) for i in range(available)]
    gpus = [",".join(names[a : a + each]) for a in range(0, available - each + 1, each)]
    if workers is not None and gpus and workers > len(gpus):
        raise BadArgument(f"workers is {workers}, but there are GPUs for {len(gpus)}")
    return gpus


def count_workers(engine: str, address: str | None, gpus_per_job: int | None, device: str) -> int:
    """How many workers such an engine has."""
    with start_pool(_nobody, _nobody, engine, address, gpus_per_job, None, device) as pool:
        return pool.backend.size


def _nobody() -> Any:
    return None


def absolute(path: str | Path) -> str:
    """A path as others can follow it; a name as it is."""
    if not str(path).strip() or path == DEFAULT_MODEL or not Path(path).expanduser().exists():
        return str(path)
    return str(Path(path).expanduser().absolute())
