"""The tests of an atlas (`tests.nc`), and their outcomes next to the maps they are of."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from headatlas.methods import measures_of
from headatlas.results.store import load, load_attributes

TESTS = "tests"  # the name of their file
LABELS = ("method", "map_measure", "test_key", "map_key")
"""Coordinates of tests: which map is tested, what the test depends on, and the key of the map's file."""
# The middle 90 % of the random draws.
RANDOM_LOW, RANDOM_HIGH = 0.05, 0.95


def name_of_test(method: str, measure: str, subject: str) -> str:
    """Name the test of a map."""
    return f"{method}: {measure}: {subject}"


def load_tests(folder: Path) -> xr.Dataset | None:
    """Return the tests in a folder, of maps that are still the same; None where nothing was tested."""
    path = folder / f"{TESTS}.nc"
    if not path.is_file():
        return None
    tests = load(path)
    methods = set(tests.method.values.tolist())
    return current_tests(tests, {name: load_attributes(folder / f"{name}.nc").get("key", "") for name in methods})


def current_tests(tests: xr.Dataset | None, keys: Mapping[str, str]) -> xr.Dataset | None:
    """Return the tests of maps whose files still have the same keys; None if there are none. keys: by method."""
    if tests is None:
        return None
    pairs = zip(tests.method.values.tolist(), tests.map_key.values.tolist(), strict=True)
    current = [i for i, (method, key) in enumerate(pairs) if keys.get(method) == key]
    return tests.isel(test=current) if current else None


def with_outcomes(results: Mapping[str, xr.Dataset], tests: xr.Dataset | None) -> dict[str, xr.Dataset]:
    """Return results with the outcomes of their tests, in variables whose names begin with `tested_`.

    They are over `tested_measure` and the map's subject, and have what `results.outcomes` reads. A test of an earlier
    map of the same method is left out.
    """
    if tests is None:
        return dict(results)
    return {name: _with_outcomes(name, result, tests) for name, result in results.items()}


def tests_of(method: str, result: xr.Dataset, tests: xr.Dataset) -> np.ndarray:
    """Return which tests are of this result: bool [test]."""
    of_method = (tests.method.values == method) & (tests.map_key.values == str(result.attrs.get("key", "")))
    return np.asarray(of_method & np.isin(tests.map_measure.values, [m.name for m in measures_of(method)]))


def _with_outcomes(method: str, result: xr.Dataset, tests: xr.Dataset) -> xr.Dataset:
    ours = tests.isel(test=np.flatnonzero(tests_of(method, result, tests)))
    measures = list(dict.fromkeys(ours.map_measure.values.tolist()))
    if not measures:
        return result
    over = next(m.over for m in measures_of(method) if m.name == measures[0])
    subjects = [str(name) for name in result[over].values]
    others = list(dict.fromkeys(name for name in ours.other_subject.values.ravel().tolist() if name))
    variables: dict[str, Any] = {}
    for i in range(ours.sizes["test"]):
        test = ours.isel(test=i)
        place = (measures.index(test.map_measure.item()), subjects.index(test.subject.item()))
        for name, (dims, value) in _summary(test, others).items():
            if name not in variables:
                shape = (len(measures), len(subjects), *value.shape)
                empty: Any = "" if value.dtype == object else False if value.dtype == bool else np.nan
                variables[name] = ("tested_measure", over, *dims), np.full(shape, empty, dtype=value.dtype)
            variables[name][1][place] = value
    texts = {name: (dims, values.astype(str)) for name, (dims, values) in variables.items() if values.dtype == object}
    coords = {"tested_measure": measures, "tested_other": others, "tested_replacement": tests.replacement.values}
    return result.assign(variables | texts).assign_coords(coords)


def _summary(test: xr.Dataset, others: list[str]) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """Return what is shown of one test: dimensions and values by name."""
    zero = test.sel(replacement="zero")
    effect = float(zero.effect.sel(measure="log_p"))
    draws = zero.random_effect.sel(measure="log_p").values
    draws = draws[np.isfinite(draws)]
    random = (draws.mean(), *np.quantile(draws, [RANDOM_LOW, RANDOM_HIGH])) if len(draws) else (np.nan,) * 3
    numbers = {
        "n_heads": test.n_heads,
        "prompts": test.prompts,
        "accuracy": test.accuracy,
        "accuracy_after": test.accuracy + zero.effect.sel(measure="right"),
        "guess": test.guess,
        "effect": effect,
        "random": random[0],
        "random_low": random[1],
        "random_high": random[2],
        "p": test.p_corrected,
        "selectivity": test.selectivity,
    }
    texts = {name: str(test[name].item()) for name in ("outcome", "reason", "selective")}
    by_replacement = {name: test[name].sel(measure="log_p") for name in ("beyond_random", "low", "high")}
    by_share = {"curve_heads": test.curve_heads, "curve": test.curve_effect.sel(measure="log_p")}
    other_effect = test.other_effect.sel(measure="log_p").values
    change_by_subject = dict(zip(test.other_subject.values.tolist(), other_effect.tolist(), strict=True))
    changes = np.array([change_by_subject.get(name, np.nan) for name in others], float)
    summary: dict[str, tuple[tuple[str, ...], np.ndarray]] = {}
    summary |= {name: ((), np.array(value, dtype=object)) for name, value in texts.items()}
    summary |= {name: ((), np.array(float(value))) for name, value in numbers.items()}
    summary |= {name: (("tested_replacement",), v.values.astype(float)) for name, v in by_replacement.items()}
    summary |= {name: (("tested_share",), values.values.astype(float)) for name, values in by_share.items()}
    summary["others"] = ("tested_other",), changes
    summary["heads"] = ("layer", "head"), test.selected.values.astype(bool)
    return {f"tested_{name}": value for name, value in summary.items()}
