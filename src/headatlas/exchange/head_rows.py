"""Rows that say which head they are of, as tables [layer, head]; and strictly read CSV files."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headatlas.errors import BadFile, brief, one_line
from headatlas.exchange.checked_tables import Entry, ImportOptions, Tables, padded, place, read_text

LAYER = ("layer", "layer_idx")
HEAD = ("head", "head_idx", "kv_head")
SCORE = ("score", "value", "importance", "contribution", "effect")
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


def tables_of_rows(rows: Sequence[Row], path: Path, options: ImportOptions) -> Tables:
    """Make tables of one shape. A row without a score (an empty cell, null) marks a missing head."""
    per_kv_head = bool(rows) and "kv_head" in rows[0].cells and not {"head", "head_idx"} & set(rows[0].cells)
    heads = None if per_kv_head else options.heads
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.table(options.table_name), []).append(row)
    if not groups:
        raise BadFile(f"{path} has no rows")

    def placed(group: list[Row], columns: Sequence[str]) -> np.ndarray:
        entries = (Entry(row.cell(LAYER), row.cell(HEAD), row.cell(columns), row.where) for row in group)
        return place(entries, path, options.layers, heads)[0]

    scores = {name: placed(group, SCORE) for name, group in groups.items()}
    low = {name: placed(group, ("low",)) for name, group in groups.items() if _has(group, "low")}
    high = {name: placed(group, ("high",)) for name, group in groups.items() if _has(group, "high")}
    shape = padded(scores)
    return Tables(shape, low=padded(low, shape), high=padded(high, shape), per_kv_head=per_kv_head)


def _has(group: Sequence[Row], column: str) -> bool:
    return any(row.cells.get(column) not in (None, "") for row in group)


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
