"""One result as rows for the terminal, whatever its method: from its measures, its dimensions and the names of tests.

1. Numbers and texts about the result as a whole, then about each subject, seed, question, …: a table per dimension.
   Of flags of heads, how many are set.
2. For every measure and subject: how many heads are above chance, and the top heads.
3. If heads were removed, switched or added: a row per test, with the change, that of random heads, and p.
4. Small arrays over two or three other dimensions: a table each.

Of several measures of the same test, the first is printed.

Columns are called after the `long_name` of a variable, or after the variable.
"""

from collections.abc import Hashable, Iterator
from itertools import product
from typing import Any

import numpy as np
import xarray as xr

from headatlas.methods import lists_of, measures_of, title_of
from headatlas.methods._chance import at_chance, no_head_label
from headatlas.methods._tables import best, head_name
from headatlas.methods.method import Measure, Tables
from headatlas.results.about import unit_of

HEADS = ("layer", "head")
AVERAGED = ("seed", "draw")  # dimensions whose mean is printed
P_VALUES = ("p", "p_corrected")
MAX_ROWS = 60
MAX_COLUMNS = 12
SHOWN_OF_LIST = 3
MAX_TEXT = 60  # characters of a cell


def method_tables(result: xr.Dataset, top: int = 5) -> Tables:
    """Return the tables of one result, by title. top: heads listed of each map."""
    if "measure" in result.dims:
        result = result.isel(measure=0)
    method = str(result.attrs.get("method", ""))
    measures = [m for m in measures_of(method) if m.name in result]
    tested = _test_variables(result)
    chance_levels = {m.chance for m in measures}
    plain = {
        name: values.mean([d for d in AVERAGED if d in values.dims], keep_attrs=True)
        for name, values in _without_heads(result).items()
        if name not in tested and name not in chance_levels and _is_printable(values)
    }
    tables: Tables = {}
    for dim in dict.fromkeys(values.dims for values in plain.values() if values.ndim < 2):
        title = title_of(method) + "".join(f": each {d}" for d in dim)
        tables[title] = _rows_of({n: v for n, v in plain.items() if v.dims == dim}, dim)
    tables |= {f"{title_of(method)}: top heads": [row for m in measures for row in _top_heads(result, m, top)]}
    tables |= _lists_of_heads(result, top)
    if tested:
        of_measure = f" of {result['measure'].item()}" if "measure" in result.coords else ""
        tables[f"Tests: change{of_measure}, compared with random heads"] = _tests(result, tested)
    tables |= {_title(values): list(_matrix(values)) for values in plain.values() if values.ndim > 1}
    return {title: rows for title, rows in tables.items() if rows}


def _without_heads(result: xr.Dataset) -> dict[str, xr.DataArray]:
    """Variables and coordinates by name; of flags of heads, how many are set."""
    coordinates = {n: c for n, c in result.coords.items() if n not in result.dims}
    variables = {str(n): v for n, v in (coordinates | dict(result.data_vars)).items()}
    flags = {n: v for n, v in variables.items() if v.dtype == bool and set(HEADS) < set(v.dims)}
    counts = {n: v.sum(HEADS, keep_attrs=False).rename(f"{_label(v)}: heads") for n, v in flags.items()}
    return variables | counts


def _is_printable(values: xr.DataArray) -> bool:
    """Whether an array is small, without heads, and holds something."""
    dims = [d for d in values.dims if d not in AVERAGED]
    if set(HEADS) & set(dims) or len(dims) > 3 or (values.dtype == bool and dims == []):
        return False
    if values.dtype.kind in "OU" and len(dims) != len(values.dims):
        return False
    sizes = [values.sizes[d] for d in dims]
    small = np.prod(sizes[:1] if len(dims) < 2 else sizes) <= (MAX_ROWS if len(dims) < 2 else MAX_ROWS * 2)
    return bool(small) and _has_content(values)


def _has_content(values: xr.DataArray) -> bool:
    if values.dtype.kind in "OU":
        return any(map(str, values.values.ravel()))
    return bool(values.notnull().any())


def _rows_of(columns: dict[str, xr.DataArray], dims: tuple[Hashable, ...]) -> list[dict[str, Any]]:
    """A row per label of one dimension; without a dimension, a row per variable."""
    if not dims:
        return [{"": _label(values), "value": _cell(values.item())} for values in columns.values()]
    (dim,) = dims
    return [
        {str(dim): label} | {_label(values): _cell(values.values[i]) for values in columns.values()}
        for i, label in enumerate(_labels(next(iter(columns.values())), dim))
    ]


def _top_heads(result: xr.Dataset, measure: Measure, top: int) -> Iterator[dict[str, Any]]:
    """A row per subject of a measure."""
    scores = result[measure.name]
    flags = at_chance(result, measure.name)
    level = result.get(measure.chance)
    unit_name = unit_of(result) if result.attrs.get("per") is None else str(result.attrs["per"])
    for subject in scores[measure.over].values.tolist():
        score = _head_map(scores.sel({measure.over: subject}))
        row = {measure.over: subject, "measure": measure.name}
        above = score
        if flags is not None:
            above = score.where(~_head_map(flags.sel({measure.over: subject})).astype(bool))
            row["above chance"] = f"{int(above.notnull().sum())} of {int(score.notnull().sum())}"
        if level is not None and level.dims == (measure.over,) and _has_content(level):
            row["chance"] = _cell(level.sel({measure.over: subject}).item())
        listed = _listed(above, top, unit_name)
        highest = _listed(score, 1, unit_name)
        nothing = no_head_label(str(result.attrs.get("method"))) if flags is not None else "none"
        row["top heads"] = listed or nothing + f" (best {highest})" * bool(highest)
        yield row


def _head_map(values: xr.DataArray) -> xr.DataArray:
    """Average over all but layers and heads; of flags, keep those set everywhere."""
    others = [d for d in values.dims if d not in HEADS]
    reduced = values.all(others) if values.dtype == bool else values.mean(others)
    return reduced.transpose(*HEADS)


def _listed(score: xr.DataArray, top: int, unit_name: str) -> str:
    return ", ".join(f"{head_name(a, b, unit_name)} {value:.3g}" for a, b, value in best(score, top))


def _lists_of_heads(result: xr.Dataset, top: int) -> Tables:
    """Return the token lists of the heads that have the highest value in theirs."""
    lists = lists_of(result)
    if lists is None:
        return {}
    columns = result[[lists.value, lists.tokens, lists.written, lists.demoted]]
    value = result[lists.value]
    rows = [
        {"head": head_name(layer, head)} | row
        for layer, head, _ in best(value.max("rank"), top)
        for row in list_rows(columns.sel(layer=layer, head=head), SHOWN_OF_LIST)
    ]
    return {f"Heads with the highest {_label(value)}": rows}


def list_rows(of_head: xr.Dataset, n: int | None = None) -> list[dict[str, Any]]:
    """Return the first n rows of the lists that one head has, each over a first dimension that they share."""
    columns = list(of_head.data_vars.values())
    length = columns[0].shape[0]
    return [{_label(v): _cell(v.values[i]) for v in columns} for i in range(length if n is None else min(n, length))]


def _test_variables(result: xr.Dataset) -> list[str]:
    """The variables of tests: the change, that of random and other heads, and p; none where nothing was tested."""
    if not {"effect", "random_effect", "p"} <= set(result):
        return []
    dims = result["effect"].dims
    same = [str(n) for n, v in result.data_vars.items() if str(n).endswith("_effect") and set(dims) <= set(v.dims)]
    about = [n for n in ("n_removed", "proven") if n in result and set(result[n].dims) <= set(dims)]
    return ["effect", *same, *(n for n in P_VALUES if n in result), *about]


def _tests(result: xr.Dataset, tested: list[str]) -> list[dict[str, Any]]:
    """A row per test that was done."""
    dims = result["effect"].dims
    rows = []
    for labels in product(*(result[d].values.tolist() for d in dims)):
        test = result[tested].sel(dict(zip(dims, labels, strict=True)))
        if "baseline" in result and set(result["baseline"].dims) <= set(dims):
            whole = result["baseline"]
            place = {d: v for d, v in zip(dims, labels, strict=True) if d in whole.dims}
            test = xr.Dataset({"baseline": whole.sel(place).drop_vars(list(test.coords), errors="ignore")}).merge(test)
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
            spread = [d for d in values.dims if d != "draw"]
            value = float(abs(values).mean()) if spread else float(values.mean())
            row[_effect_label(str(name)) + ", mean size" * bool(spread)] = _cell(value)
    return row | {("p" if n == "p" else "p, corrected"): _cell(test[n].item()) for n in P_VALUES if n in test}


def _effect_label(name: str) -> str:
    return {"random_effect": "random heads", "other_effect": "others"}.get(name, name.replace("_effect", " heads"))


def _matrix(values: xr.DataArray) -> Iterator[dict[str, Any]]:
    """A small array as rows, with columns along its shortest dimension."""
    columns = min(values.dims, key=lambda d: (values.sizes[d], values.dims.index(d)))
    if values.sizes[columns] > MAX_COLUMNS:
        return
    others = [d for d in values.dims if d != columns]
    for labels in product(*(_labels(values, d) for d in others)):
        place = dict(zip(others, labels, strict=True))
        line = values.isel({d: _labels(values, d).index(v) for d, v in place.items()})
        if _has_content(line):
            row = {str(d): v for d, v in place.items()}
            yield row | {str(c): _cell(line.values[i]) for i, c in enumerate(_labels(values, columns))}


def _title(values: xr.DataArray) -> str:
    units = f" [{values.attrs['units']}]" if values.attrs.get("units") else ""
    text = f": {values.attrs['description']}" if values.attrs.get("description") else ""
    return f"{_label(values)}{units}{text}"


def _label(values: xr.DataArray) -> str:
    return str(values.attrs.get("long_name") or str(values.name).replace("_", " "))


def _labels(values: xr.DataArray, dim: Hashable) -> list[Any]:
    return values[dim].values.tolist() if dim in values.coords else list(range(values.sizes[dim]))


def _cell(value: Any) -> Any:
    """A value for people: three digits, '-' where there is none."""
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else value[: MAX_TEXT - 2] + " …"
    if isinstance(value, np.ndarray):
        return " ".join(map(repr, value.ravel().tolist()))
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if float(value) != float(value):
        return "-"
    return int(value) if float(value).is_integer() and abs(value) < 1e15 else float(f"{float(value):.3g}")
