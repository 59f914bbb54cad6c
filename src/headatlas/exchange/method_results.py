"""Read published scores as the result of a method, so that they are drawn as its maps are.

kind        rows (CSV, JSON)                      object (JSON)                       array (.npy)
importance  function, layer, head, importance     {"Retrieval": [[…], …]}             [function, layer, head]
categories  category, layer, head                 {"Knowledge": [[0, 1, …], …]}       [category, layer, head]
gate        task, layer, head, facilitation, …    {"math": {"facilitation": [[…]]}}   [task, role, layer, head]

Rows are CSV with a header, or a JSON list of objects. Gates may have a seed column, or a seed axis before layer.
Missing heads are NaN, and belong to no category. Methods declare the kind that is read as their result (`imports`),
and their measures say which variables it has.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from headatlas.errors import BadArgument, BadFile, brief
from headatlas.exchange.checked_tables import Entry, pad_tables, parse_square, place_scores, read_json
from headatlas.exchange.head_rows import Row, read_csv
from headatlas.methods import measures_of
from headatlas.tasks.built_in import FUNCTIONS

SUBJECTS = ("function", "relation", "category", "task", "name")
VALUES = ("importance", "score", "value", "contribution", "effect", "member")
# By subject, then by variable: [seed, layer, head].
Maps = dict[str, dict[str, np.ndarray]]


@dataclass(frozen=True)
class Layout:
    """How a kind of result is laid out.

    over: the dimension of its subjects. has_seeds: whether variables have a seed axis. is_membership: whether heads are
    members or not, without a score.
    """

    over: str
    variables: tuple[str, ...]
    has_seeds: bool = False
    is_membership: bool = False

    @property
    def has_several_variables(self) -> bool:
        return len(self.variables) > 1


def layout_of(kind: str, method: str) -> Layout:
    """Return the layout of a kind, as declared by the measures of its method."""
    if kind == "categories":
        return Layout("category", ("member",), is_membership=True)
    measures = measures_of(method)
    first = measures[0]
    names = tuple(measure.name for measure in measures if measure.over == first.over)
    return Layout(first.over, names, has_seeds=first.repeats == (first.name, "seed"))


def read_result(file: Path, kind: str, method: str, names: Sequence[str] | None = None) -> xr.Dataset:
    """Read a .csv, .json or .npy file as a result of the method. names: labels of the first axis of an array."""
    layout = layout_of(kind, method)
    suffix = file.suffix.lower()
    if suffix == ".csv":
        header, *lines = read_csv(file)
        maps = _parse_rows([dict(zip(header, line, strict=True)) for line in lines], layout, file)
    elif suffix == ".json":
        maps = _parse_json(read_json(file), layout, file)
    elif suffix == ".npy":
        maps = _parse_array(np.load(file, allow_pickle=False), layout, file, names)
    else:
        raise BadArgument(f"scores is {str(file)!r}, expected a file that ends in .csv, .json, .npy")
    return _dataset(maps, layout)


def _dataset(maps: Maps, layout: Layout) -> xr.Dataset:
    arrays = [array for variables in maps.values() for array in variables.values()]
    shapes = sorted({array.shape[-2:] for array in arrays})
    if len(shapes) != 1 or 0 in shapes[0]:
        raise BadFile(f"maps have different sizes, or none: {', '.join(map(str, shapes)) or 'there are no maps'}")
    seeds = sorted({len(array) for array in arrays})
    if len(seeds) != 1:
        raise BadFile(f"maps have different numbers of seeds: {', '.join(map(str, seeds))}")
    if any(np.isinf(array).any() for array in arrays):
        raise BadFile("some scores are infinite, which cannot be drawn")
    present = [name for name in layout.variables if all(name in variables for variables in maps.values())]
    if layout.variables[0] not in present:
        raise BadFile(f"every {layout.over} needs a {layout.variables[0]} score")
    # [subject, seed, layer, head]
    values = {name: np.stack([variables[name] for variables in maps.values()]) for name in present}
    coords: dict[str, Any] = {"layer": range(shapes[0][0]), "head": range(shapes[0][1])}
    subjects = list(maps)
    dims = (layout.over, "layer", "head")
    if layout.is_membership:
        member = np.nan_to_num(values["member"][:, 0]) > 0
        result = xr.Dataset({"member": (dims, member)}, coords=coords | {"category_name": (layout.over, subjects)})
        return result.set_xindex("category_name")
    if not any(np.isfinite(array).any() for array in values.values()):
        raise BadFile(f"these {layout.variables[0]} scores have no number")
    coords[layout.over] = subjects
    if not layout.has_seeds:
        return xr.Dataset({name: (dims, array[:, 0]) for name, array in values.items()}, coords=coords)
    dims_with_seed = (layout.over, "seed", "layer", "head")
    result = xr.Dataset({name: (dims_with_seed, array) for name, array in values.items()}, coords=coords)
    first = result[layout.variables[0]]
    return result.assign_coords(seed=range(seeds[0])).assign(always=first.min("seed"), any=first.max("seed"))


def _parse_json(content: Any, layout: Layout, file: Path) -> Maps:
    if isinstance(content, list) and all(isinstance(row, dict) for row in content):
        return _parse_rows([{str(k).strip().lower(): v for k, v in row.items()} for row in content], layout, file)
    if not isinstance(content, Mapping) or not content:
        raise BadFile(f"{file} holds {brief(content)}, expected an object of maps by name, or a list of rows")
    if not layout.has_several_variables:
        return {
            name: {layout.variables[0]: _parse_by_seed(v, layout, f"{file}: {name}")} for name, v in content.items()
        }
    maps: Maps = {}
    for subject, variables in content.items():
        if not isinstance(variables, Mapping):
            expected = f"expected an object with {', '.join(layout.variables)}"
            raise BadFile(f"{file}: {subject} holds {brief(variables)}, {expected}")
        present = [name for name in layout.variables if name in variables]
        maps[subject] = {
            name: _parse_by_seed(variables[name], layout, f"{file}: {subject}, {name}") for name in present
        }
    return maps


def _parse_by_seed(value: Any, layout: Layout, where: str) -> np.ndarray:
    """Parse a list of layers, or a list of such lists by seed if the kind has seeds, as [seed, layer, head]."""
    by_seed = layout.has_seeds and isinstance(value, list) and bool(value) and _is_table(value[0])
    tables = [parse_square(table, where, allow_missing=True) for table in (value if by_seed else [value])]
    if len({table.shape for table in tables}) > 1:
        raise BadFile(f"{where} has seeds of different sizes")
    return np.stack(tables)


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], list)


def _parse_array(values: np.ndarray, layout: Layout, file: Path, names: Sequence[str] | None) -> Maps:
    if values.dtype.kind not in "biuf":
        raise BadFile(f"{file} holds {values.dtype}, expected numbers")
    values = values.astype(np.float64)
    shapes = ["[name, layer, head]"]
    if layout.has_several_variables:
        shapes = [f"[{layout.over}, role, layer, head]", f"[{layout.over}, role, seed, layer, head]"]
    if values.ndim not in [shape.count(",") + 1 for shape in shapes]:
        raise BadFile(f"{file} has the shape {values.shape}, expected {' or '.join(shapes)}")
    default = [f"{layout.over} {i}" for i in range(len(values))]
    if layout.over == "function" and len(values) == len(FUNCTIONS):
        default = list(FUNCTIONS)
    subjects = list(names) if names else default
    if len(subjects) != len(values) or len(set(subjects)) != len(subjects):
        raise BadArgument(f"names has {len(set(subjects))} different names, but {file} has {len(values)}")
    if not layout.has_several_variables:
        values = values[:, None]
    if values.ndim == 4:
        values = values[:, :, None]
    if values.shape[1] != len(layout.variables):
        roles = ", ".join(layout.variables)
        raise BadFile(f"{file} has {values.shape[1]} roles, expected {len(layout.variables)}: {roles}")
    return {
        subject: dict(zip(layout.variables, arrays, strict=True))
        for subject, arrays in zip(subjects, values, strict=True)
    }


def _parse_rows(cells: list[dict[str, Any]], layout: Layout, file: Path) -> Maps:
    """Read maps from rows, one per head, with cells by column name."""
    if not cells:
        raise BadFile(f"{file} has no rows")
    columns = list(dict.fromkeys(name for row in cells for name in row))
    subject = next((name for name in (layout.over, *SUBJECTS) if name in columns), "")
    present = _value_columns(columns, layout)
    if layout.is_membership and not present:
        cells = [row | {"member": 1} for row in cells]
        present = {"member": "member"}
    needed = {layout.over: subject, "layer": "layer" in columns, "head": "head" in columns, "a value": present}
    if missing := [name for name, value in needed.items() if not value]:
        expected = f"{layout.over}, layer, head, {layout.variables[0]}"
        has = f"it has the columns {', '.join(columns)}, expected {expected}"
        raise BadFile(f"{file} lacks {', '.join(missing)}: {has}")
    has_seeds = layout.has_seeds and "seed" in columns
    groups: dict[str, dict[Any, list[Row]]] = {}
    for i, values in enumerate(cells):
        row = Row(values, f"{file}, row {i + 1}")
        if values.get(subject) in (None, ""):
            raise BadFile(f"{row.where}: {subject} is empty")
        seed = row.cell(("seed",)) if has_seeds else 0
        groups.setdefault(str(values[subject]), {}).setdefault(seed, []).append(row)
    tables = {
        (name, variable, seed): place_scores(_entries(rows, column), file, None, None)[0]
        for name, by_seed in groups.items()
        for seed, rows in by_seed.items()
        for variable, column in present.items()
    }
    tables = pad_tables(tables)
    return {
        name: {variable: np.stack([tables[name, variable, seed] for seed in sorted(by_seed)]) for variable in present}
        for name, by_seed in groups.items()
    }


def _value_columns(columns: Sequence[str], layout: Layout) -> dict[str, str]:
    """Return the column of each variable; a kind with one variable accepts several names for it."""
    if layout.has_several_variables:
        return {name: name for name in layout.variables if name in columns}
    column = next((name for name in (*layout.variables, *VALUES) if name in columns), None)
    return {} if column is None else {layout.variables[0]: column}


def _entries(rows: Sequence[Row], column: str) -> list[Entry]:
    return [Entry(row.cell(("layer",)), row.cell(("head",)), row.cell((column,)), row.where) for row in rows]
