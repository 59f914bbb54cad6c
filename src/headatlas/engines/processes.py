"""Workers as processes of this machine, each with GPUs of its own if the machine has any."""

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
    """size: how many. gpus: the names of the GPUs that each of them sees."""

    local = False
    died: tuple[type[BaseException], ...] = (BrokenProcessPool,)

    def __init__(self, make: MakeWorker, size: int, gpus: Sequence[str] = ()) -> None:
        self.make, self.size, self.free = make, size, list(gpus)
        self.of: dict[int, str] = {}

    def start(self) -> tuple[Any, "Future[Result]"]:
        worker = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        self.of[id(worker)] = gpus = self.free.pop() if self.free else ""
        with _without_main():
            return worker, worker.submit(_hello, gpus)

    def prepare(self, worker: Any) -> "Future[Result]":
        future: Future[Result] = worker.submit(_prepare, self.make)
        return future

    def send(self, worker: Any, call: str, arguments: tuple[Any, ...]) -> "Future[Result]":
        future: Future[Result] = worker.submit(_send, call, arguments)
        return future

    def stop(self, worker: Any) -> None:
        if gpus := self.of.pop(id(worker), ""):
            self.free.append(gpus)
        for process in list((worker._processes or {}).values()):  # without waiting for its work
            process.kill()
        worker.shutdown(wait=True, cancel_futures=True)

    def close(self) -> None:
        pass


@contextmanager
def _without_main() -> Iterator[None]:
    """A new process imports the script that was called, which would then run again; we need nothing from it."""
    script = vars(sys.modules["__main__"])
    kept: dict[str, Any] = {name: script.pop(name) for name in ("__file__", "__spec__") if name in script}
    script["__spec__"] = None
    try:
        yield
    finally:
        script.update(kept)


@cache
def _worker() -> Worker:
    """In a worker's process, the worker."""
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return Worker("this machine" + (f", GPU {gpus}" if gpus else ""))


def _hello(gpus: str) -> Result:
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus  # before torch looks
    Thread(target=_end_with_parent, daemon=True).start()
    return _worker().hello()


def _end_with_parent() -> None:
    """If the caller is killed, nobody else stops this process."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _prepare(make: MakeWorker) -> Result:
    return _worker().prepare(make)


def _send(call: str, arguments: tuple[Any, ...]) -> Result:
    return _worker().send(call, arguments)
