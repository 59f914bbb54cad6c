"""The queue before the model: what goes first, what is dropped, and that one bad question ends nothing."""

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headatlas.live.queue import Message, ModelQueue

LONG_ENOUGH = 10  # seconds, after which a test has failed


@pytest.fixture
def model() -> ModelQueue:
    return ModelQueue(lambda error: {"error": str(error)}).start()


class Busy:
    """A question that keeps the model's thread until it is let go."""

    def __init__(self, model: ModelQueue, page: str = "busy", place: str = "busy", kind: str = "next") -> None:
        self._begun, self._go = threading.Event(), threading.Event()
        model.put(page, place, kind, self._answer(), lambda message: None)
        assert self._begun.wait(LONG_ENOUGH)

    def _answer(self) -> Iterator[Message]:
        self._begun.set()
        assert self._go.wait(LONG_ENOUGH)
        yield {}

    def end(self) -> None:
        self._go.set()


class LoggedQuestion:
    """A question of a given number of steps, the messages about it, and how far it was answered."""

    def __init__(self, name: str = "", steps: int = 1, log: list[str] | None = None) -> None:
        self.name, self.steps, self.log = name, steps, [] if log is None else log
        self.done, self.closed = 0, threading.Event()
        self.told: queue.Queue[Message | None] = queue.Queue()

    def answer(self) -> Iterator[Message]:
        try:
            while self.done < self.steps:
                self.done += 1
                self.log.append(f"{self.name}{self.done}")
                yield {"step": self.done}
        finally:
            self.closed.set()

    def put(self, model: ModelQueue, page: str = "page", place: str = "place", kind: str = "next") -> "LoggedQuestion":
        self.job = model.put(page, place, kind, self.answer(), self.told.put)
        return self

    def all_told(self) -> list[Message]:
        return list(iter(lambda: self.told.get(timeout=LONG_ENOUGH), None))


def steps(n: int) -> list[Message]:
    return [{"step": i} for i in range(1, n + 1)]


def test_quick_questions_go_before_the_next_step_of_long_ones(model) -> None:
    log: list[str] = []
    busy = Busy(model)
    kinds = ["exact", "control", "continuation", "next", "attention"]
    questions = [LoggedQuestion(kind, 2, log).put(model, place=kind, kind=kind) for kind in kinds]
    busy.end()
    assert [a.all_told() for a in questions] == [steps(2)] * 5
    first = ["next1", "next2", "attention1", "attention2", "continuation1", "continuation2"]
    assert log == [*first, "exact1", "exact2", "control1", "control2"]


def test_a_quick_question_interrupts_a_long_one(model) -> None:
    log: list[str] = []
    long, quick = LoggedQuestion("long", 3, log), LoggedQuestion("quick", 1, log)
    told = long.told.put

    def tell(message: Message | None) -> None:  # in the model's thread, after a step
        if message == {"step": 1}:
            quick.put(model, "another", kind="next")
        told(message)

    model.put("page", "place", "exact", long.answer(), tell)
    assert long.all_told() == steps(3)
    assert quick.all_told() == steps(1)
    assert log == ["long1", "quick1", "long2", "long3"]


@pytest.mark.parametrize(
    ("place", "dropped"), [("place", {"older"}), ("other", set()), ("prompt", {"older", "elsewhere"})]
)
def test_a_newer_question_drops_older_ones_of_its_page(model, place, dropped) -> None:
    """For its own place, or for every place if the prompt is new; and never those of another page."""
    busy = Busy(model)
    questions = {
        "older": LoggedQuestion().put(model, place="place"),
        "elsewhere": LoggedQuestion().put(model, place="elsewhere", kind="exact"),
        "stranger": LoggedQuestion().put(model, "stranger", place="place"),
        "strange prompt": LoggedQuestion().put(model, "another", place="prompt"),
    }
    newer = LoggedQuestion().put(model, place=place)
    busy.end()
    assert newer.all_told() == steps(1)
    for name, one in questions.items():
        assert one.all_told() == ([] if name in dropped else steps(1)), name
        assert one.done == (name not in dropped)  # nothing was done for it
        assert one.job.dropped.is_set() == (name in dropped)


def test_a_long_question_is_dropped_between_two_steps_and_let_go(model) -> None:
    older, newer = LoggedQuestion(steps=1000), LoggedQuestion()
    told = older.told.put

    def tell(message: Message | None) -> None:
        if message == {"step": 2}:
            newer.put(model, kind="exact")
        told(message)

    model.put("page", "place", "exact", older.answer(), tell)
    assert newer.all_told() == steps(1)
    assert older.all_told() == steps(2)
    assert older.done == 2
    assert older.closed.wait(LONG_ENOUGH)


def test_a_question_that_was_answered_is_dropped_no_more(model) -> None:
    first = LoggedQuestion().put(model)
    assert first.all_told() == steps(1)
    second = LoggedQuestion().put(model)
    assert second.all_told() == steps(1)
    assert not first.job.dropped.is_set()


def test_a_question_that_nobody_wants_is_not_answered(model) -> None:
    busy = Busy(model)
    left, wanted = LoggedQuestion().put(model, "left"), LoggedQuestion().put(model, "wanted")
    model.drop(left.job)
    busy.end()
    assert left.all_told() == []
    assert left.done == 0
    assert wanted.all_told() == steps(1)


@pytest.mark.parametrize("after", [0, 1])
def test_an_exception_is_told_and_the_next_question_is_answered(model, after) -> None:
    class Bad(LoggedQuestion):
        def answer(self) -> Iterator[Message]:
            yield from super().answer()
            raise RuntimeError("it broke")

    bad = Bad(steps=after).put(model)
    assert bad.all_told() == [*steps(after), {"error": "it broke"}]
    assert LoggedQuestion().put(model).all_told() == steps(1)


def test_all_is_done_in_one_thread(model) -> None:
    threads: list[Any] = []

    class Noted(LoggedQuestion):
        def answer(self) -> Iterator[Message]:
            threads.append(threading.current_thread())
            yield from super().answer()

    for kind in ("next", "exact"):
        Noted().put(model, kind=kind).all_told()
    assert len(set(threads)) == 1
    assert threads[0] is not threading.current_thread()


def test_a_question_may_end_while_a_newer_one_is_put(model, monkeypatch) -> None:
    ended, busy = threading.Event(), Busy(model)
    older = LoggedQuestion()
    model.put("page", "place", "next", older.answer(), lambda message: None if message else ended.set())

    def slowly(job: Any, drop: Callable[[Any], None] = model.drop) -> None:
        drop(job)
        busy.end()
        ended.wait(0.5)  # no longer: whoever holds a lock here has nothing to wait for

    monkeypatch.setattr(model, "drop", slowly)
    assert LoggedQuestion().put(model).all_told() == steps(1)


def test_a_queue_that_is_stopped_has_let_go_of_the_model(model) -> None:
    going, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def answer() -> Iterator[Message]:
        going.set()
        may_end.wait(LONG_ENOUGH)
        ended.set()
        yield {"step": 1}
        raise AssertionError("asked on after the end")

    queue = ModelQueue(lambda error: {"error": str(error)}).start()
    queue.put("page", "place", "next", answer(), lambda message: None)
    assert going.wait(LONG_ENOUGH)
    stopping = threading.Thread(target=queue.stop)
    stopping.start()
    assert not ended.is_set()
    may_end.set()
    stopping.join(LONG_ENOUGH)
    assert ended.is_set()
    assert not stopping.is_alive()
