"""Rows that say which head they are of: CSV, JSON and parquet files, and ranked lists of heads."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headatlas.errors import BadFile, MissingExtra, brief, one_line
from headatlas.results.importing.numbers import Asked, Entry, Tables, padded, place, read_json, read_text, under

LAYER = ("layer", "layer_idx")
HEAD = ("head", "head_idx", "kv_head")
SCORE = ("score", "value", "importance", "effect")
NAMES = ("subject", "table", "chart", "name", "function", "relation", "category", "task", "pattern", "measure")


@dataclass(frozen=True)
class Row:
    """Cells by column, and where they stand."""

    cells: Mapping[str, Any]
    where: str

    def cell(self, columns: Sequence[str]) -> Any:
        """Of these columns, the one that there is; of text, the number."""
        name = next((c for c in columns if c in self.cells), None)
        if name is None:
            raise BadFile(f"{self.where} lacks {columns[0]}; it has {brief(', '.join(map(str, self.cells)))}")
        return as_number(self.cells[name])

    def table(self, default: str) -> str:
        """What the row's table is called: 'method: subject, measure', as far as columns say it."""
        parts = [str(self.cells[c]) for c in NAMES if self.cells.get(c) not in (None, "")]
        method = self.cells.get("method")
        return f"{method}: " * bool(method) + (", ".join(parts) or default)


def ranked(path: Path, asked: Asked) -> Tables:
    """Heads with a score each, in any order; or an object of such lists."""
    content = under(read_json(path), asked.key, path)
    if not isinstance(content, dict):
        return _tables(_ranks(content, str(path)), path, asked)
    return _tables(
        [row for name, rows in content.items() for row in _ranks(rows, f"{path}: {brief(name)}", name)], path, asked
    )


def long_table(path: Path, asked: Asked) -> Tables:
    """A row for every table, layer and head, in a file that ends in .csv, .json or .parquet."""
    if path.suffix.lower() == ".parquet":
        rows = _read_parquet(path)
    elif path.suffix.lower() == ".json":
        rows = under(read_json(path), asked.key, path)
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise BadFile(f"{path} holds {brief(rows)}, expected a list of objects")
    else:
        header, *lines = read_csv(path)
        rows = [dict(zip(header, line, strict=True)) for line in lines]
    return _tables([Row(cells, f"{path}: row {i + 1}") for i, cells in enumerate(rows)], path, asked)


def _tables(rows: Sequence[Row], path: Path, asked: Asked) -> Tables:
    """Tables of one shape. A row without a score (an empty cell, null) is a head that there is not."""
    per_kv_head = bool(rows) and "kv_head" in rows[0].cells and not {"head", "head_idx"} & set(rows[0].cells)
    heads = None if per_kv_head else asked.heads
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.table(asked.label), []).append(row)
    if not groups:
        raise BadFile(f"{path} has no rows")

    def placed(group: list[Row], columns: Sequence[str]) -> np.ndarray:
        entries = (Entry(row.cell(LAYER), row.cell(HEAD), row.cell(columns), row.where) for row in group)
        return place(entries, path, asked.layers, heads)[0]

    scores = {name: placed(group, SCORE) for name, group in groups.items()}
    ends = [
        {name: placed(group, (end,)) for name, group in groups.items() if _has(group, end)} for end in ("low", "high")
    ]
    shape = padded(scores)
    return Tables(shape, low=padded(ends[0], shape), high=padded(ends[1], shape), per_kv_head=per_kv_head)


def _has(group: Sequence[Row], column: str) -> bool:
    return any(row.cells.get(column) not in (None, "") for row in group)


def _ranks(rows: Any, where: str, name: str = "") -> list[Row]:
    """Triples, objects, and objects with one entry that is a triple, alike."""
    if not isinstance(rows, list):
        raise BadFile(f"{where} holds {brief(rows)}, expected a list of [layer, head, score]")
    made = []
    for i, row in enumerate(rows):
        cells = next(iter(row.values())) if isinstance(row, dict) and len(row) == 1 else row
        if isinstance(cells, list) and len(cells) == 3:
            cells = dict(zip(("layer", "head", "score"), cells, strict=True))
        if not isinstance(cells, dict):
            raise BadFile(f"{where}: row {i + 1} is {brief(row)}, expected [layer, head, score]")
        made.append(Row({"table": name} | cells if name else cells, f"{where}: row {i + 1}"))
    return made


def as_number(cell: Any) -> Any:
    """The number that a text says; None if it says nothing, and the text if that is no number."""
    text = cell.strip() if isinstance(cell, str) else None
    if text == "":
        return None
    if text is None or "_" in text:  # Python reads '1_0' as a number, too
        return cell
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return cell


def read_csv(file: Path) -> list[list[str]]:
    """The rows of a CSV file, the header first, in small letters; all of one length."""
    try:
        reader = csv.reader(io.StringIO(read_text(file), newline=""), strict=True)
        rows = [[cell.strip() for cell in row] for row in reader if row]
    except csv.Error as e:
        raise BadFile(f"{file} is not CSV: {one_line(e)}") from e
    if not rows:
        raise BadFile(f"{file} has no rows")
    header = [name.lower() for name in rows[0]]
    if len(set(header)) < len(header):
        raise BadFile(f"{file} has a column twice: {brief(', '.join(header))}")
    if odd := next((i for i, row in enumerate(rows) if len(row) != len(header)), 0):
        raise BadFile(f"{file}: row {odd} has {len(rows[odd])} cells, the header {len(header)}")
    return [header, *rows[1:]]


def _read_parquet(file: Path) -> list[dict[str, Any]]:
    """NaN is nothing: parquet files have no other way to leave a number out of pandas' tables."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as e:
        raise MissingExtra("parquet files need pyarrow: pip install 'headatlas[parquet]'") from e
    try:
        rows = parquet.read_table(file).to_pylist()
    except (ArrowException, OSError) as e:
        raise BadFile(f"cannot read {file} as parquet: {one_line(e)}") from e
    return [{name: None if cell != cell else cell for name, cell in row.items()} for row in rows]
