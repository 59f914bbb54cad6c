"""Workers as processes of this machine, each with GPUs of its own where there are some."""

import os
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

from headatlas.engines.pool import Answer, Make, Worker

_HERE: list[Worker] = []  # in a worker's process, the worker


class Processes:
    """size: how many. gpus: the numbers of the GPUs that each of them sees."""

    died: tuple[type[BaseException], ...] = (BrokenProcessPool,)

    def __init__(self, make: Make, size: int, gpus: Sequence[Sequence[int]] = ()) -> None:
        self.make, self.size = make, size
        self.free = [",".join(map(str, some)) for some in gpus]
        self.of: dict[int, str] = {}

    def hire(self) -> tuple[Any, "Future[Answer]"]:
        worker = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        self.of[id(worker)] = gpus = self.free.pop() if self.free else ""
        return worker, worker.submit(_start, self.make, gpus)

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


def _start(make: Make, gpus: str) -> Answer:
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus  # before torch is imported
    _HERE[:] = [Worker("this machine" + (f", GPU {gpus}" if gpus else ""))]
    return _HERE[0].start(make)


def _ask(what: Any) -> Answer:
    return _HERE[0].ask(what)
