"""What a method's command prints, from its measures, its dimensions and the names of tests."""

import numpy as np
import xarray as xr

from headatlas.results.method_tables import list_rows, method_tables
from tests.figures.made_tests import with_tests

HEADS = {"layer": [0, 1], "head": [0, 1]}


def scores(*maps: list[list[float]]) -> tuple[tuple[str, ...], np.ndarray]:
    return ("task", "layer", "head"), np.array(maps)


def gate_result(**variables) -> xr.Dataset:
    """A result of `gate` of two tasks, with these variables."""
    return xr.Dataset(
        {"facilitation": scores([[0.1, 0.9], [0.5, 0.0]], [[0.0, 0.0], [0.0, 0.25]])} | variables,
        coords=HEADS | {"task": ["math", "syntax"]},
        attrs={"method": "gate"},
    )


def test_a_table_per_dimension_with_long_names() -> None:
    baseline = ("task", [-1.2345, np.nan], {"long_name": "log P"})
    tables = method_tables(gate_result(baseline=baseline, note=("task", ["a", "b" * 100]), shots=3))
    assert tables["Causal head gating"] == [{"": "shots", "value": 3}]
    first, second = tables["Causal head gating: each task"]
    assert first == {"task": "math", "log P": -1.23, "note": "a"}
    assert second["log P"] == "-"
    assert second["note"].endswith(" …")
    assert len(second["note"]) == 60


def test_top_heads_of_every_subject_best_first() -> None:
    rows = method_tables(gate_result(), top=2)["Causal head gating: top heads"]
    assert [row["top heads"] for row in rows] == ["L0.H1 0.9, L1.H0 0.5", "L1.H1 0.25"]


def test_a_map_without_a_head_above_chance_shows_its_best_one() -> None:
    result = xr.Dataset(
        {
            "importance": (("function", "layer", "head"), np.array([[[0.3, 0.1], [0.2, 0.0]]] * 2)),
            "clears_control": (("function", "layer", "head"), np.array([[[0, 0], [1, 0]], [[0, 0], [0, 0]]], bool)),
        },
        coords=HEADS | {"function": ["Math", "Syntax"]},
        attrs={"method": "probe"},
    )
    math, syntax = method_tables(result)["Probe: top heads"]
    assert (math["above chance"], math["top heads"]) == ("1 of 4", "L1.H0 0.2")
    assert (syntax["above chance"], syntax["top heads"]) == ("0 of 4", "no head above chance (best L0.H0 0.3)")


def test_a_row_per_test_with_the_mean_size_of_the_others() -> None:
    result = gate_result(
        effect=("task", [-0.5, np.nan]),
        random_effect=(("task", "draw"), [[-0.1, -0.3], [np.nan, np.nan]]),
        other_effect=(("task", "other"), [[0.4, -0.2], [np.nan, np.nan]]),
        p=("task", [0.01, np.nan]),
        n_removed=("task", [4, 0]),
    )
    (rows,) = (rows for title, rows in method_tables(result).items() if title.startswith("Tests"))
    assert rows == [
        {"task": "math", "heads": 4, "change": -0.5, "others, mean size": 0.3, "random heads": -0.2, "p": 0.01}
    ]


def test_a_row_per_tested_map_and_none_of_its_variables_elsewhere() -> None:
    maps = xr.Dataset({"facilitation": scores([[0.1, 0.9], [0.5, 0.0]], [[0.0, 0.0], [0.0, 0.25]])}, HEADS)
    maps = maps.assign_coords(task=["math", "syntax"]).assign_attrs(method="gate")
    tables = method_tables(with_tests({"gate": maps})["gate"])
    first, second = tables.pop("Tests of the top heads (docs/concepts/evidence.md)")
    assert {name: first[name] for name in ("subject", "measure", "heads", "right", "without")} == {
        "subject": "math",
        "measure": "facilitation",
        "heads": 4,
        "right": "60 %",
        "without": "36 %",
    }
    assert (first["change of log P"], first["outcome"], first["reason"][:11]) == (-1.2, "supported", "significant")
    assert (second["change of log P"], second["outcome"]) == (-0.1, "not supported")
    assert tables == method_tables(maps)


def test_of_several_measures_of_a_test_the_first_is_printed() -> None:
    result = gate_result(
        effect=(("task", "measure"), [[-0.5, 1.0], [-0.25, 1.0]]),
        random_effect=(("task", "measure", "draw"), np.zeros((2, 2, 3))),
        p=("task", [0.01, 0.5]),
    ).assign_coords(measure=["log_p", "rank"])
    rows = method_tables(result)["Tests: change of log_p, compared with random heads"]
    assert [row["change"] for row in rows] == [-0.5, -0.25]


def test_small_arrays_have_their_labels_and_large_ones_are_left_out() -> None:
    result = gate_result(
        nll=(("fit", "task", "seed"), np.arange(8.0).reshape(2, 2, 2)), large=(("fit", "x"), np.zeros((2, 500)))
    ).assign_coords(fit=["free", "retain"])
    tables = method_tables(result)
    assert tables["nll"] == [
        {"task": "math", "free": 0.5, "retain": 4.5},
        {"task": "syntax", "free": 2.5, "retain": 6.5},
    ]
    assert "large" not in tables


def test_lists_that_heads_have() -> None:
    tokens = np.array([[["a", "b"], ["c", "d"]], [["e", "f"], ["g", "h"]]], object)
    result = xr.Dataset(
        {
            "amplification": (("layer", "head", "rank"), [[[1.0, 0.5], [3.0, 2.0]], [[0.1, 0.0], [2.0, 1.0]]]),
            "token": (("layer", "head", "rank"), tokens),
            "strongest": (("layer", "head", "rank", "output"), np.full((2, 2, 2, 1), "x", object)),
            "suppressed": (("layer", "head", "rank", "output"), np.full((2, 2, 2, 1), "y", object)),
        },
        coords=HEADS,
        attrs={"method": "salient"},
    )
    rows = method_tables(result, top=1)["Heads with the highest amplification"]
    assert rows == [
        {"head": "L0.H1", "amplification": 3, "token": "c", "strongest": "'x'", "suppressed": "'y'"},
        {"head": "L0.H1", "amplification": 2, "token": "d", "strongest": "'x'", "suppressed": "'y'"},
    ]
    assert list_rows(result[["amplification", "token"]].sel(layer=1, head=0), 1) == [
        {"amplification": 0.1, "token": "e"}
    ]
    assert not method_tables(result.assign_attrs(method="mine"))  # no method declares these lists
