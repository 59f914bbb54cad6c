"""Items of work on workers that die, fail, or cannot be made: with processes of this machine."""

import logging
import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from headatlas.engines import pool
from headatlas.engines.pool import Pool, Task
from headatlas.engines.processes import Processes
from headatlas.errors import BadArgument, CannotDo


class Worker:
    """Notes when it was made; its methods are what tasks call."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / f"made {os.getpid()}").touch()

    def add(self, *numbers: int) -> int:
        return sum(numbers)

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def die_once(self) -> str:
        if not (self.folder / "died").exists():
            (self.folder / "died").touch()
            self.die()
        return "alive"

    def log(self, text: str) -> None:
        logging.getLogger("headatlas.somewhere").warning("careful: %s", text)

    def refuse(self) -> None:
        raise BadArgument("x is 3, expected 4")

    def fail(self) -> None:
        raise ZeroDivisionError("a\nb")


def cannot_make(folder: Path):
    raise BadArgument("model '/no/such': no such file")


def dies_at_once(folder: Path):
    os.kill(os.getpid(), signal.SIGKILL)


def asking(call, *arguments, name: str = "", group: str = "g", dependencies: tuple[str, ...] = ()) -> Task:
    return Task(name or str((call, *arguments)), group, call, lambda: arguments, frozenset(dependencies))


def workers(folder: Path, size: int = 2, made_by=Worker) -> Pool:
    return Pool(Processes(partial(made_by, folder), size))


def test_items_come_as_they_finish_and_workers_are_made_once(tmp_path) -> None:
    with workers(tmp_path) as pool_:
        replies = {p.name: a.value for p, a in pool_.run([asking("add", i, 1) for i in range(6)])}
        assert replies == {str(("add", i, 1)): i + 1 for i in range(6)}
        assert [a.value for _, a in pool_.run([asking("add", 5)])] == [5]
    assert len(list(tmp_path.glob("made *"))) <= 2


def test_items_wait_for_what_they_need(tmp_path) -> None:
    last = asking("add", 3, name="last", dependencies=("first", "second"))
    with workers(tmp_path) as pool_:
        order = [p.name for p, _ in pool_.run([last, asking("add", 1, name="first"), asking("add", 2, name="second")])]
    assert order[-1] == "last"


def test_an_item_whose_worker_died_is_done_again(tmp_path, caplog) -> None:
    with workers(tmp_path) as pool_:
        replies = {
            p.name: a.value
            for p, a in pool_.run([asking("die_once", name="risky"), *(asking("add", i) for i in range(4))])
        }
    assert replies["risky"] == "alive"
    assert len(replies) == 5
    assert "risky: its worker died; running it again" in caplog.text


def test_an_item_that_always_kills_is_given_up_with_its_group(tmp_path, caplog) -> None:
    items = [
        asking("die", name="deadly", group="a"),
        asking("add", 1, name="rest", group="a", dependencies=("deadly",)),
        asking("add", 2),
    ]
    with workers(tmp_path) as pool_:
        replies = {p.name: a for p, a in pool_.run(items)}
    assert str(replies["deadly"].error).startswith("its worker died 3 times, most recently with: ")
    assert replies[str(("add", 2))].value == 2
    assert "rest" not in replies
    assert caplog.text.count("running it again") == 2


def test_errors_come_back_as_one_line(tmp_path) -> None:
    with workers(tmp_path, 1) as pool_:
        (_, bad), (_, bug) = pool_.run([asking("refuse", group="a"), asking("fail", group="b")])
    assert isinstance(bad.error, BadArgument)
    assert str(bad.error) == "x is 3, expected 4"
    assert isinstance(bug.error, CannotDo)
    assert str(bug.error) == "unexpected ZeroDivisionError: a"
    assert 'raise ZeroDivisionError("a\\nb")' in bug.error.__notes__[0]  # the traceback, for --debug
    assert bug.error_at("part").args == ("part, on this machine: unexpected ZeroDivisionError: a",)


def test_what_workers_log_is_logged_here(tmp_path, caplog) -> None:
    with workers(tmp_path, 1) as pool_:
        list(pool_.run([asking("log", "hot")]))
    assert [(r.levelno, r.getMessage()) for r in caplog.records] == [(logging.WARNING, "careful: hot")]


def test_a_worker_that_cannot_be_made_says_where_and_why(tmp_path) -> None:
    with (
        workers(tmp_path, 2, cannot_make) as pool_,
        pytest.raises(CannotDo, match="^this machine: model '/no/such': no such file$"),
    ):
        list(pool_.run([asking("add", 1)]))


def test_workers_that_die_while_they_are_made_are_not_started_for_ever(tmp_path) -> None:
    with workers(tmp_path, 1, dies_at_once) as pool_, pytest.raises(CannotDo, match="workers die while they are made"):
        list(pool_.run([asking("add", 1)]))


def test_nobody_waits_for_ever_for_a_first_worker(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(pool, "MAX_START_SECONDS", 0.01)
    with workers(tmp_path, 1) as pool_, pytest.raises(CannotDo, match="no worker could be started within 0 s"):
        list(pool_.run([asking("add", 1)]))


def test_no_process_is_left_when_work_is_broken_off(tmp_path) -> None:
    with pytest.raises(KeyboardInterrupt), workers(tmp_path) as pool_:
        for _ in pool_.run([asking("add", i) for i in range(50)]):
            raise KeyboardInterrupt
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(
        Path(f"/proc/{p.name.split()[1]}/stat").exists() for p in tmp_path.glob("made *")
    ):
        pass
    assert not any(Path(f"/proc/{p.name.split()[1]}/stat").exists() for p in tmp_path.glob("made *"))
