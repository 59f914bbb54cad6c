"""The one worker that is this process: nothing is pickled, errors keep their type, and progress shows."""

import time
from concurrent.futures import Future
from typing import Any

from headatlas import __version__
from headatlas.engines.pool import MakeWorker, Reply
from headatlas.errors import HeadAtlasError


class Local:
    size = 1
    local = True
    died: tuple[type[BaseException], ...] = ()

    def __init__(self, make: MakeWorker) -> None:
        self.answer = make()

    def start(self) -> tuple[Any, "Future[Reply]"]:
        return self, _done(Reply(__version__))

    def prepare(self, worker: Any) -> "Future[Reply]":
        return _done(Reply())

    def send(self, worker: Any, message: Any) -> "Future[Reply]":
        start = time.perf_counter()
        try:
            return _done(Reply(self.answer(message), seconds=time.perf_counter() - start))
        except HeadAtlasError as e:
            return _done(Reply(error=e, seconds=time.perf_counter() - start))

    def stop(self, worker: Any) -> None:
        pass

    def close(self) -> None:
        if close := getattr(self.answer, "close", None):
            close()


def _done(reply: Reply) -> "Future[Reply]":
    future: Future[Reply] = Future()
    future.set_result(reply)
    return future
