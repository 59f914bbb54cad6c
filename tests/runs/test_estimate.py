"""What a run would take, from one part of each kind."""

import time

import numpy as np
import pytest

from headatlas.errors import CannotDo
from headatlas.methods import get_method
from headatlas.methods.method import Part, Work
from headatlas.runs.estimate import SECONDS_TO_WRITE, Sample, estimate, makespan, time_plan
from headatlas.runs.plan import Plan
from headatlas.testing import MethodCase, tiny_lm


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_loop_counts_as_if_it_had_run_to_its_end(clock) -> None:
    sample = Sample(clock, max_items=2)
    for seconds in sample([4, 1, 100, 100], "first item is slow"):
        clock.seconds += seconds
    assert clock.seconds == 5
    assert sample.clock() == 4 + 1 + 1 + 1


def test_an_item_that_takes_long_is_not_repeated(clock) -> None:
    sample = Sample(clock, max_items=2, max_seconds=5)
    for seconds in sample([5, 100, 100], "long items"):
        clock.seconds += seconds
    assert clock.seconds == 5
    assert sample.clock() == 3 * 5


def test_loops_within_loops_multiply(clock) -> None:
    sample = Sample(clock, max_items=1)
    for _ in sample(range(3), "outer"):
        for _ in sample(range(10), "inner"):
            clock.seconds += 2
        clock.seconds += 1
    assert clock.seconds == 3
    assert sample.clock() == 3 * (10 * 2 + 1)


def test_short_and_empty_loops_are_done(clock) -> None:
    sample = Sample(clock, max_items=2)
    assert list(sample([], "empty")) == []
    assert list(sample([7], "short")) == [7]
    assert sample.clock() == 0


def work_of(n_parts: int, steps: int, fail: bool = False) -> Work:
    return Work(
        summary="",
        parts=[
            Part(name=f"part {i}", do=burn, arguments={"steps": steps, "name": f"part {i}"}) for i in range(n_parts)
        ],
        combine=fails if fail else add,
        arguments={"n": n_parts},
    )


def burn(model, *, steps, name, done, progress) -> None:
    for _ in progress(range(steps), name):
        end = time.thread_time() + 0.01
        while time.thread_time() < end:
            pass
    done[name] = (np.ones(2),)


def add(model, *, n, done, progress) -> None:
    sum(done[f"part {i}"][0] for i in range(n))


def fails(model, *, n, done, progress) -> None:
    raise KeyError("an item that a cut loop left out")


@pytest.mark.parametrize("fail", [False, True])
def test_one_part_of_each_kind_is_timed_and_the_others_are_as_long(fail) -> None:
    plan = Plan("job", work_of(4, 10, fail), {})
    seconds = time_plan(plan, None)
    assert list(seconds) == ["job: part 0", "job: part 1", "job: part 2", "job: part 3", "job: result"]
    assert len({seconds[f"job: part {i}"] for i in range(4)}) == 1
    assert seconds["job: part 0"] >= 10 * 0.01
    assert seconds["job: result"] >= SECONDS_TO_WRITE


def plan(*parts: tuple[str, ...], method: str) -> Plan:
    """A plan whose part i reads these arrays."""
    made = [Part(name=f"p{i}", do=burn, inputs=inputs) for i, inputs in enumerate(parts)]
    return Plan(method, Work(summary="", combine=add, parts=made), {})


@pytest.mark.parametrize(("workers", "seconds"), [(1, 11), (2, 7), (9, 6)])
def test_the_end_depends_on_workers_and_on_what_waits_for_what(workers, seconds) -> None:
    plans = {"a": plan((), ("p0",), ("p0",), method="a"), "b": plan(method="b")}
    tasks = {"a": {"a: p0": 1.0, "a: p1": 3.0, "a: p2": 3.0, "a: result": 2.0}, "b": {"b: result": 2.0}}
    assert makespan(plans, tasks, workers) == seconds


@pytest.mark.parametrize("name", ["ablate", "dissociate", "maps", "pattern", "taylor"])
def test_every_task_of_a_method_is_timed_and_the_model_left_as_it_was(name) -> None:
    subject = MethodCase(get_method(name).function)
    before = subject.lm.fingerprint()
    seconds = time_plan(subject.plan, subject.lm)
    assert set(seconds) == {*(subject.plan.task_name(p.name) for p in subject.plan.work.parts), f"{name}: result"}
    assert all(s > 0 for s in seconds.values())
    assert subject.lm.fingerprint() == before


def test_an_estimate_of_a_run(folder) -> None:
    result = estimate(folder, methods=["taylor", "pattern", "influence"], device="cpu")
    assert set(result.tasks) == {"taylor", "pattern", "influence"}
    assert result.seconds == pytest.approx(result.work)  # one worker
    assert result.memory.weights > 0


def test_tokens_at_once_are_those_of_the_worker_s_device(folder, monkeypatch) -> None:
    monkeypatch.setattr("headatlas.runs.worker.tokens_at_once", lambda lm, tokens: 77)
    assert estimate(folder, methods=["taylor"], device="cpu").tokens == 77


def test_a_method_that_cannot_be_done_is_noted_in_the_estimate(monkeypatch) -> None:
    def refuses(*args: object) -> Work:
        raise CannotDo("not on this model")

    monkeypatch.setattr("headatlas.runs.worker.make_work", refuses)
    result = estimate(tiny_lm(), methods=["pattern"])
    assert str(result.planned.plans["pattern"]) == "not on this model"
    assert result.tasks == {}
