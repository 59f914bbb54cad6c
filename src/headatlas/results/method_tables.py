"""Tables of one result for the terminal, for any method: from its measures, dimensions and test variables.

1. Numbers and texts about the whole result, then about each subject, seed, question, …: one table per dimension.
   Flags of heads are counted.
2. For every measure and subject: the number of heads above chance, and the top heads.
3. A row per tested map, with its outcome. If the method itself tests something, such as a vector: a row per test, with
   the change, the change with random heads, and p. If such a test has several measures, the first is shown.
4. Small arrays over two or three other dimensions: one table each.

Columns are named by the `long_name` of a variable, or by the variable.
"""

from collections.abc import Hashable, Iterator
from itertools import product
from typing import Any

import numpy as np
import xarray as xr

from headatlas.methods import lists_of, measures_of, title_of
from headatlas.methods._chance import NO_HEAD_ABOVE, at_chance
from headatlas.methods._tables import best, head_name
from headatlas.methods.method import Measure, Tables
from headatlas.results.about import unit_of
from headatlas.results.outcomes import Outcome, interval_in_words, outcomes, percent
from headatlas.results.stored_reliability import (
    reliability_in_words,
    reliability_of,
    reliability_variables,
    variable_name,
)

HEADS = ("layer", "head")
# Dimensions whose mean is shown.
AVERAGED_DIMS = ("seed", "draw")
P_VALUES = ("p", "p_corrected")
MAX_ROWS = 60
MAX_COLUMNS = 12
MAX_LIST_ROWS = 3
MAX_CELL_CHARACTERS = 60


def method_tables(result: xr.Dataset, top: int = 5) -> Tables:
    """Return the tables of one result by title. top: number of heads to list per map."""
    tests_of_maps = [_outcome_row(*key, outcome) for key, outcome in outcomes(result).items()]
    result = result.drop_vars([n for n in result.variables if str(n).startswith("tested_")])
    if "measure" in result.dims:
        result = result.isel(measure=0)
    method = str(result.attrs.get("method", ""))
    measures = [m for m in measures_of(method) if m.name in result]
    tested = _test_variables(result)
    # Columns of the top heads have these.
    shown_below = {m.chance for m in measures} | reliability_variables(measures)
    plain = {
        name: values.mean([d for d in AVERAGED_DIMS if d in values.dims], keep_attrs=True)
        for name, values in _without_heads(result).items()
        if name not in tested and name not in shown_below and _is_printable(values)
    }
    tables: Tables = {}
    for dim in dict.fromkeys(values.dims for values in plain.values() if values.ndim < 2):
        title = title_of(method) + "".join(f": each {d}" for d in dim)
        tables[title] = _rows_of({n: v for n, v in plain.items() if v.dims == dim}, dim)
    tables |= {f"{title_of(method)}: top heads": [row for m in measures for row in _top_heads(result, m, top)]}
    tables |= _lists_of_heads(result, top)
    tables["Tests of the top heads (docs/concepts/evidence.md)"] = tests_of_maps
    if tested:
        of_measure = f" of {result['measure'].item()}" if "measure" in result.coords else ""
        tables[f"Tests: change{of_measure}, compared with random heads"] = _tests(result, tested)
    tables |= {_title(values): list(_matrix(values)) for values in plain.values() if values.ndim > 1}
    return {title: rows for title, rows in tables.items() if rows}


def _without_heads(result: xr.Dataset) -> dict[str, xr.DataArray]:
    """Return variables and coordinates by name, with flags of heads replaced by their number."""
    coordinates = {n: c for n, c in result.coords.items() if n not in result.dims}
    variables = {str(n): v for n, v in (coordinates | dict(result.data_vars)).items()}
    flags = {n: v for n, v in variables.items() if v.dtype == bool and set(HEADS) < set(v.dims)}
    counts = {n: v.sum(HEADS, keep_attrs=False).rename(f"{_label(v)}: heads") for n, v in flags.items()}
    return variables | counts


def _is_printable(values: xr.DataArray) -> bool:
    """Return whether an array is small, has no dimension of heads, and is not empty."""
    dims = [d for d in values.dims if d not in AVERAGED_DIMS]
    if set(HEADS) & set(dims) or len(dims) > 3 or (values.dtype == bool and dims == []):
        return False
    if values.dtype.kind in "OU" and len(dims) != len(values.dims):
        return False
    n_values = np.prod([values.sizes[d] for d in dims])
    is_small = n_values <= (MAX_ROWS if len(dims) < 2 else MAX_ROWS * 2)
    return bool(is_small) and _has_content(values)


def _has_content(values: xr.DataArray) -> bool:
    """Return whether an array has a text that is not empty, or a number that is not NaN."""
    if values.dtype.kind in "OU":
        return any(map(str, values.values.ravel()))
    return bool(values.notnull().any())


def _rows_of(columns: dict[str, xr.DataArray], dims: tuple[Hashable, ...]) -> list[dict[str, Any]]:
    """Make a row per label of one dimension; without a dimension, a row per variable."""
    if not dims:
        return [{"": _label(values), "value": _cell(values.item())} for values in columns.values()]
    (dim,) = dims
    return [
        {str(dim): label} | {_label(values): _cell(values.values[i]) for values in columns.values()}
        for i, label in enumerate(_labels(next(iter(columns.values())), dim))
    ]


def _top_heads(result: xr.Dataset, measure: Measure, top: int) -> Iterator[dict[str, Any]]:
    """Yield a row per subject of a measure."""
    scores = result[measure.name]
    flags = at_chance(result, measure.name)
    measures = measures_of(str(result.attrs.get("method", "")))
    reliability = reliability_of(result, measure, measures)
    resolved = result.get(variable_name("resolved", measure, measures))
    chance_level = result.get(measure.chance)
    unit_name = unit_of(result) if result.attrs.get("per") is None else str(result.attrs["per"])
    for subject in scores[measure.over].values.tolist():
        score = _head_map(scores.sel({measure.over: subject}))
        row = {measure.over: subject, "measure": measure.name}
        above_chance = score
        if flags is not None:
            above_chance = score.where(~_head_map(flags.sel({measure.over: subject})).astype(bool))
            row["above chance"] = f"{int(above_chance.notnull().sum())} of {int(score.notnull().sum())}"
        if chance_level is not None and chance_level.dims == (measure.over,) and _has_content(chance_level):
            row["chance"] = _cell(chance_level.sel({measure.over: subject}).item())
        top_heads = _heads_in_words(above_chance, top, unit_name)
        if not top_heads:
            top_heads = NO_HEAD_ABOVE if flags is not None else "none"
            highest = _heads_in_words(score, 1, unit_name)
            top_heads += f" (best {highest})" if highest else ""
        row["top heads"] = top_heads
        row["reliability"] = reliability_in_words(reliability[str(subject)])
        if resolved is not None:
            row["resolved heads"] = int(resolved.sel({measure.over: subject}).sum())
        yield row


def _head_map(values: xr.DataArray) -> xr.DataArray:
    """Average a map over all other dimensions [layer, head]; a flag stays set if it is set everywhere."""
    others = [d for d in values.dims if d not in HEADS]
    reduced = values.all(others) if values.dtype == bool else values.mean(others)
    return reduced.transpose(*HEADS)


def _heads_in_words(score: xr.DataArray, top: int, unit_name: str) -> str:
    return ", ".join(f"{head_name(layer, head, unit_name)} {value:.3g}" for layer, head, value in best(score, top))


def _lists_of_heads(result: xr.Dataset, top: int) -> Tables:
    """Show the token lists of the heads with the highest value in any list."""
    lists = lists_of(result)
    if lists is None:
        return {}
    columns = result[[lists.value, lists.tokens, lists.written, lists.demoted]]
    value = result[lists.value]
    rows = [
        {"head": head_name(layer, head)} | row
        for layer, head, _ in best(value.max("rank"), top)
        for row in list_rows(columns.sel(layer=layer, head=head), MAX_LIST_ROWS)
    ]
    return {f"Heads with the highest {_label(value)}": rows}


def list_rows(lists: xr.Dataset, n: int | None = None) -> list[dict[str, Any]]:
    """Return the first n rows (default: all) of the token lists of one head, which share their first dimension."""
    columns = list(lists.data_vars.values())
    length = columns[0].shape[0]
    return [{_label(v): _cell(v.values[i]) for v in columns} for i in range(length if n is None else min(n, length))]


def _test_variables(result: xr.Dataset) -> list[str]:
    """Name the variables of tests: the change, the changes with other heads, and p; none if nothing was tested."""
    if not {"effect", "random_effect", "p"} <= set(result):
        return []
    dims = result["effect"].dims
    others = [str(n) for n, v in result.data_vars.items() if str(n).endswith("_effect") and set(dims) <= set(v.dims)]
    n_heads = ["n_removed"] if "n_removed" in result and set(result["n_removed"].dims) <= set(dims) else []
    return ["effect", *others, *(n for n in P_VALUES if n in result), *n_heads]


def _outcome_row(measure: str, subject: str, outcome: Outcome) -> dict[str, Any]:
    """Make the row of a tested map."""
    return {
        "subject": subject,
        "measure": measure,
        "heads": outcome.n_heads,
        "right": percent(outcome.accuracy),
        "without": percent(outcome.accuracy_after),
        "change of log P": _cell(outcome.effect),
        "random heads": _cell(outcome.random),
        "beyond random": _cell(outcome.beyond["zero"]),
        "interval": interval_in_words(outcome),
        "p, corrected": _cell(outcome.p),
        "outcome": outcome.outcome,
        "reason": outcome.reason,
    }


def _tests(result: xr.Dataset, variables: list[str]) -> list[dict[str, Any]]:
    """Make a row per test."""
    dims = result["effect"].dims
    rows = []
    for labels in product(*(result[d].values.tolist() for d in dims)):
        test = result[variables].sel(dict(zip(dims, labels, strict=True)))
        if "baseline" in result and set(result["baseline"].dims) <= set(dims):
            baseline = result["baseline"]
            baseline = baseline.sel({d: v for d, v in zip(dims, labels, strict=True) if d in baseline.dims})
            test = xr.Dataset({"baseline": baseline.drop_vars(list(test.coords), errors="ignore")}).merge(test)
        if bool(test["effect"].notnull().any()):
            names = {"n_removed": "heads"}
            row = {names.get(str(d), str(d)): _cell(v) for d, v in zip(dims, labels, strict=True)}
            rows.append(row | _test_row(test))
    return rows


def _test_row(test: xr.Dataset) -> dict[str, Any]:
    row: dict[str, Any] = {}
    if "n_removed" in test.data_vars:
        row["heads"] = int(test["n_removed"])
    for name, values in test.data_vars.items():
        if name in ("baseline", "effect"):
            row[{"baseline": "whole model", "effect": "change"}[str(name)]] = _cell(float(values.mean()))
        elif str(name).endswith("_effect"):
            # Changes of several other tasks may cancel: their mean size is shown.
            other_dims = [d for d in values.dims if d != "draw"]
            value = float(abs(values).mean()) if other_dims else float(values.mean())
            row[_effect_label(str(name)) + ", mean size" * bool(other_dims)] = _cell(value)
    return row | {("p" if n == "p" else "p, corrected"): _cell(test[n].item()) for n in P_VALUES if n in test}


def _effect_label(name: str) -> str:
    return {"random_effect": "random heads", "other_effect": "others"}.get(name, name.replace("_effect", " heads"))


def _matrix(values: xr.DataArray) -> Iterator[dict[str, Any]]:
    """Yield a small array as rows, with columns along its shortest dimension."""
    columns = min(values.dims, key=lambda d: (values.sizes[d], values.dims.index(d)))
    if values.sizes[columns] > MAX_COLUMNS:
        return
    others = [d for d in values.dims if d != columns]
    for labels in product(*(_labels(values, d) for d in others)):
        selection = dict(zip(others, labels, strict=True))
        cells = values.isel({d: _labels(values, d).index(v) for d, v in selection.items()})
        if _has_content(cells):
            row = {str(d): v for d, v in selection.items()}
            yield row | {str(c): _cell(cells.values[i]) for i, c in enumerate(_labels(values, columns))}


def _title(values: xr.DataArray) -> str:
    units = f" [{values.attrs['units']}]" if values.attrs.get("units") else ""
    text = f": {values.attrs['description']}" if values.attrs.get("description") else ""
    return f"{_label(values)}{units}{text}"


def _label(values: xr.DataArray) -> str:
    return str(values.attrs.get("long_name") or str(values.name).replace("_", " "))


def _labels(values: xr.DataArray, dim: Hashable) -> list[Any]:
    return values[dim].values.tolist() if dim in values.coords else list(range(values.sizes[dim]))


def _cell(value: Any) -> Any:
    """Round a value to three digits; '-' for a missing one."""
    if isinstance(value, str):
        return value if len(value) <= MAX_CELL_CHARACTERS else value[: MAX_CELL_CHARACTERS - 2] + " …"
    if isinstance(value, np.ndarray):
        return " ".join(map(repr, value.ravel().tolist()))
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if np.isnan(float(value)):
        return "-"
    return int(value) if float(value).is_integer() and abs(value) < 1e15 else float(f"{float(value):.3g}")
