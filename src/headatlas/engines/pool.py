"""Run independent pieces of work on workers, hand back what they find as it comes, and try again where a worker died.

A worker is made once, by a function that can be pickled, and then asked piece after piece: a model is loaded once a worker. What
starts workers and carries messages is a crew: processes of this machine (`processes`), or actors of a Ray cluster (`cluster`).
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

TRIES = 3  # workers that may die over one piece
PATIENCE = 120.0  # seconds to wait for room for a worker while none is at work; to load its model it may take longer

log = logging.getLogger(__name__)

Make = Callable[[], Callable[[Any], Any]]
"""What makes a worker: a function of what is asked."""


@dataclass(frozen=True)
class Piece:
    name: str
    group: str  # pieces of one group are given up together
    what: Callable[[], Any]  # what to ask a worker; made when its turn comes
    needs: frozenset[str] = frozenset()  # pieces that must be done before


@dataclass(frozen=True)
class Answer:
    value: Any = None
    error: str = ""  # one line, where there is no value
    where: str = ""  # the machine
    seconds: float = 0.0
    said: tuple[tuple[int, str], ...] = ()  # what was logged meanwhile: level and text


class Crew(Protocol):
    """Starts workers and carries questions to them. A future that fails with one of `died` means that the worker is gone.

    hire: a worker, whose future is done when it has found room and says hello. make: it becomes what it is to be.
    """

    size: int
    died: tuple[type[BaseException], ...]
    make_one: Make

    def hire(self) -> tuple[Any, "Future[Answer]"]: ...
    def make(self, worker: Any) -> "Future[Answer]": ...
    def ask(self, worker: Any, what: Any) -> "Future[Answer]": ...
    def dismiss(self, worker: Any) -> None: ...
    def close(self) -> None: ...


@dataclass
class Worker:
    """What runs over there. Errors come back as text: nothing is printed or logged there."""

    where: str
    answer: Callable[[Any], Any] | None = None

    def hello(self) -> Answer:
        return Answer(__version__, where=self.where)

    def start(self, make: Make) -> Answer:
        return self._telling(lambda: self._become(make))

    def ask(self, what: Any) -> Answer:
        assert self.answer is not None
        answer = self.answer
        return self._telling(lambda: answer(what))

    def _become(self, make: Make) -> None:
        self.answer = make()

    def _telling(self, do: Callable[[], Any]) -> Answer:
        kept = _Kept()
        ours = logging.getLogger("headatlas")
        level, passes_on = ours.level, ours.propagate
        ours.addHandler(kept)
        ours.setLevel(logging.INFO)
        ours.propagate = False
        start = time.perf_counter()
        value, error = None, ""
        try:
            value = do()
        except HeadAtlasError as e:
            error = str(e)
        except Exception as e:  # noqa: BLE001  whatever it is, the one who asked must hear of it
            error = f"{type(e).__name__}: {one_line(e)}"
        finally:
            ours.removeHandler(kept)
            ours.setLevel(level)
            ours.propagate = passes_on
        return Answer(value, error, self.where, time.perf_counter() - start, tuple(kept.said))


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.said: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append((record.levelno, record.getMessage()))


class Pool:
    """Workers, hired when there is work for them and kept until the end of the block."""

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        self.idle: list[Any] = []
        self.coming: dict[Future[Answer], Any] = {}
        self.starting: dict[Future[Answer], Any] = {}
        self.busy: dict[Future[Answer], tuple[Any, Piece]] = {}
        self.deaths = Counter[str]()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for worker in [
                *self.coming.values(),
                *self.starting.values(),
                *self.idle,
                *(w for w, _ in self.busy.values()),
            ]:
                self.crew.dismiss(worker)
        finally:
            self.crew.close()

    def run(self, pieces: Sequence[Piece]) -> Iterator[tuple[Piece, Answer]]:
        """Do all pieces, in order where nothing else decides, and give each with its answer as it comes.

        A piece that fails takes the rest of its group with it. A worker that dies is replaced, and its piece is done again; the
        third time, the piece counts as failed. A worker that cannot be made ends everything.
        """
        waiting, done = list(pieces), set[str]()
        for _ in range(min(self.crew.size, len(waiting)) - len(self.idle) - len(self.coming) - len(self.starting)):
            self._hire()
        while waiting or self.busy:
            for piece in [p for p in waiting if p.needs <= done][: len(self.idle)]:
                what = piece.what()
                worker = self.idle.pop(0)
                try:
                    self.busy[self.crew.ask(worker, what)] = worker, piece
                except self.crew.died:  # while it had nothing to do
                    self.crew.dismiss(worker)
                    self._hire()
                    continue
                waiting.remove(piece)
            patience = None if self.busy or self.starting else PATIENCE
            ready = wait([*self.busy, *self.starting, *self.coming], patience, FIRST_COMPLETED).done
            if not ready:
                raise CannotDo(f"no worker could be started within {PATIENCE:.0f} s: no machine has room for one")
            for future in ready:
                if future in self.coming or future in self.starting:
                    self._one_step(future)
                    continue
                piece, answer = self._ended(future)
                if answer is None:
                    waiting.insert(0, piece)
                    continue
                if answer.error:
                    waiting = [p for p in waiting if p.group != piece.group]
                else:
                    done.add(piece.name)
                yield piece, answer

    def _hire(self) -> None:
        worker, future = self.crew.hire()
        self.coming[future] = worker

    def _one_step(self, future: "Future[Answer]") -> None:
        """A worker has come, and can be made; or is made, and can be asked; or nothing came of it."""
        said_hello = future in self.coming
        worker = (self.coming if said_hello else self.starting).pop(future)
        try:
            answer = _said(future.result())
            if said_hello and answer.value == __version__:
                self.starting[self.crew.make(worker)] = worker
                return
        except self.crew.died as e:
            self.crew.dismiss(worker)
            self.deaths[""] += 1  # in a row: a machine that is lost takes all its workers with it
            if self.deaths[""] >= TRIES * self.crew.size:
                raise CannotDo(f"workers die while they are made: {one_line(e)}") from e
            self._hire()
            return
        except Exception as e:
            self.crew.dismiss(worker)
            raise CannotDo(f"a worker could not be made: {one_line(e)}") from e
        self.deaths[""] = 0
        self.idle.append(worker)
        if said_hello:
            raise CannotDo(
                f"{answer.where}: HeadAtlas is {answer.value} there, but {__version__} here: install the same"
            )
        if answer.error:
            raise CannotDo(f"{answer.where}: {answer.error}")

    def _ended(self, future: "Future[Answer]") -> tuple[Piece, Answer | None]:
        """A piece and its answer; none, where it must be done again."""
        worker, piece = self.busy.pop(future)
        try:
            answer = _said(future.result())
        except self.crew.died as e:
            self.crew.dismiss(worker)
            self._hire()
            self.deaths[piece.name] += 1
            if self.deaths[piece.name] >= TRIES:
                return piece, Answer(error=f"its worker died {TRIES} times, the last time: {one_line(e)}")
            log.warning("%s: its worker died, it is done again", piece.name)
            return piece, None
        except Exception as e:  # noqa: BLE001  what it found could not travel, or some such
            answer = Answer(error=f"{type(e).__name__}: {one_line(e)}")
        self.idle.append(worker)
        return piece, answer


def _said(answer: Answer) -> Answer:
    """What a worker logged is logged here."""
    for level, text in answer.said:
        log.log(level, "%s", text)
    return answer
