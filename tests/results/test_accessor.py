"""What every result can be asked as `result.heads`, and how notebooks show it."""

import subprocess
import sys

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

import headatlas as ha
from headatlas.errors import BadArgument, CannotDo
from headatlas.results.card import card
from headatlas.results.store import save
from tests.figures import synthetic
from tests.figures.made_tests import with_tests


def test_top_heads_of_a_subject_or_of_each() -> None:
    result = synthetic.probe(6, 8)
    top = result.heads.top(3, "Inference")
    best = np.sort(result.importance.sel(function="Inference").values, axis=None)[::-1]
    np.testing.assert_allclose(top["value"], best[:3])
    assert top["measure"].tolist() == ["importance"] * 3
    every = result.heads.top(2)
    assert every["subject"].tolist() == [str(f) for f in result.function.values for _ in range(2)]
    with pytest.raises(BadArgument, match="Did you mean 'Inference'"):
        result.heads.top(3, "Inferense")
    with pytest.raises(BadArgument, match="n is 0"):
        result.heads.top(0)


def test_top_heads_are_ranked_by_one_measure() -> None:
    result = synthetic.gate(6, 8)
    task = str(result.task.values[0])
    assert set(result.heads.top(3)["measure"]) == {"facilitation"}
    assert len(result.heads.top(3, task)) == 3
    harmful = result.heads.top(3, task, measure="interference")
    best = np.sort(result.interference.sel(task=task).mean("seed").values, axis=None)[::-1]
    np.testing.assert_allclose(harmful["value"], best[:3])
    assert harmful.index.tolist() == [0, 1, 2]
    with pytest.raises(BadArgument, match="measure is 'harm', expected one of facilitation, interference, irrelevance"):
        result.heads.top(3, task, measure="harm")


def test_gates_turn_the_heads_off_that_a_test_supports() -> None:
    result = with_tests({"gate": synthetic.gate(6, 8)})["gate"]
    np.testing.assert_array_equal(result.heads.gates("math"), np.where(result.tested_heads[0, 0], 0.0, 1.0))
    with pytest.raises(CannotDo, match="no test supports heads of task 'syntax', .*: not supported, p 0.4, 4 heads"):
        result.heads.gates("syntax")
    with pytest.raises(BadArgument, match="task is 'nothing', expected one of"):
        result.heads.gates("nothing")
    with pytest.raises(BadArgument, match="method 'gate' has no heads to turn off"):
        synthetic.gate(6, 8).heads.gates("math")


def test_without_a_test_gates_turn_the_selected_heads_off() -> None:
    selected = np.zeros((2, 6, 8), bool)
    selected[0, 2, 3] = True
    result = synthetic.ablate(6, 8).assign(selected=(("task", "layer", "head"), selected))
    np.testing.assert_array_equal(result.heads.gates("math"), 1.0 - selected[0])
    with pytest.raises(CannotDo, match="no test supports heads of task 'syntax', .*: not tested"):
        result.heads.gates("syntax")


def test_the_card_of_a_head() -> None:
    result = synthetic.gate(6, 8)
    assert str(result.heads.card("L1.H3")) == str(card({"gate": result}, 1, 3))  # there is NaN in it
    with pytest.raises(BadArgument, match="L6.H0 is out of range"):
        result.heads.card("L6.H0")
    with pytest.raises(BadArgument, match="write it as"):
        result.heads.card("1, 3")
    with pytest.raises(BadArgument, match="not a result"):
        result.assign_attrs(method="").heads.card("L1.H3")


def test_a_result_draws_itself() -> None:
    result = with_tests({"probe": synthetic.probe(6, 8)})["probe"]
    assert isinstance(result.heads.figure(), Figure)
    assert isinstance(result.heads.figure("tests"), Figure)
    with pytest.raises(BadArgument, match="name is 'removal', expected one of importance-probe"):
        result.heads.figure("removal")


def test_a_notebook_shows_a_table_and_a_thumbnail(tmp_path) -> None:
    for name, result in synthetic.atlas(12, 8).items():
        save(result, tmp_path / f"{name}.nc")
    page = ha.open(tmp_path)._repr_html_()
    assert "<table>" in page
    assert "data:image/png;base64," in page
    assert "MAPS" in page
    maps = ha.open(tmp_path)["maps"]
    shown = maps.heads._repr_html_()
    assert "data:image/png;base64," in shown
    assert "<table" in shown
    for part in (maps.sel(relation="relation_0"), maps.isel(layer=0), maps.isel(head=[])):
        assert "xr-wrap" in part.heads._repr_html_()  # xarray's own description
    maps[["member"]].heads._repr_html_()


def test_results_are_read_without_drawing_and_without_torch() -> None:
    heavy = "{'matplotlib', 'headatlas.figures', 'torch'} & set(sys.modules)"
    script = f"import sys, headatlas.results.atlas; sys.exit(' '.join({heavy}) or 0)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_subject_of_a_result_is_the_dimension_of_its_maps() -> None:
    atlas = synthetic.atlas(3, 4)
    subjects = {name: atlas[name].heads.subject for name in ("probe", "maps", "gate", "ablate")}
    assert subjects == {"probe": "function", "maps": "relation", "gate": "task", "ablate": "task"}
    with pytest.raises(BadArgument, match="result has no map of a measure that its method declares; its variables: x"):
        xr.Dataset({"x": ("a", [1])}).heads.subject  # noqa: B018
