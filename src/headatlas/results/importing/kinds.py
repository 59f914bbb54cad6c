"""Published scores as the results of three methods, so that they can be drawn as those are.

kind        rows (CSV, JSON)                      object (JSON)                       array (.npy)
importance  function, layer, head, importance     {"Retrieval": [[…], …]}             [function, layer, head]
categories  category, layer, head                 {"Knowledge": [[0, 1, …], …]}       [category, layer, head]
gate        task, layer, head, facilitation, …    {"math": {"facilitation": [[…]]}}   [task, role, layer, head]

Rows are CSV with a header, or a JSON list of objects. Gates may have a seed column, or a seed axis before layer.
Missing heads are NaN, and belong to no category.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from headatlas.errors import BadArgument, BadFile, one_line
from headatlas.tasks.names import FUNCTIONS

ROLES = ("facilitation", "interference", "irrelevance")  # of gates
NAMES = {"importance": "function", "categories": "category", "gate": "task"}
VALUES = ("importance", "score", "value", "effect", "member")
MOST = 50_000_000  # numbers; more is a mistake


def read_kind(file: Path, kind: str, names: Sequence[str] | None = None) -> xr.Dataset:
    """A dataset with the documented variables from a .csv, .json or .npy file. names: of the first axis, for .npy."""
    readers = {".csv": _csv, ".json": _json, ".npy": _npy}
    if file.suffix.lower() not in readers:
        raise BadArgument(f"scores is {str(file)!r}, expected a file that ends in {', '.join(readers)}")
    return _dataset(kind, readers[file.suffix.lower()](file, kind, names))


Parts = dict[str, dict[str, np.ndarray]]  # by name, then by variable: [layer, head] or [seed, layer, head]


def _dataset(kind: str, parts: Parts) -> xr.Dataset:
    shapes = {v.shape[-2:] for part in parts.values() for v in part.values()}
    if len(shapes) != 1 or 0 in next(iter(shapes)):
        raise BadFile(
            f"maps have different sizes, or none: {', '.join(map(str, sorted(shapes))) or 'there are no maps'}"
        )
    if any(np.isinf(v).any() for part in parts.values() for v in part.values()):
        raise BadFile("some scores are infinite, which cannot be drawn")
    n_layers, n_heads = shapes.pop()
    coords: dict[str, Any] = {"layer": range(n_layers), "head": range(n_heads)}
    names = list(parts)
    if kind == "importance":
        values = np.stack([part["importance"] for part in parts.values()])
        if not np.isfinite(values).any():
            raise BadFile("these importances have no number")
        return xr.Dataset({"importance": (("function", "layer", "head"), values)}, coords=coords | {"function": names})
    if kind == "categories":
        member = np.stack([np.nan_to_num(part["importance"]) > 0 for part in parts.values()])
        variable = (("category", "layer", "head"), member)
        categories = xr.Dataset({"member": variable}, coords=coords | {"category_name": ("category", names)})
        return categories.set_xindex("category_name")
    seeds = {v.shape[0] for part in parts.values() for v in part.values()}
    if len(seeds) != 1:
        raise BadFile(f"gates have different numbers of seeds: {', '.join(map(str, sorted(seeds)))}")
    roles = [r for r in ROLES if all(r in part for part in parts.values())]
    if "facilitation" not in roles:
        raise BadFile("gates need a facilitation score for every task")
    dims = ("task", "seed", "layer", "head")
    gates = xr.Dataset(
        {r: (dims, np.stack([part[r] for part in parts.values()])) for r in roles}, coords=coords | {"task": names}
    )
    gates = gates.assign_coords(seed=range(seeds.pop()))
    return gates.assign(always=gates.facilitation.min("seed"), any=gates.facilitation.max("seed"))


def _csv(file: Path, kind: str, names: Sequence[str] | None) -> Parts:
    return _rows(pd.read_csv(file, skipinitialspace=True, keep_default_na=False, na_values=[""]), kind, file)


def _json(file: Path, kind: str, names: Sequence[str] | None) -> Parts:
    content = json.loads(file.read_text(encoding="utf-8"))
    if isinstance(content, list):
        return _rows(pd.DataFrame(content), kind, file)
    if not isinstance(content, Mapping) or not content:
        raise BadFile(f"{file} holds {type(content).__name__}, expected an object of maps by name, or a list of rows")
    if kind != "gate":
        return {str(k): {"importance": _square(v, f"{file}: {k}", (2,))} for k, v in content.items()}
    parts: Parts = {}
    for task, roles in content.items():
        if not isinstance(roles, Mapping):
            raise BadFile(f"{file}: {task} holds {type(roles).__name__}, expected an object with {', '.join(ROLES)}")
        parts[str(task)] = {r: _seeded(_square(roles[r], f"{file}: {task}, {r}", (2, 3))) for r in ROLES if r in roles}
    return parts


def _npy(file: Path, kind: str, names: Sequence[str] | None) -> Parts:
    values = np.load(file, allow_pickle=False)
    if values.dtype.kind not in "biuf":
        raise BadFile(f"{file} holds {values.dtype}, expected numbers")
    values = values.astype(np.float64)
    expected = (
        "[task, role, layer, head] or [task, role, seed, layer, head]" if kind == "gate" else "[name, layer, head]"
    )
    if values.ndim not in ((4, 5) if kind == "gate" else (3,)):
        raise BadFile(f"{file} has the shape {values.shape}, expected {expected}")
    known = (
        list(names) if names else list(FUNCTIONS) if kind == "importance" and len(values) == len(FUNCTIONS) else None
    )
    called = known or [f"{NAMES[kind]} {i}" for i in range(len(values))]
    if len(called) != len(values) or len(set(called)) != len(called):
        raise BadArgument(f"names has {len(set(called))} different names, but {file} has {len(values)}")
    if kind != "gate":
        return {name: {"importance": v} for name, v in zip(called, values, strict=True)}
    if values.shape[1] != len(ROLES):
        raise BadFile(f"{file} has {values.shape[1]} roles, expected {len(ROLES)}: {', '.join(ROLES)}")
    return {
        name: {r: _seeded(w) for r, w in zip(ROLES, v, strict=True)} for name, v in zip(called, values, strict=True)
    }


def _square(value: Any, where: str, dimensions: tuple[int, ...]) -> np.ndarray:
    try:
        array = np.array(value, dtype=np.float64)
    except (ValueError, TypeError) as e:
        raise BadFile(f"{where} is not a table of numbers with rows of one length: {one_line(e)}") from e
    if array.ndim not in dimensions:
        raise BadFile(f"{where} has {array.ndim} dimensions, expected layers × heads")
    return array


def _plain(value: Any) -> str:
    return repr(value.item() if isinstance(value, np.generic) else value)


def _seeded(array: np.ndarray) -> np.ndarray:
    return array[None] if array.ndim == 2 else array


def _rows(table: pd.DataFrame, kind: str, file: Path) -> Parts:
    """A row per head: columns by name, in any case."""
    if table.empty:
        raise BadFile(f"{file} has no rows")
    table.columns = pd.Index([str(c).strip().lower() for c in table.columns])
    name = next((c for c in (NAMES[kind], "function", "relation", "category", "task", "name") if c in table), None)
    columns = [r for r in ROLES if r in table] if kind == "gate" else [next((c for c in VALUES if c in table), "")]
    if kind == "categories" and columns == [""]:
        table, columns = table.assign(member=1), ["member"]
    needed = {NAMES[kind]: name, "layer": "layer" in table, "head": "head" in table, "a value": columns and columns[0]}
    if missing := [n for n, column in needed.items() if not column]:
        expected = f"{NAMES[kind]}, layer, head, {'facilitation' if kind == 'gate' else 'importance'}"
        raise BadFile(
            f"{file} lacks {', '.join(missing)}: it has the columns {', '.join(table.columns)}, expected {expected}"
        )
    assert name is not None
    if table[name].isna().any():
        row = int(np.flatnonzero(table[name].isna())[0])
        raise BadFile(f"{file}, row {row + 1}: {name} is empty")
    table[name] = table[name].astype(str)
    keys = [name, *(["seed"] if kind == "gate" and "seed" in table else []), "layer", "head"]
    for key in ("layer", "head"):
        numbers = pd.to_numeric(table[key], errors="coerce")
        if numbers.isna().any() or (numbers < 0).any() or (numbers % 1 != 0).any():
            row = int(np.flatnonzero(numbers.isna() | (numbers < 0) | (numbers % 1 != 0))[0])
            raise BadFile(
                f"{file}, row {row + 1}: {key} is {_plain(table[key].iloc[row])}, expected a whole number, 0 or more"
            )
        table[key] = numbers.astype(int)
    if table.duplicated(keys).any():
        row = int(np.flatnonzero(table.duplicated(keys))[0])
        cell = ", ".join(f"{k} {table[k].iloc[row]}" for k in keys)
        raise BadFile(f"{file}, row {row + 1}: {cell} stands there twice")
    size = (int(table["layer"].max()) + 1, int(table["head"].max()) + 1)
    if size[0] * size[1] * table[name].nunique() > MOST:
        raise BadFile(f"{file} would be {size[0]} layers × {size[1]} heads: is one of them not an index?")
    seeds = sorted(table["seed"].unique()) if "seed" in keys else [0]
    parts: Parts = {}
    for label, rows in table.groupby(name, sort=False):
        of = {c: np.full((len(seeds), *size), np.nan) for c in columns}
        at = (
            rows["seed"].map(seeds.index) if "seed" in keys else np.zeros(len(rows), int),
            rows["layer"],
            rows["head"],
        )
        for c in columns:
            values = pd.to_numeric(rows[c], errors="coerce")
            if (values.isna() & rows[c].notna()).any():
                bad = rows[c][values.isna() & rows[c].notna()].iloc[0]
                raise BadFile(f"{file}: {c} of {label} is {bad!r}, expected a number")
            of[c][tuple(np.asarray(a) for a in at)] = values
        parts[str(label)] = of if kind == "gate" else {"importance": of[columns[0]][0]}
    return parts
