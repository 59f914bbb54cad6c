"""Run tasks on workers, yield results as they come, and retry a task whose worker died.

A worker is any object, made once by a function that can be pickled; a task is a call of one of its methods. So each
worker loads its model once. A backend starts workers and carries calls to them: this process (`local`), processes of
this machine (`processes`), or actors of a Ray cluster (`ray`).
"""

import logging
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from typing import Any, Protocol

from headatlas import __version__
from headatlas.errors import CannotDo, HeadAtlasError, one_line

MAX_TRIES = 3  # workers that may die over one task
# While a worker loads its model or does a task, there is no limit: both may take hours.
MAX_START_SECONDS = 120.0  # to wait for a first worker to start

log = logging.getLogger(__name__)

MakeWorker = Callable[[], Any]
"""Function that makes a worker: an object whose methods are called by name."""


@dataclass(frozen=True)
class Task:
    """A call of one of the worker's methods.

    Args:
        name: unique among the tasks of a run; shown in messages.
        group: if a task fails, the remaining tasks of its group are dropped.
        call: name of the worker's method.
        arguments: function that returns the arguments, called when the task is sent to a worker.
        dependencies: names of the tasks that must be done first.
    """

    name: str
    group: str
    call: str
    arguments: Callable[[], tuple[Any, ...]]
    dependencies: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Result:
    """The outcome of a task: its value, or the error that prevented it.

    Args:
        where: the machine that did the task; empty for this process.
        logged: (level, text) of every message that the task logged in another process.
    """

    value: Any = None
    error: HeadAtlasError | None = None
    where: str = ""
    seconds: float = 0.0
    logged: tuple[tuple[int, str], ...] = ()

    def error_at(self, name: str = "") -> HeadAtlasError:
        """Return the error. If it comes from another process, its text begins with the task's name and the machine."""
        assert self.error is not None
        if not self.where:
            return self.error
        error = CannotDo(f"{name}, on {self.where}: {self.error}" if name else f"{self.where}: {self.error}")
        error.__cause__ = self.error
        return error


def attempt(do: Callable[[], Any], where: str = "") -> Result:
    """Call a function and return its value or its error. An unexpected exception becomes `CannotDo`, with its cause."""
    value: Any = None
    error: HeadAtlasError | None = None
    start = time.perf_counter()
    try:
        value = do()
    except HeadAtlasError as e:
        error = e
    # one failure of any kind must not end the other tasks
    except Exception as e:  # noqa: BLE001
        error = _unexpected_error(e)
    return Result(value, error, where, time.perf_counter() - start)


def _unexpected_error(e: Exception) -> CannotDo:
    error = CannotDo(f"unexpected {type(e).__name__}: {one_line(e)}")
    error.__cause__ = e
    return error


class Backend(Protocol):
    """Starts workers and carries calls to them.

    Attributes:
        size: number of workers.
        local: whether the worker shares this process, its files and its progress lines.
        died: exceptions with which a future fails when its worker is gone.

    Methods:
        start: start a worker; its future returns the version of HeadAtlas that it runs.
        prepare: make the object whose methods are called, inside the worker.
        send: call one of that object's methods.
    """

    size: int
    local: bool
    died: tuple[type[BaseException], ...]

    def start(self) -> tuple[Any, "Future[Result]"]: ...
    def prepare(self, worker: Any) -> "Future[Result]": ...
    def send(self, worker: Any, call: str, arguments: tuple[Any, ...]) -> "Future[Result]": ...
    def stop(self, worker: Any) -> None: ...
    def close(self) -> None: ...


@dataclass
class Worker:
    """The part of a backend that runs in a worker's process. It prints nothing: results carry errors and log lines."""

    where: str
    worker: Any = None

    def hello(self) -> Result:
        """Return the version of HeadAtlas here."""
        return Result(__version__, where=self.where)

    def prepare(self, make: MakeWorker) -> Result:
        """Make the object whose methods `send` calls."""

        def set_worker() -> None:
            self.worker = make()

        return self._attempt(set_worker)

    def send(self, call: str, arguments: tuple[Any, ...]) -> Result:
        """Call a method by name."""
        return self._attempt(lambda: getattr(self.worker, call)(*arguments))

    def _attempt(self, do: Callable[[], Any]) -> Result:
        """Call a function, and return its result with the messages that it logged."""
        handler = _LogCollector()
        logger = logging.getLogger("headatlas")
        level = logger.level
        propagate = logger.propagate
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        try:
            result = attempt(do, self.where)
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate
        if result.error is not None and result.error.__cause__ is not None:
            # pickling drops the cause, so its traceback travels as a note, which `--debug` prints
            result.error.add_note("".join(traceback.format_exception(result.error.__cause__)))
        return replace(result, logged=tuple(handler.logged))


class _LogCollector(logging.Handler):
    """Collects log messages as plain data that can be pickled."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.logged: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.logged.append((record.levelno, record.getMessage()))


class Pool:
    """Workers, started when there are tasks for them and stopped at the end of the `with` block."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        # every worker is in exactly one of these four, in the order of its life
        self.starting: dict[Future[Result], Any] = {}
        self.preparing: dict[Future[Result], Any] = {}
        self.idle: list[Any] = []
        self.busy: dict[Future[Result], tuple[Any, Task]] = {}
        # by task; "" counts workers that died one after another before they were prepared
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

    def ask(self, call: str, *arguments: Any) -> Any:
        """Call a worker's method; return its value or raise its error."""
        [(_, result)] = self.run([Task(call, call, call, lambda: arguments)])
        if result.error is not None:
            raise result.error_at()
        return result.value

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, Result]]:
        """Run all tasks and yield each with its result as it comes. Among tasks that could run next, order decides.

        If a task fails, the remaining tasks of its group are dropped. A worker that dies is replaced, and its task is
        run again; after `MAX_TRIES` deaths the task counts as failed.

        Raises:
            HeadAtlasError: a worker cannot be made.
        """
        waiting = list(tasks)
        done = set[str]()
        n_present = len(self.idle) + len(self.starting) + len(self.preparing)
        for _ in range(min(self.backend.size, len(waiting)) - n_present):
            self._start()
        while waiting or self.busy:
            for task in [t for t in waiting if t.dependencies <= done][: len(self.idle)]:
                arguments = task.arguments()
                worker = self.idle.pop(0)
                try:
                    self.busy[self.backend.send(worker, task.call, arguments)] = worker, task
                except self.backend.died:
                    # it died while idle, so no task counts the death
                    self.backend.stop(worker)
                    self._start()
                    continue
                waiting.remove(task)
            timeout = None if self.busy or self.preparing else MAX_START_SECONDS
            ready = wait([*self.busy, *self.preparing, *self.starting], timeout, FIRST_COMPLETED).done
            if not ready:
                raise CannotDo(
                    f"no worker could be started within {MAX_START_SECONDS:.0f} s: no machine has room for one"
                )
            for future in ready:
                if future in self.starting or future in self.preparing:
                    self._advance_worker(future)
                    continue
                task, result = self._collect(future)
                if result is None:
                    waiting.insert(0, task)
                    continue
                if result.error:
                    waiting = [t for t in waiting if t.group != task.group]
                else:
                    done.add(task.name)
                yield task, result

    def _start(self) -> None:
        worker, future = self.backend.start()
        self.starting[future] = worker

    def _advance_worker(self, future: "Future[Result]") -> None:
        """Prepare a worker that has started, or make one that is prepared available for tasks.

        Raises:
            HeadAtlasError: the worker cannot be made, or runs another version of HeadAtlas.
        """
        just_started = future in self.starting
        worker = (self.starting if just_started else self.preparing).pop(future)
        try:
            result = _relog(future.result())
            if just_started and result.value == __version__:
                self.preparing[self.backend.prepare(worker)] = worker
                return
        except self.backend.died as e:
            self.backend.stop(worker)
            # the limit grows with the pool: a machine that is lost takes all its workers with it
            self.deaths[""] += 1
            if self.deaths[""] >= MAX_TRIES * self.backend.size:
                raise CannotDo(f"workers die while they are made: {one_line(e)}") from e
            self._start()
            return
        except Exception as e:
            self.backend.stop(worker)
            raise CannotDo(f"a worker could not be made: {one_line(e)}") from e
        self.deaths[""] = 0
        self.idle.append(worker)
        if just_started:
            raise CannotDo(
                f"{result.where} runs HeadAtlas {result.value}, but this process runs {__version__}:"
                " install the same version on both"
            )
        if result.error:
            raise result.error_at()

    def _collect(self, future: "Future[Result]") -> tuple[Task, Result | None]:
        """Return a task and its result; None if its worker died and it must be run again."""
        worker, task = self.busy.pop(future)
        try:
            result = _relog(future.result())
        except self.backend.died as e:
            self.backend.stop(worker)
            self._start()
            self.deaths[task.name] += 1
            if self.deaths[task.name] >= MAX_TRIES:
                error = CannotDo(f"its worker died {MAX_TRIES} times, most recently with: {one_line(e)}")
                return task, Result(error=error)
            log.warning("%s: its worker died; running it again", task.name)
            return task, None
        # such as a result that cannot be pickled
        except Exception as e:  # noqa: BLE001
            result = Result(error=_unexpected_error(e))
        self.idle.append(worker)
        return task, result


def _relog(result: Result) -> Result:
    """Log in this process what a worker logged in its own."""
    for level, text in result.logged:
        log.log(level, "%s", text)
    return result
