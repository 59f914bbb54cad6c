"""Do tasks on workers, return results as they come, and try again where a worker died.

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

TRIES = 3  # workers that may die over one task
PATIENCE = 120.0  # seconds to wait for room for a worker while none is at work; loading a model may take longer

log = logging.getLogger(__name__)

MakeWorker = Callable[[], Any]
"""Makes a worker: an object whose methods are called by name."""


@dataclass(frozen=True)
class Task:
    """A call of one of the worker's methods.

    Args:
        name: what it is called in messages.
        group: tasks of one group are given up together.
        call: the name of the worker's method.
        arguments: makes the arguments, when it is the task's turn.
        needs: names of the tasks that must be done before.
    """

    name: str
    group: str
    call: str
    arguments: Callable[[], tuple[Any, ...]]
    needs: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Result:
    """What came of a task: its value, or the error that prevented it.

    Args:
        where: the machine, if it was not done by this process.
        logged: level and text of what was logged meanwhile, elsewhere.
    """

    value: Any = None
    error: HeadAtlasError | None = None
    where: str = ""
    seconds: float = 0.0
    logged: tuple[tuple[int, str], ...] = ()

    def error_at(self, name: str = "") -> HeadAtlasError:
        """The error; of another process, with the task's name and where it was done."""
        assert self.error is not None
        if not self.where:
            return self.error
        error = CannotDo(f"{name}, on {self.where}: {self.error}" if name else f"{self.where}: {self.error}")
        error.__cause__ = self.error
        return error


def attempt(do: Callable[[], Any], where: str = "") -> Result:
    """Call a function. An error of any kind is part of the result: one that is not ours is named, and kept as cause."""
    value: Any = None
    error: HeadAtlasError | None = None
    start = time.perf_counter()
    try:
        value = do()
    except HeadAtlasError as e:
        error = e
    except Exception as e:  # noqa: BLE001  one failure of any kind must not end the other tasks
        error = CannotDo(f"unexpected {type(e).__name__}: {one_line(e)}")
        error.__cause__ = e
    return Result(value, error, where, time.perf_counter() - start)


class Backend(Protocol):
    """Starts workers and carries calls to them. A future that fails with one of `died`: the worker is gone.

    start: a worker, whose future is done when it runs and says which version of HeadAtlas it has.
    prepare: the object whose methods are called is made there.
    send: one of its methods is called.
    local: whether workers share this process, its files and its progress.
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
    """What runs in a worker's process. Errors and log lines are part of results; the worker prints nothing."""

    where: str
    worker: Any = None

    def hello(self) -> Result:
        return Result(__version__, where=self.where)

    def prepare(self, make: MakeWorker) -> Result:
        def become() -> None:
            self.worker = make()

        return self._attempt(become)

    def send(self, call: str, arguments: tuple[Any, ...]) -> Result:
        return self._attempt(lambda: getattr(self.worker, call)(*arguments))

    def _attempt(self, do: Callable[[], Any]) -> Result:
        records = _Records()
        ours = logging.getLogger("headatlas")
        level, propagate = ours.level, ours.propagate
        ours.addHandler(records)
        ours.setLevel(logging.INFO)
        ours.propagate = False
        try:
            result = attempt(do, self.where)
        finally:
            ours.removeHandler(records)
            ours.setLevel(level)
            ours.propagate = propagate
        if result.error is not None and result.error.__cause__ is not None:
            # pickling drops the cause: its traceback is what `--debug` can print
            result.error.add_note("".join(traceback.format_exception(result.error.__cause__)))
        return replace(result, logged=tuple(records.logged))


class _Records(logging.Handler):
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
        self.starting: dict[Future[Result], Any] = {}
        self.preparing: dict[Future[Result], Any] = {}
        self.busy: dict[Future[Result], tuple[Any, Task]] = {}
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
        """Call a worker's method, and return what it returns; its error is raised."""
        [(_, result)] = self.run([Task(call, call, call, lambda: arguments)])
        if result.error is not None:
            raise result.error_at()
        return result.value

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, Result]]:
        """Do all tasks, in order where nothing else decides, and yield each with its result as it comes.

        A task that fails takes the rest of its group with it. A worker that dies is replaced, and its task is done
        again; the third time, the task counts as failed. A worker that cannot be made ends everything.
        """
        waiting, done = list(tasks), set[str]()
        begun = len(self.idle) + len(self.starting) + len(self.preparing)
        for _ in range(min(self.backend.size, len(waiting)) - begun):
            self._start()
        while waiting or self.busy:
            for task in [t for t in waiting if t.needs <= done][: len(self.idle)]:
                arguments = task.arguments()
                worker = self.idle.pop(0)
                try:
                    self.busy[self.backend.send(worker, task.call, arguments)] = worker, task
                except self.backend.died:  # while it had nothing to do
                    self.backend.stop(worker)
                    self._start()
                    continue
                waiting.remove(task)
            patience = None if self.busy or self.preparing else PATIENCE
            ready = wait([*self.busy, *self.preparing, *self.starting], patience, FIRST_COMPLETED).done
            if not ready:
                raise CannotDo(f"no worker could be started within {PATIENCE:.0f} s: no machine has room for one")
            for future in ready:
                if future in self.starting or future in self.preparing:
                    self._one_step(future)
                    continue
                task, result = self._ended(future)
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

    def _one_step(self, future: "Future[Result]") -> None:
        """A worker has started, and is prepared; or is prepared, and can be sent tasks; or it could not be made."""
        started = future in self.starting
        worker = (self.starting if started else self.preparing).pop(future)
        try:
            result = _logged(future.result())
            if started and result.value == __version__:
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
            raise CannotDo(
                f"{result.where}: HeadAtlas is {result.value} there, but {__version__} here: install the same"
            )
        if result.error:
            raise result.error_at()

    def _ended(self, future: "Future[Result]") -> tuple[Task, Result | None]:
        """A task and its result; none, where it must be done again."""
        worker, task = self.busy.pop(future)
        try:
            result = _logged(future.result())
        except self.backend.died as e:
            self.backend.stop(worker)
            self._start()
            self.deaths[task.name] += 1
            if self.deaths[task.name] >= TRIES:
                return task, Result(error=CannotDo(f"its worker died {TRIES} times, the last time: {one_line(e)}"))
            log.warning("%s: its worker died, it is done again", task.name)
            return task, None
        except Exception as e:  # noqa: BLE001  such as a result that cannot be pickled
            error = CannotDo(f"unexpected {type(e).__name__}: {one_line(e)}")
            error.__cause__ = e
            result = Result(error=error)
        self.idle.append(worker)
        return task, result


def _logged(result: Result) -> Result:
    """Log here what a worker logged."""
    for level, text in result.logged:
        log.log(level, "%s", text)
    return result
