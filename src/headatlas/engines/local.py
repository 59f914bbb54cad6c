"""The one worker that is this process: nothing is pickled, errors keep their type, and progress is shown."""

from concurrent.futures import Future
from typing import Any

from headatlas import __version__
from headatlas.engines.pool import MakeWorker, Result, attempt


class Local:
    """Backend whose only worker is this process."""

    size = 1
    local = True
    died: tuple[type[BaseException], ...] = ()

    def __init__(self, make: MakeWorker) -> None:
        self.worker = make()

    def start(self) -> tuple[Any, "Future[Result]"]:
        return self.worker, _completed_future(Result(__version__))

    def prepare(self, worker: Any) -> "Future[Result]":
        return _completed_future(Result())

    def send(self, worker: Any, call: str, arguments: tuple[Any, ...]) -> "Future[Result]":
        return _completed_future(attempt(lambda: getattr(worker, call)(*arguments)))

    def stop(self, worker: Any) -> None:
        pass

    def close(self) -> None:
        if close := getattr(self.worker, "close", None):
            close()


def _completed_future(result: Result) -> "Future[Result]":
    """Return a future that already has this result."""
    future: Future[Result] = Future()
    future.set_result(result)
    return future
