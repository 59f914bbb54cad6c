"""One thread for the model, and a queue of questions before it.

Quick questions go before long ones: a long one is answered in steps, and waits between two of them. A question that
nobody wants any more is dropped at its next step.
"""

import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]
RANK = {"continuation": 1, "control": 2, "exact": 2}  # the others go first


@dataclass(order=True)
class Job:
    """tell: is given every message, and None in the end; called from the model's thread."""

    rank: int
    number: int
    answer: Iterator[Message] = field(compare=False)
    tell: Callable[[Message | None], None] = field(compare=False)
    dropped: threading.Event = field(compare=False, default_factory=threading.Event)


class ModelQueue:
    """Answers questions one after the other, in one thread."""

    def __init__(self, fail: Callable[[Exception], Message]) -> None:
        """fail: what is told of an exception."""
        self._fail = fail
        self._waiting: queue.PriorityQueue[Job] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._latest: dict[tuple[str, str], Job] = {}  # by page and place on it
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> "ModelQueue":
        """Answer in the background."""
        self._thread = threading.Thread(target=self.work, name="model", daemon=True)
        self._thread.start()
        return self

    def put(
        self, page: str, place: str, kind: str, answer: Iterator[Message], tell: Callable[[Message | None], None]
    ) -> Job:
        """Queue a question. An older one of the same page for the same place is dropped; for the place 'prompt', all
        of that page."""
        job = Job(RANK.get(kind, 0), next(self._numbers), answer, tell)
        for key, other in list(self._latest.items()):
            if key[0] == page and (place == "prompt" or key[1] == place):
                self.drop(other)
                self._latest.pop(key, None)  # it may end just now
        self._latest[page, place] = job
        self._waiting.put(job)
        return job

    def drop(self, job: Job) -> None:
        """Do not go on with it."""
        job.dropped.set()

    def end(self) -> None:
        """Answer no more once the step that is being done has ended."""
        self._stopped.set()
        self._waiting.put(Job(-1, next(self._numbers), iter(()), lambda message: None))  # wakes a thread that waits

    def stop(self) -> None:
        """Answer no more. When this returns, the step that was being done has ended and the model is free."""
        self.end()
        if self._thread is not None:
            self._thread.join()

    def work(self) -> None:
        """Answer in this thread, until another one says `end`."""
        while not self._stopped.is_set():
            try:
                job = self._waiting.get(timeout=1)  # so that Ctrl-C is heard on every system
            except queue.Empty:
                continue
            if not self._step(job):
                job.answer = iter(())  # what it holds is let go
                for key, other in list(self._latest.items()):
                    if other is job:
                        self._latest.pop(key, None)
                job.tell(None)

    def _step(self, job: Job) -> bool:
        """Whether there is more to do."""
        if job.dropped.is_set():
            return False
        try:
            message = next(job.answer, None)
        except Exception as error:  # noqa: BLE001 one bad question must not end the server
            job.tell(self._fail(error))
            return False
        if message is None:
            return False
        job.tell(message)
        self._waiting.put(job)
        return True
