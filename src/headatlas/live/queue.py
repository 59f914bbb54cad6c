"""A queue of questions for the model, answered in one thread.

Quick questions come first: long ones are answered in steps, and quick ones are answered in between. A question that is
no longer needed is dropped at its next step.
"""

import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]
# Lower ranks are answered first; other kinds have rank 0.
RANK = {"continuation": 1, "control": 2, "exact": 2}


@dataclass(order=True)
class Job:
    """A question in the queue. send: called in the model's thread with every message, and with None at the end."""

    rank: int
    number: int
    answer: Iterator[Message] = field(compare=False)
    send: Callable[[Message | None], None] = field(compare=False)
    dropped: threading.Event = field(compare=False, default_factory=threading.Event)


class ModelQueue:
    """A queue that answers questions in one thread."""

    def __init__(self, as_error: Callable[[Exception], Message]) -> None:
        """as_error: turns an exception into a message."""
        self._as_error = as_error
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
        self, page: str, place: str, kind: str, answer: Iterator[Message], send: Callable[[Message | None], None]
    ) -> Job:
        """Queue a question and drop the older one of the same page for the same place.

        A question for the place 'prompt' drops all older ones of its page.
        """
        job = Job(RANK.get(kind, 0), next(self._numbers), answer, send)
        for key, other in list(self._latest.items()):
            if key[0] == page and (place == "prompt" or key[1] == place):
                self.drop(other)
                # It may end in the other thread just now.
                self._latest.pop(key, None)
        self._latest[page, place] = job
        self._waiting.put(job)
        return job

    def drop(self, job: Job) -> None:
        """Stop answering a question at its next step."""
        job.dropped.set()

    def end(self) -> None:
        """Stop answering after the current step."""
        self._stopped.set()
        self._waiting.put(Job(-1, next(self._numbers), iter(()), lambda message: None))  # wakes a waiting thread

    def stop(self) -> None:
        """Stop answering and wait for the current step to end; then the model is free."""
        self.end()
        if self._thread is not None:
            self._thread.join()

    def work(self) -> None:
        """Answer in this thread, until another one calls `end`."""
        while not self._stopped.is_set():
            try:
                job = self._waiting.get(timeout=1)  # a timeout, so that Ctrl-C works on every system
            except queue.Empty:
                continue
            if not self._step(job):
                # Release what the answer holds.
                job.answer = iter(())
                for key, other in list(self._latest.items()):
                    if other is job:
                        self._latest.pop(key, None)
                job.send(None)

    def _step(self, job: Job) -> bool:
        """Run one step of a question; return whether there are more."""
        if job.dropped.is_set():
            return False
        try:
            message = next(job.answer, None)
        except Exception as error:  # noqa: BLE001 one bad question must not end the server
            job.send(self._as_error(error))
            return False
        if message is None:
            return False
        job.send(message)
        self._waiting.put(job)
        return True
