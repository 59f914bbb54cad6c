"""The tests of an atlas (`tests.nc`), and their outcomes next to the maps they are of."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from headatlas.results.store import load

TESTS = "tests"  # the name of their file


def name_of_test(method: str, measure: str, subject: str) -> str:
    """Name the test of a map."""
    return f"{method}: {measure}: {subject}"


def load_tests(folder: Path) -> xr.Dataset | None:
    """Return the tests in a folder; None where nothing was tested."""
    path = folder / f"{TESTS}.nc"
    return load(path) if path.is_file() else None


def with_outcomes(results: Mapping[str, xr.Dataset], tests: xr.Dataset | None) -> dict[str, xr.Dataset]:
    """Return results with the outcomes of their tests, as variables over `tested_measure` and the map's subject.

    tested_outcome, tested_reason, tested_effect and tested_random (log P, zero), tested_p, tested_heads (layer, head).
    """
    if tests is None:
        return dict(results)
    return {name: _with_outcomes(name, result, tests) for name, result in results.items()}


def _with_outcomes(method: str, result: xr.Dataset, tests: xr.Dataset) -> xr.Dataset:
    ours = tests.isel(test=np.flatnonzero(tests.method.values == method))
    if not ours.sizes["test"]:
        return result
    measures = list(dict.fromkeys(ours.map_measure.values.tolist()))
    over = next(str(dim) for dim in result[measures[0]].dims if dim in result.coords and _is_subject(result, dim, ours))
    index = {name: i for i, name in enumerate(result[over].values.tolist())}
    shape = (len(measures), len(index))
    texts = {name: np.full(shape, "", dtype=object) for name in ("outcome", "reason", "selective")}
    numbers = {name: np.full(shape, np.nan) for name in ("effect", "random", "p", "accuracy", "selectivity")}
    heads = np.zeros((*shape, ours.sizes["layer"], ours.sizes["head"]), bool)
    for i in range(ours.sizes["test"]):
        test = ours.isel(test=i)
        place = (measures.index(test.map_measure.item()), index[test.subject.item()])
        for name, values in texts.items():
            values[place] = str(test[name].item())
        removed = {"replacement": "zero", "measure": "log_p"}
        numbers["effect"][place] = float(test.effect.sel(removed))
        numbers["random"][place] = float(test.random_effect.sel(removed).mean())
        numbers["p"][place] = float(test.p_corrected)
        numbers["accuracy"][place] = float(test.accuracy)
        numbers["selectivity"][place] = float(test.selectivity)
        heads[place] = test.selected.values
    dims = ("tested_measure", over)
    variables: dict[str, Any] = {f"tested_{name}": (dims, values.astype(str)) for name, values in texts.items()}
    variables |= {f"tested_{name}": (dims, values) for name, values in numbers.items()}
    variables["tested_heads"] = (*dims, "layer", "head"), heads
    return result.assign(variables).assign_coords(tested_measure=measures)


def _is_subject(result: xr.Dataset, dim: Any, tests: xr.Dataset) -> bool:
    return set(tests.subject.values.tolist()) <= set(map(str, result[dim].values.tolist()))
