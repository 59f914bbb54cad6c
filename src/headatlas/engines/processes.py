"""Workers as processes of this machine, each with GPUs of its own where there are some."""

import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any

from headatlas.engines.pool import Answer, Make, Worker

_HERE: list[Worker] = []  # in a worker's process, the worker


class Processes:
    """size: how many. gpus: the names of the GPUs that each of them sees."""

    died: tuple[type[BaseException], ...] = (BrokenProcessPool,)

    def __init__(self, make: Make, size: int, gpus: Sequence[str] = ()) -> None:
        self.make_one, self.size, self.free = make, size, list(gpus)
        self.of: dict[int, str] = {}

    def hire(self) -> tuple[Any, "Future[Answer]"]:
        worker = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        self.of[id(worker)] = gpus = self.free.pop() if self.free else ""
        with _without_main():
            return worker, worker.submit(_hello, gpus)

    def make(self, worker: Any) -> "Future[Answer]":
        future: Future[Answer] = worker.submit(_start, self.make_one)
        return future

    def ask(self, worker: Any, what: Any) -> "Future[Answer]":
        future: Future[Answer] = worker.submit(_ask, what)
        return future

    def dismiss(self, worker: Any) -> None:
        if gpus := self.of.pop(id(worker), ""):
            self.free.append(gpus)
        for process in list((worker._processes or {}).values()):  # what it is at need not be finished
            process.kill()
        worker.shutdown(wait=True, cancel_futures=True)

    def close(self) -> None:
        pass


@contextmanager
def _without_main() -> Iterator[None]:
    """A new process imports the script that was called, which would begin all over; nothing of ours is in it."""
    script = vars(sys.modules["__main__"])
    kept: dict[str, Any] = {name: script.pop(name) for name in ("__file__", "__spec__") if name in script}
    script["__spec__"] = None
    try:
        yield
    finally:
        script.update(kept)


def _hello(gpus: str) -> Answer:
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus  # before torch looks
    Thread(target=_end_with_parent, daemon=True).start()
    _HERE[:] = [Worker("this machine" + (f", GPU {gpus}" if gpus else ""))]
    return _HERE[0].hello()


def _end_with_parent() -> None:
    """A caller that was killed dismisses nobody, and nobody else would ever ask."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _start(make: Make) -> Answer:
    return _HERE[0].start(make)


def _ask(what: Any) -> Answer:
    return _HERE[0].ask(what)
