"""The reliability of every map, as variables of its result and as text to show next to the map.

A method only makes repeats of its maps, and declares them (`Measure.repeats`).
"""

from collections.abc import Sequence

import numpy as np
import xarray as xr

from headatlas.evidence.reliability import RELIABLE, assess_repeats
from headatlas.methods.method import Measure

# Dimensions of repeats that stay in the file; all others, such as examples, are only needed for the reliability.
STORED_DIMS = ("seed", "refit", "repeat")
BY_SUBJECT = ("repeats", "reliability", "whole_reliability", "top_overlap")
BY_HEAD = ("se", "inclusion", "resolved")
UNKNOWN = "reliability unknown"


def with_reliability(result: xr.Dataset, measures: Sequence[Measure]) -> xr.Dataset:
    """Add the reliability of the maps of each measure, and leave out repeats that are not stored."""
    added: dict[str, xr.DataArray] = {}
    used: set[str] = set()
    for measure in measures:
        if isinstance(measure.repeats, str) or measure.repeats[0] not in result:
            continue
        variable, dim = measure.repeats
        used |= {variable} if dim not in STORED_DIMS else set()
        for name, values in _assess(result[variable], measure.over, dim).items():
            added[variable_name(name, measure, measures)] = values
    result = result.drop_vars(used)
    # A coordinate of repeats that no other variable has: the numbers of the examples.
    unused = [dim for dim in result.coords if dim in result.dims and not any(dim in v.dims for v in result.values())]
    return result.drop_vars(unused if used else ()).assign(added)


def variable_name(name: str, measure: Measure, measures: Sequence[Measure]) -> str:
    """Return the variable with the reliability (or se, …) of a measure, named after it if there are several."""
    return name if len(measures) == 1 else f"{name}_{measure.name}"


def reliability_of(result: xr.Dataset, measure: Measure, measures: Sequence[Measure]) -> dict[str, float]:
    """Return the reliability of the map of each subject, NaN if unknown."""
    subjects = [str(subject) for subject in result[measure.over].values]
    name = variable_name("reliability", measure, measures)
    values = result[name].values.tolist() if name in result else [np.nan] * len(subjects)
    return dict(zip(subjects, values, strict=True))


def reliability_note(reliability: float) -> str:
    """Return what to show next to a map: nothing if it is reliable."""
    if np.isnan(reliability):
        return UNKNOWN
    return "" if reliability >= RELIABLE else f"reliability {reliability:.2f}, below {RELIABLE}"


def _assess(repeats: xr.DataArray, over: str, dim: str) -> dict[str, xr.DataArray]:
    """Assess the repeats of the map of each subject."""
    dims = (over, dim, "layer", "head")
    values = repeats.mean([d for d in repeats.dims if d not in dims]).transpose(*dims)
    assessed = [assess_repeats(of_subject) for of_subject in values.values]
    coords = {d: values[d] for d in (over, "layer", "head") if d in values.coords}
    by_subject = {
        name: xr.DataArray([getattr(a, name) for a in assessed], {over: values[over]}, (over,), attrs={"over": dim})
        for name in BY_SUBJECT
    }
    by_head = {
        name: xr.DataArray(np.stack([getattr(a, name) for a in assessed]), coords, (over, "layer", "head"))
        for name in BY_HEAD
    }
    return by_subject | by_head
