"""A method that fails in any way is noted, and the others are done; what a method's own command leaves behind."""

import inspect
import json
import re
from dataclasses import fields
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
import xarray as xr

import headatlas as ha
from headatlas import methods
from headatlas.errors import BadArgument, CannotDo
from headatlas.figures import all as figures
from headatlas.methods.method import Measure, method
from headatlas.progress import Watch
from headatlas.runs.where import Where, WhereOptions
from headatlas.testing import tiny_lm, tiny_tokenizer
from tests.registry import find_methods_again
from tests.test_cli import headatlas

MEASURES = [Measure("score", over="thing", meaning="A number.")]


def scores(lm: ha.LM) -> xr.Dataset:
    coords = {"thing": ["one"], "layer": range(lm.n_layers), "head": range(lm.n_heads)}
    values = np.arange(lm.n_layers * lm.n_heads, dtype=np.float32).reshape(1, lm.n_layers, lm.n_heads)
    return xr.Dataset({"score": (("thing", "layer", "head"), values)}, coords)


@method(title="Divides by zero", measures=MEASURES, seconds=1)
def divides(lm: ha.LM) -> xr.Dataset:
    """Divide by zero."""
    return scores(lm) / (1 // 0)


@method(title="Plans by zero", measures=MEASURES, seconds=2, in_parts=True)
def plans(lm: ha.LM) -> ha.Work:
    """Divide by zero while it is planned."""
    raise ZeroDivisionError(f"of {lm.name}")


@method(title="Cannot be written", measures=MEASURES, seconds=3)
def unwritable(lm: ha.LM) -> xr.Dataset:
    """Return what no file can hold."""
    return scores(lm).assign_attrs(unknown=object())


@method(title="Cannot be drawn", measures=MEASURES, seconds=4)
def undrawable(lm: ha.LM, *, factor: Annotated[float, "of the scores"] = 1.0) -> xr.Dataset:
    """Return what the test makes impossible to draw."""
    return scores(lm) * factor


NAMES = ("divides", "plans", "unwritable", "undrawable")


@pytest.fixture(autouse=True)
def plug_ins(monkeypatch):
    entries = [EntryPoint(name, f"{__name__}:{name}", methods.GROUP) for name in NAMES]
    monkeypatch.setattr(methods, "entry_points", lambda group: entries if group == methods.GROUP else [])
    find_methods_again()
    yield
    find_methods_again()


@pytest.fixture
def no_drawing(monkeypatch) -> None:
    """Figures of `undrawable` fail."""
    draw = figures.pictures

    def pictures(maps, *a, **k):
        if "undrawable" in maps:
            raise ZeroDivisionError("no ink")
        return draw(maps, *a, **k)

    monkeypatch.setattr(figures, "pictures", pictures)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny_lm().model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def noted(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "atlas.json").read_text())


def on_the_page(folder: Path) -> list[dict[str, str]]:
    data = (folder / "report.html").read_text().partition('<script id="data" type="application/json">')[2]
    return json.loads(data.partition("</script>")[0])["failed"]


def test_one_failure_of_any_kind_is_noted_and_the_others_are_done(capsys, model, tmp_path, no_drawing) -> None:
    names = ",".join([*NAMES, "pattern"])
    code, out, err = headatlas(capsys, "run", model, "--out", tmp_path / "a", "--methods", names)
    assert code == 1
    info = noted(tmp_path / "a")["methods"]
    why = {name: about.get("why", about.get("not_drawn")) for name, about in info.items()}
    assert why["divides"].startswith("unexpected ZeroDivisionError: integer division")
    assert why["plans"] == "unexpected ZeroDivisionError: of tiny"
    assert why["unwritable"].startswith("unexpected ")
    assert why["undrawable"] == "unexpected ZeroDivisionError: no ink"
    assert why["pattern"] is None
    assert {name for name, about in info.items() if about["complete"]} == {"pattern", "undrawable"}
    for name in ("divides", "plans", "unwritable"):
        assert f"{name} failed: {why[name]}" in out
    assert f"undrawable could not be drawn: {why['undrawable']}" in out
    assert "divides failed: unexpected ZeroDivisionError" in err  # as soon as it is known
    assert {row["why"] for row in on_the_page(tmp_path / "a")} == {why[name] for name in NAMES}
    assert (tmp_path / "a" / "figures" / "importance-pattern.png").is_file()
    assert "induction" in (tmp_path / "a" / "report.html").read_text()
    assert set(ha.open(tmp_path / "a")) == {"pattern", "undrawable"}


def test_what_could_not_be_drawn_is_drawn_by_the_next_run_that_can(tmp_path, monkeypatch) -> None:
    lm = tiny_lm()
    with monkeypatch.context() as patch:
        patch.setattr(figures, "pictures", lambda *a, **k: 1 / 0)
        ha.run(lm, tmp_path, methods=["undrawable"])
    assert noted(tmp_path)["methods"]["undrawable"]["not_drawn"].startswith("unexpected ZeroDivisionError")
    ha.run(lm, tmp_path, methods=["undrawable"])
    assert "not_drawn" not in noted(tmp_path)["methods"]["undrawable"]
    assert (tmp_path / "figures" / "importance-undrawable.png").is_file()


def test_workers_too_note_it(model, tmp_path) -> None:
    made = ha.run(model, tmp_path, methods=["divides", "pattern"], workers=1, draw=False)
    assert list(made) == ["pattern"]
    where = "divides: result, on this machine: unexpected ZeroDivisionError: integer division"
    assert made.info["methods"]["divides"]["why"].startswith(where)


def test_a_method_s_own_call_raises_its_error_and_notes_it(tmp_path) -> None:
    with pytest.raises(CannotDo, match="unexpected ZeroDivisionError") as raised:
        ha.divides(tiny_lm(), out=tmp_path)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert noted(tmp_path)["methods"]["divides"] == {"complete": False, "why": str(raised.value)}


def test_a_method_s_own_command_is_a_run_of_that_method(capsys, model, tmp_path) -> None:
    assert headatlas(capsys, "run", model, "--out", tmp_path / "run", "--methods", "pattern")[0] == 0
    code, out, err = headatlas(capsys, "pattern", model, "--out", tmp_path / "own")
    assert code == 0
    assert f"Plan for {tmp_path}" in out or "Plan for LM(" in out
    assert re.search(r"^pattern took \d+ s", err, flags=re.MULTILINE)
    run, separate = noted(tmp_path / "run"), noted(tmp_path / "own")
    assert run.pop("shown")
    for info in (run, separate):
        assert info["run"].pop("command").startswith("headatlas")  # with what pytest was called with
        del info["run"]["time"], info["methods"]["pattern"]["time"], info["methods"]["pattern"]["seconds"]
    assert separate == run
    assert (tmp_path / "own" / "pattern.nc").read_bytes() == (tmp_path / "run" / "pattern.nc").read_bytes()
    code, out, _ = headatlas(capsys, "pattern", model, "--out", tmp_path / "own", "--json")
    assert code == 0
    assert json.loads(out)


def test_a_method_s_own_command_takes_gpus_per_job(capsys, model, tmp_path) -> None:
    code, _, err = headatlas(capsys, "pattern", model, "--out", tmp_path / "own", "--gpus-per-job", 99)
    assert (code, err.splitlines()[-1].partition(", but")[0]) == (2, "error: gpus-per-job is 99")
    assert not (tmp_path / "own").exists()
    with pytest.raises(BadArgument, match="gpus-per-job is 99, but this machine has"):
        ha.pattern(model, gpus_per_job=99)


def test_a_refused_command_leaves_no_folder(capsys, model, tmp_path) -> None:
    for command in (
        ("run", tmp_path / "nowhere"),
        ("pattern", tmp_path / "nowhere"),
        ("gate", model, "--seeds", 2, "--updates", 0),
    ):
        code, _, _ = headatlas(capsys, *command, "--out", tmp_path / "a" / "b")
        assert code == 2, command
        assert not (tmp_path / "a").exists(), command
    (tmp_path / "scores.csv").write_text("")
    code, _, _ = headatlas(capsys, "import", tmp_path / "scores.csv", "--as", "importance", "--out", tmp_path / "a")
    assert code == 1
    assert not (tmp_path / "a").exists()


def test_an_interrupted_command_says_how_to_resume_and_leaves_no_lock(capsys, model, tmp_path, monkeypatch) -> None:
    def interrupt(*a: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Watch, "on_job_end", interrupt)
    monkeypatch.setattr("headatlas.terminal.RunDisplay.on_job_end", interrupt)
    for name, command in (("run", ("run", model, "--methods", "pattern,taylor")), ("own", ("pattern", model))):
        out = tmp_path / name
        code, _, err = headatlas(capsys, *command, "--out", out)
        assert code == 1
        assert err.splitlines()[-1] == f"error: interrupted: the same command with --out {out} resumes"
        assert not (out / ".lock").exists()
        assert (out / "pattern.nc").is_file()


def test_an_unknown_argument_of_run_is_named(tmp_path) -> None:
    with pytest.raises(TypeError, match=r"run\(\) has no argument 'device_'. Did you mean 'device'"):
        ha.run(tiny_lm(), tmp_path, device_="cpu")


def test_the_options_of_where_are_those_that_calls_take() -> None:
    assert WhereOptions.__annotations__ == {field.name: field.type for field in fields(Where)}
    common = inspect.signature(ha.pattern).parameters
    assert {field.name: field.default for field in fields(Where)}.items() <= {
        name: p.default for name, p in common.items()
    }.items()
