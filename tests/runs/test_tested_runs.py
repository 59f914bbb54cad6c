"""Runs that test their maps: what they show of the tests, and which options and commands ask for them."""

import json
import re
from pathlib import Path

import pytest

import headatlas as ha
from headatlas.models.lm import LM
from headatlas.progress import Watch
from headatlas.runs import map_tests
from headatlas.testing import tiny_lm
from tests.test_cli import headatlas

TASKS = ["math", "syntax"]


@pytest.fixture(scope="module")
def lm() -> LM:
    return tiny_lm()


class Pages(Watch):
    """What the page was waiting for, each time it was drawn before the end."""

    def __init__(self) -> None:
        self.pending: list[list[str]] = []

    def on_page_drawn(self, page: Path) -> None:
        self.pending.append(json.loads(re.search(r'"pending":(\[.*?\])', page.read_text())[1]))


@pytest.fixture(scope="module")
def atlas(lm, tmp_path_factory) -> tuple[ha.Atlas, Pages]:
    watch = Pages()
    return ha.run(lm, tmp_path_factory.mktemp("atlas"), methods=["pattern", "taylor"], watch=watch), watch


def test_a_run_tests_its_maps_and_shows_the_outcomes(atlas) -> None:
    made, watch = atlas
    assert made.tests.test.values.tolist() == [f"taylor: contribution: {task}" for task in TASKS]
    assert set(made.tests.outcome.values.tolist()) == {"no ability"}  # of a random model
    assert made["taylor"].tested_outcome.values.tolist() == [["no ability"] * 2]
    assert "tested_outcome" not in made["pattern"]
    assert made.info["tests"]["complete"]
    assert (made.folder / "figures" / "tests.png").is_file()
    page = (made.folder / "report.html").read_text()
    assert page.count('"outcome":"no ability"') == 2
    assert [len(pending) for pending in watch.pending] == [1, 1]
    assert watch.pending[-1][0].startswith("tests (about ")


def test_tests_are_not_made_again_and_what_is_drawn_stays(lm, atlas, monkeypatch) -> None:
    made, _ = atlas
    monkeypatch.setattr(map_tests, "do_test", None)
    files = [path for path in made.folder.rglob("*") if path.is_file() and path.name not in ("atlas.json", ".lock")]
    before = {path: path.stat().st_mtime_ns for path in files}
    again = ha.run(lm, made.folder, methods=["pattern", "taylor"])
    assert {path: path.stat().st_mtime_ns for path in files} == before
    assert again.info["tests"] == made.info["tests"]


def test_without_tests_there_are_none(lm, tmp_path) -> None:
    made = ha.run(lm, tmp_path, methods=["taylor"], tests=False, draw=False)
    assert made.tests is None
    assert "tests" not in made.info
    assert ha.run(lm, tmp_path, methods=["taylor"], draw=False).tests.sizes["test"] == 2  # later


def test_a_test_that_fails_is_noted_and_the_maps_stay(lm, tmp_path, monkeypatch) -> None:
    def fails(*args, **kwargs) -> None:
        raise ha.errors.CannotDo("no prompts today")

    monkeypatch.setattr(map_tests, "run_test", fails)
    made = ha.run(lm, tmp_path, methods=["taylor"])
    assert (made.info["tests"]["complete"], made.complete) == (False, ["taylor"])
    assert "no prompts today" in made.info["tests"]["why"]
    page = (tmp_path / "report.html").read_text()
    assert "no prompts today" in page
    assert 'http-equiv="refresh"' not in page


@pytest.fixture(scope="module")
def folder(lm, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny"
    lm.model.save_pretrained(path)
    lm.tokenizer.save_pretrained(path)
    return path


def test_a_method_s_own_command_tests_the_maps_of_an_atlas(folder, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = "Tests of the top heads"
    for given, is_tested in (
        ([], False),
        (["--tests"], True),
        (["--out", "a"], True),
        (["--out", "b", "--no-tests"], False),
    ):
        code, out, err = headatlas(capsys, "taylor", folder, *given)
        assert code == 0, err
        target = tmp_path / (given[1] if "--out" in given else "atlas")
        assert (target / "tests.nc").is_file() == is_tested, given
        assert (table in out) == is_tested


def test_the_command_run_prints_outcomes_and_the_plan_has_a_line_of_tests(folder, tmp_path, capsys) -> None:
    command = ("run", folder, "--out", tmp_path, "--methods", "taylor,pattern")
    code, out, err = headatlas(capsys, *command, "--plan")
    assert code == 0, err
    (line,) = (line for line in out.splitlines() if line.startswith("tests: "))
    assert line.startswith("tests: at most 2, each with 48 prompts and up to 59 draws of random heads")
    assert "tests: " not in headatlas(capsys, *command, "--plan", "--no-tests")[1]
    code, out, err = headatlas(capsys, *command)
    assert code == 0, err
    assert out.count("no ability: ") == 2
    assert "tests.nc" in out.splitlines()[-1]
    assert "tests, about" in err
