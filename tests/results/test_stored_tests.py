"""Outcomes next to the maps that were tested, and only next to those."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from headatlas.results.store import save
from headatlas.results.stored_tests import TESTS, current_tests, load_tests, name_of_test, with_outcomes

EFFECT = ("test", "replacement", "measure")
MEASURES = ("facilitation", "interference", "contribution")


def map_of(key: str = "a", subjects: tuple[str, ...] = ("math", "syntax", "grammar")) -> xr.Dataset:
    score = np.random.default_rng(0).random((len(subjects), 2, 3))
    coordinates = {"task": list(subjects), "layer": range(2), "head": range(3)}
    return xr.Dataset(dict.fromkeys(MEASURES, (("task", "layer", "head"), score)), coordinates, {"key": key})


def made_tests(*labels: tuple[str, str, str]) -> xr.Dataset:
    """Tests by method, measure and subject, with numbers that differ."""
    n = len(labels)
    numbers = np.arange(n, dtype=float)
    methods, measures, subjects = (list(column) for column in zip(*labels, strict=True))
    selected = np.zeros((n, 2, 3), bool)
    selected[range(n), 0, np.arange(n) % 3] = True
    random = np.full((n, 3, 4, 3), np.nan)
    random[:, 0, :2, 0] = [[-0.1, -0.3]] * n
    return xr.Dataset(
        {
            "subject": ("test", subjects),
            "outcome": ("test", ["supported", "undecided", "no ability", "not supported"][:n]),
            "reason": ("test", [f"reason {i}" for i in range(n)]),
            "selective": ("test", ["supported", "", "", ""][:n]),
            "effect": (EFFECT, np.broadcast_to(-numbers[:, None, None], (n, 3, 3)).copy()),
            "random_effect": (("test", "replacement", "draw", "measure"), random),
            "p_corrected": ("test", numbers / 10),
            "n_heads": ("test", np.full(n, 4.0)),
            "prompts": ("test", np.full(n, 48.0)),
            "guess": ("test", np.full(n, 0.1)),
            "other_subject": (("test", "other"), [["plain text"]] * n),
            "other_effect": (("test", "other", "measure"), np.full((n, 1, 3), -0.25)),
            "curve_heads": (("test", "share"), np.full((n, 2), 4.0)),
            "curve_effect": (("test", "share", "measure"), np.full((n, 2, 3), -0.5)),
            **{name: (EFFECT, np.full((n, 3, 3), -0.5)) for name in ("beyond_random", "low", "high")},
            "accuracy": ("test", 1 - numbers / 10),
            "selectivity": ("test", numbers + 0.5),
            "selected": (("test", "layer", "head"), selected),
        },
        coords={
            "test": [name_of_test(*label) for label in labels],
            "method": ("test", methods),
            "map_measure": ("test", measures),
            "map_key": ("test", ["a"] * n),
            "replacement": ["zero", "mean", "resample"],
            "measure": ["log_p", "choice", "right"],
        },
    )


def test_outcomes_are_next_to_the_map_and_subject_that_they_are_of() -> None:
    tests = made_tests(
        ("gate", "facilitation", "syntax"), ("gate", "facilitation", "math"), ("taylor", "contribution", "math")
    )
    shown = with_outcomes({"gate": map_of(), "untested": map_of()}, tests)
    assert "tested_outcome" not in shown["untested"]
    result = shown["gate"]
    assert result.tested_measure.values.tolist() == ["facilitation"]
    assert result.tested_outcome.dims == ("tested_measure", "task")
    assert result.tested_outcome.values.tolist() == [["undecided", "supported", ""]]
    assert result.tested_reason.values.tolist() == [["reason 1", "reason 0", ""]]
    assert result.tested_selective.values.tolist() == [["", "supported", ""]]
    np.testing.assert_allclose(result.tested_effect, [[-1, 0, np.nan]])
    np.testing.assert_allclose(result.tested_random, [[-0.2, -0.2, np.nan]])
    np.testing.assert_allclose(result.tested_p, [[0.1, 0, np.nan]])
    np.testing.assert_allclose(result.tested_accuracy, [[0.9, 1, np.nan]])
    np.testing.assert_allclose(result.tested_selectivity, [[1.5, 0.5, np.nan]])
    assert result.tested_heads.sel(task="math", tested_measure="facilitation").values.tolist() == [
        [False, True, False],
        [False] * 3,
    ]
    assert not result.tested_heads.sel(task="grammar").any()
    xr.testing.assert_identical(result[list(MEASURES)], map_of())


def test_nothing_is_shown_where_nothing_was_tested() -> None:
    result = {"gate": map_of()}
    assert with_outcomes(result, None) == result
    shown = with_outcomes(result, made_tests(("taylor", "contribution", "math")))
    assert list(shown["gate"].data_vars) == list(MEASURES)


def test_two_measures_of_a_method_are_kept_apart() -> None:
    result = map_of()
    tests = made_tests(("gate", "facilitation", "math"), ("gate", "interference", "math"))
    shown = with_outcomes({"gate": result}, tests)["gate"]
    assert shown.tested_outcome.sel(task="math", tested_measure="facilitation").item() == "supported"
    assert shown.tested_outcome.sel(task="math", tested_measure="interference").item() == "undecided"


@pytest.mark.parametrize("attributes", [{"key": "b"}, {}])
def test_tests_of_a_map_that_was_made_again_are_not_shown(attributes) -> None:
    tests = made_tests(("gate", "facilitation", "math"), ("taylor", "contribution", "math"))
    shown = with_outcomes({"gate": map_of().drop_attrs().assign_attrs(attributes), "taylor": map_of()}, tests)
    assert "tested_outcome" not in shown["gate"]
    assert shown["taylor"].tested_outcome.values.tolist() == [["undecided", "", ""]]


def test_a_test_names_its_parts_whatever_the_subject_is_called(tmp_path: Path) -> None:
    name = name_of_test("gate", "facilitation", "a: b")
    assert name.split(": ", 2) == ["gate", "facilitation", "a: b"]
    result = map_of(subjects=("a: b", "c"))
    shown = with_outcomes({"gate": result}, made_tests(("gate", "facilitation", "a: b")))["gate"]
    assert shown.tested_outcome.values.tolist() == [["supported", ""]]


def test_files_give_the_tests_of_maps_that_are_there(tmp_path: Path) -> None:
    assert load_tests(tmp_path) is None
    tests = made_tests(("gate", "facilitation", "math"), ("taylor", "contribution", "math"))
    save(tests, tmp_path / f"{TESTS}.nc")
    assert load_tests(tmp_path) is None
    save(map_of(), tmp_path / "gate.nc")
    assert load_tests(tmp_path).method.values.tolist() == ["gate"]
    save(map_of("b"), tmp_path / "taylor.nc")
    assert load_tests(tmp_path).method.values.tolist() == ["gate"]
    save(map_of("a"), tmp_path / "taylor.nc")
    xr.testing.assert_identical(load_tests(tmp_path).drop_attrs(), tests.drop_attrs())


def test_current_tests_are_chosen_by_the_keys_of_the_maps() -> None:
    tests = made_tests(("gate", "facilitation", "math"), ("taylor", "contribution", "math"))
    assert current_tests(None, {}) is None
    assert current_tests(tests, {}) is None
    assert current_tests(tests, {"gate": "a", "taylor": None}).method.values.tolist() == ["gate"]
