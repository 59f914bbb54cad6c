"""The reliability of every map, as variables of its result and as text to show next to the map.

A method only makes repeats of its maps, and declares them (`Measure.repeats`).
"""

from collections.abc import Sequence

import numpy as np
import xarray as xr

from headatlas.evidence.reliability import RELIABLE, assess_repeats
from headatlas.methods import measures_of
from headatlas.methods.method import Measure

# Dimensions of repeats that stay in the file; all others, such as examples, are only needed for the reliability.
STORED_DIMS = ("seed", "refit", "repeat")
BY_SUBJECT = ("repeats", "reliability", "whole_reliability", "top_overlap")
BY_HEAD = ("se", "inclusion", "resolved")
UNKNOWN = "reliability unknown"
# Coordinate with the subject of every repeat, where repeats have no dimension of subjects.
REPEAT_OF = "repeat_of"


def with_reliability(result: xr.Dataset, measures: Sequence[Measure]) -> xr.Dataset:
    """Add the reliability of the maps of each measure, and leave out repeats that are not stored."""
    added: dict[str, xr.DataArray] = {}
    used: set[str] = set()
    for measure in measures:
        if isinstance(measure.repeats, str) or measure.repeats[0] not in result:
            continue
        variable, dim = measure.repeats
        used |= {variable} if dim not in STORED_DIMS else set()
        for name, values in _assess(result, measure, variable, dim).items():
            added[variable_name(name, measure, measures)] = values
    result = result.drop_vars(used)
    # Coordinates of repeats, such as the numbers of the examples, that no other variable has.
    unused = [n for n, c in result.coords.items() if not any({*c.dims} <= {*v.dims} for v in result.values())]
    return result.drop_vars(unused if used else ()).assign(added)


def variable_name(name: str, measure: Measure, measures: Sequence[Measure]) -> str:
    """Return the variable with the reliability (or se, …) of a measure, named after it if there are several."""
    return name if len(measures) == 1 else f"{name}_{measure.name}"


def reliability_variables(measures: Sequence[Measure]) -> set[str]:
    """Return the names of all variables with the reliability of these measures."""
    return {variable_name(name, measure, measures) for measure in measures for name in (*BY_SUBJECT, *BY_HEAD)}


def reliability_of(result: xr.Dataset, measure: Measure, measures: Sequence[Measure]) -> dict[str, float]:
    """Return the reliability of the map of each subject, NaN if unknown."""
    subjects = [str(subject) for subject in result[measure.over].values]
    name = variable_name("reliability", measure, measures)
    values = result[name].values.tolist() if name in result else [np.nan] * len(subjects)
    return dict(zip(subjects, values, strict=True))


def reliability_notes(result: xr.Dataset, name: str) -> dict[str, str]:
    """Return the note of each subject's map of one measure; {} if no method declares it."""
    measures = measures_of(str(result.attrs.get("method", "")))
    by_subject = [reliability_of(result, m, measures) for m in measures if m.name == name and m.name in result]
    return {subject: reliability_note(value) for subject, value in by_subject[0].items()} if by_subject else {}


def reliability_note(reliability: float) -> str:
    """Return what to show next to a map: nothing if it is reliable."""
    return "" if reliability >= RELIABLE else f"reliability {reliability_in_words(reliability)}"


def reliability_in_words(reliability: float) -> str:
    """Write a reliability: '0.91', '0.62, below 0.8' or 'unknown'."""
    if np.isnan(reliability):
        return UNKNOWN.removeprefix("reliability ")
    return f"{reliability:.2f}" + f", below {RELIABLE}" * (reliability < RELIABLE)


def _assess(result: xr.Dataset, measure: Measure, variable: str, dim: str) -> dict[str, xr.DataArray]:
    """Assess the repeats of the map of each subject; a head without a score in the map is missing."""
    dims = (measure.over, "layer", "head")
    score, repeats = result[measure.name], result[variable]
    has_score = score.notnull().any([d for d in score.dims if d not in dims]).transpose(*dims)
    repeats = repeats.mean([d for d in repeats.dims if d not in (*dims, dim)])
    assessed = []
    for i, subject in enumerate(result[measure.over].values):
        if measure.over in repeats.dims:
            of_subject = repeats.isel({measure.over: i})
        else:
            of_subject = repeats.isel({dim: np.flatnonzero(repeats.coords[REPEAT_OF].values == subject)})
        values = of_subject.transpose(dim, "layer", "head").values
        assessed.append(assess_repeats(np.where(has_score.values[i], values, np.nan)))
    coords = {d: result[d] for d in dims if d in result.coords}
    by_subject = {
        name: xr.DataArray(
            [getattr(a, name) for a in assessed], {d: c for d, c in coords.items() if d == dims[0]}, dims[:1]
        )
        for name in BY_SUBJECT
    }
    by_head = {name: xr.DataArray(np.stack([getattr(a, name) for a in assessed]), coords, dims) for name in BY_HEAD}
    for variable_by_subject in by_subject.values():
        variable_by_subject.attrs["over"] = dim
    return by_subject | by_head
