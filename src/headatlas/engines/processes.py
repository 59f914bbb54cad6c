"""Workers as processes of this machine, each with its share of the GPUs if the machine has any."""

import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import cache
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any

from headatlas.engines.pool import MakeWorker, Result, Worker


class Processes:
    """Backend whose workers are processes of this machine.

    Args:
        make: function that makes the worker.
        size: number of workers.
        gpus: for each worker, the GPUs that it sees, as in CUDA_VISIBLE_DEVICES.
    """

    local = False
    died: tuple[type[BaseException], ...] = (BrokenProcessPool,)

    def __init__(self, make: MakeWorker, size: int, gpus: Sequence[str] = ()) -> None:
        self.make = make
        self.size = size
        self.free_gpus = list(gpus)
        # by id of the worker
        self.used_gpus: dict[int, str] = {}

    def start(self) -> tuple[Any, "Future[Result]"]:
        worker = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        gpus = self.free_gpus.pop() if self.free_gpus else ""
        self.used_gpus[id(worker)] = gpus
        with _without_main():
            return worker, worker.submit(_hello, gpus)

    def prepare(self, worker: Any) -> "Future[Result]":
        future: Future[Result] = worker.submit(_prepare, self.make)
        return future

    def send(self, worker: Any, call: str, arguments: tuple[Any, ...]) -> "Future[Result]":
        future: Future[Result] = worker.submit(_send, call, arguments)
        return future

    def stop(self, worker: Any) -> None:
        if gpus := self.used_gpus.pop(id(worker), ""):
            self.free_gpus.append(gpus)
        # shutdown alone would wait for the running task, which may take hours
        for process in list((worker._processes or {}).values()):
            process.kill()
        worker.shutdown(wait=True, cancel_futures=True)

    def close(self) -> None:
        pass


@contextmanager
def _without_main() -> Iterator[None]:
    """Keep new processes from importing the main script, which would then run again; workers need nothing from it."""
    script = vars(sys.modules["__main__"])
    hidden: dict[str, Any] = {name: script.pop(name) for name in ("__file__", "__spec__") if name in script}
    script["__spec__"] = None
    try:
        yield
    finally:
        script.update(hidden)


@cache
def _worker() -> Worker:
    """Return the worker of this process; called in workers' processes."""
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return Worker("this machine" + (f", GPU {gpus}" if gpus else ""))


def _hello(gpus: str) -> Result:
    if gpus:
        # torch reads this once, when it first looks for GPUs
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus
    Thread(target=_end_with_parent, daemon=True).start()
    return _worker().hello()


def _end_with_parent() -> None:
    """End this process when its parent ends: if the parent is killed, nothing else would stop it."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _prepare(make: MakeWorker) -> Result:
    return _worker().prepare(make)


def _send(call: str, arguments: tuple[Any, ...]) -> Result:
    return _worker().send(call, arguments)
