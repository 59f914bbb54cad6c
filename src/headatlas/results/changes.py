"""The changes of every subject when the heads of each subject are removed: figures and the page show the matrix."""

from dataclasses import dataclass

import numpy as np
import xarray as xr

from headatlas.methods import variables_shown_as
from headatlas.results.outcomes import outcomes


@dataclass(frozen=True)
class ChangeMatrix:
    """Changes of subjects (columns) when the heads of a subject (row) are removed.

    values: [row, column]; NaN: not measured. measure: what changes. n_heads: removed for every row; 0 if unknown.
    """

    rows: list[str]
    columns: list[str]
    values: np.ndarray
    measure: str
    n_heads: int


def change_matrix(result: xr.Dataset) -> ChangeMatrix | None:
    """Return the changes that the method itself measured, else those of the tests of its maps; None without either."""
    return _declared_changes(result) or _tested_changes(result)


def _declared_changes(result: xr.Dataset) -> ChangeMatrix | None:
    """Read the changes that the method declares, such as a probe's published specialisation."""
    name, *numbers = variables_shown_as("changes", str(result.attrs.get("method"))) or ("",)
    if name not in result or "measure" not in result[name].dims:
        return None
    measure = "log_p" if "log_p" in result.measure.values else str(result.measure.values[0])
    change = result[name].sel(measure=measure)
    subject, removed = change.dims
    change = change.transpose(removed, subject)
    rows, columns = ([str(v) for v in change[d].values] for d in change.dims)
    n_heads = next((int(result[n]) for n in numbers if n in result), 0)
    measured = "log P" if measure == "log_p" else measure
    return ChangeMatrix(rows, columns, change.values.astype(np.float64), measured, n_heads)


def _tested_changes(result: xr.Dataset) -> ChangeMatrix | None:
    """Return how removing each subject's heads changes it and the others, as tests of one measure found."""
    tested = outcomes(result)
    first = next(iter(tested), ("", ""))[0]
    removed = {subject: o for (measure, subject), o in tested.items() if measure == first and o.others}
    if not removed:
        return None
    others = dict.fromkeys(name for outcome in removed.values() for name in outcome.others)
    columns = list(dict.fromkeys([*removed, *others]))
    values = [
        [o.effect if name == subject else o.others.get(name, np.nan) for name in columns]
        for subject, o in removed.items()
    ]
    numbers = {o.n_heads for o in removed.values()}
    n_heads = numbers.pop() if len(numbers) == 1 else 0
    return ChangeMatrix(list(removed), columns, np.array(values), "log P per token", n_heads)
