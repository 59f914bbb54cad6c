"""Run independent items of work on workers, hand back results as they come, and try again where a worker died.

A worker is made once, by a function that can be pickled, and then sent message after message: each worker loads its
model once. What starts workers and carries messages is a backend: this process (`local`), processes of this machine
(`processes`), or actors of a Ray cluster (`ray`).
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any, Protocol

from headatlas import __version__
from headatlas.errors import CannotDo, HeadAtlasError, one_line

TRIES = 3  # workers that may die over one item
PATIENCE = 120.0  # seconds to wait for room for a worker while none is at work; loading a model may take longer

log = logging.getLogger(__name__)

MakeWorker = Callable[[], Callable[[Any], Any]]
"""What makes a worker: a function from a message to what comes of it."""


@dataclass(frozen=True)
class WorkItem:
    """message: what a worker is sent; made when its turn comes."""

    name: str
    group: str  # items of one group are given up together
    message: Callable[[], Any]
    needs: frozenset[str] = frozenset()  # items that must be done before


@dataclass(frozen=True)
class Reply:
    value: Any = None
    error: HeadAtlasError | None = None  # where there is no value
    where: str = ""  # the machine
    seconds: float = 0.0
    logged: tuple[tuple[int, str], ...] = ()  # meanwhile: level and text


class Backend(Protocol):
    """Starts workers and carries messages to them. A future that fails with one of `died`: the worker is gone.

    start: a worker, whose future is done when it runs and says which version of HeadAtlas it has.
    prepare: the worker makes what answers messages, and loads what that needs.
    local: whether workers share this process, its files and its progress.
    """

    size: int
    local: bool
    died: tuple[type[BaseException], ...]

    def start(self) -> tuple[Any, "Future[Reply]"]: ...
    def prepare(self, worker: Any) -> "Future[Reply]": ...
    def send(self, worker: Any, message: Any) -> "Future[Reply]": ...
    def stop(self, worker: Any) -> None: ...
    def close(self) -> None: ...


@dataclass
class Worker:
    """What runs in a worker's process. Errors and log lines come back in replies; the worker prints nothing."""

    where: str
    answer: Callable[[Any], Any] | None = None

    def hello(self) -> Reply:
        return Reply(__version__, where=self.where)

    def prepare(self, make: MakeWorker) -> Reply:
        def become() -> None:
            self.answer = make()

        return self._reply(become)

    def send(self, message: Any) -> Reply:
        assert self.answer is not None
        answer = self.answer
        return self._reply(lambda: answer(message))

    def _reply(self, do: Callable[[], Any]) -> Reply:
        kept = _Kept()
        ours = logging.getLogger("headatlas")
        level, passes_on = ours.level, ours.propagate
        ours.addHandler(kept)
        ours.setLevel(logging.INFO)
        ours.propagate = False
        start = time.perf_counter()
        value, error = None, None
        try:
            value = do()
        except HeadAtlasError as e:
            error = CannotDo(str(e))
        except Exception as e:  # noqa: BLE001  the caller must hear of any error
            error = CannotDo(f"{type(e).__name__}: {one_line(e)}")
        finally:
            ours.removeHandler(kept)
            ours.setLevel(level)
            ours.propagate = passes_on
        return Reply(value, error, self.where, time.perf_counter() - start, tuple(kept.logged))


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.logged: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.logged.append((record.levelno, record.getMessage()))


class Pool:
    """Workers, started when there is work for them and kept until the end of the block."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.idle: list[Any] = []
        self.starting: dict[Future[Reply], Any] = {}
        self.preparing: dict[Future[Reply], Any] = {}
        self.busy: dict[Future[Reply], tuple[Any, WorkItem]] = {}
        self.deaths = Counter[str]()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            busy = [worker for worker, _ in self.busy.values()]
            for worker in [*self.starting.values(), *self.preparing.values(), *self.idle, *busy]:
                self.backend.stop(worker)
        finally:
            self.backend.close()

    def run(self, items: Sequence[WorkItem]) -> Iterator[tuple[WorkItem, Reply]]:
        """Do all items, in order where nothing else decides, and give each with its reply as it comes.

        An item that fails takes the rest of its group with it. A worker that dies is replaced, and its item is done
        again; the third time, the item counts as failed. A worker that cannot be made ends everything.
        """
        waiting, done = list(items), set[str]()
        begun = len(self.idle) + len(self.starting) + len(self.preparing)
        for _ in range(min(self.backend.size, len(waiting)) - begun):
            self._start()
        while waiting or self.busy:
            for item in [p for p in waiting if p.needs <= done][: len(self.idle)]:
                message = item.message()
                worker = self.idle.pop(0)
                try:
                    self.busy[self.backend.send(worker, message)] = worker, item
                except self.backend.died:  # while it had nothing to do
                    self.backend.stop(worker)
                    self._start()
                    continue
                waiting.remove(item)
            patience = None if self.busy or self.preparing else PATIENCE
            ready = wait([*self.busy, *self.preparing, *self.starting], patience, FIRST_COMPLETED).done
            if not ready:
                raise CannotDo(f"no worker could be started within {PATIENCE:.0f} s: no machine has room for one")
            for future in ready:
                if future in self.starting or future in self.preparing:
                    self._one_step(future)
                    continue
                item, reply = self._ended(future)
                if reply is None:
                    waiting.insert(0, item)
                    continue
                if reply.error:
                    waiting = [p for p in waiting if p.group != item.group]
                else:
                    done.add(item.name)
                yield item, reply

    def _start(self) -> None:
        worker, future = self.backend.start()
        self.starting[future] = worker

    def _one_step(self, future: "Future[Reply]") -> None:
        """A worker has started, and is prepared; or is prepared, and can be sent work; or nothing came of it."""
        started = future in self.starting
        worker = (self.starting if started else self.preparing).pop(future)
        try:
            reply = _logged(future.result())
            if started and reply.value == __version__:
                self.preparing[self.backend.prepare(worker)] = worker
                return
        except self.backend.died as e:
            self.backend.stop(worker)
            self.deaths[""] += 1  # in a row: a machine that is lost takes all its workers with it
            if self.deaths[""] >= TRIES * self.backend.size:
                raise CannotDo(f"workers die while they are made: {one_line(e)}") from e
            self._start()
            return
        except Exception as e:
            self.backend.stop(worker)
            raise CannotDo(f"a worker could not be made: {one_line(e)}") from e
        self.deaths[""] = 0
        self.idle.append(worker)
        if started:
            raise CannotDo(f"{reply.where}: HeadAtlas is {reply.value} there, but {__version__} here: install the same")
        if reply.error:
            raise CannotDo(f"{reply.where}: {reply.error}")

    def _ended(self, future: "Future[Reply]") -> tuple[WorkItem, Reply | None]:
        """An item and its reply; none, where it must be done again."""
        worker, item = self.busy.pop(future)
        try:
            reply = _logged(future.result())
        except self.backend.died as e:
            self.backend.stop(worker)
            self._start()
            self.deaths[item.name] += 1
            if self.deaths[item.name] >= TRIES:
                return item, Reply(error=CannotDo(f"its worker died {TRIES} times, the last time: {one_line(e)}"))
            log.warning("%s: its worker died, it is done again", item.name)
            return item, None
        except Exception as e:  # noqa: BLE001  such as a result that cannot be pickled
            reply = Reply(error=CannotDo(f"{type(e).__name__}: {one_line(e)}"))
        self.idle.append(worker)
        return item, reply


def _logged(reply: Reply) -> Reply:
    """What a worker logged is logged here."""
    for level, text in reply.logged:
        log.log(level, "%s", text)
    return reply
