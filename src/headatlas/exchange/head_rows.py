"""Turn rows of (layer, head, score) into tables [layer, head], and read CSV files strictly."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headatlas.errors import BadFile, brief, one_line
from headatlas.exchange.checked_tables import Entry, ImportOptions, Tables, pad_tables, place_scores, read_text

LAYER = ("layer", "layer_idx")
HEAD = ("head", "head_idx", "kv_head")
SCORE = ("score", "value", "importance", "contribution", "effect")
NAMES = ("subject", "table", "chart", "name", "function", "relation", "category", "task", "pattern", "measure")


@dataclass(frozen=True)
class Row:
    """The cells of a row by column. where: its place in the file, for error messages."""

    cells: Mapping[str, Any]
    where: str

    def cell(self, columns: Sequence[str]) -> Any:
        """Return the cell of the first of these columns that the row has; numbers in text are parsed."""
        name = next((c for c in columns if c in self.cells), None)
        if name is None:
            raise BadFile(f"{self.where} lacks {columns[0]}; it has {brief(', '.join(map(str, self.cells)))}")
        return as_number(self.cells[name])

    def table(self, default: str) -> str:
        """Return the name of the row's table: 'method: subject, measure', of those that the row has."""
        parts = [str(self.cells[c]) for c in NAMES if self.cells.get(c) not in (None, "")]
        method = self.cells.get("method")
        return f"{method}: " * bool(method) + (", ".join(parts) or default)


def tables_of_rows(rows: Sequence[Row], path: Path, options: ImportOptions) -> Tables:
    """Arrange rows as tables of one shape. A row without a score (an empty cell, null) marks a missing head."""
    per_kv_head = bool(rows) and "kv_head" in rows[0].cells and not {"head", "head_idx"} & set(rows[0].cells)
    heads = None if per_kv_head else options.heads
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.table(options.table_name), []).append(row)
    if not groups:
        raise BadFile(f"{path} has no rows")

    def place_group(group: list[Row], columns: Sequence[str]) -> np.ndarray:
        entries = (Entry(row.cell(LAYER), row.cell(HEAD), row.cell(columns), row.where) for row in group)
        return place_scores(entries, path, options.layers, heads)[0]

    scores = {name: place_group(group, SCORE) for name, group in groups.items()}
    low = {name: place_group(group, ("low",)) for name, group in groups.items() if _has(group, "low")}
    high = {name: place_group(group, ("high",)) for name, group in groups.items() if _has(group, "high")}
    shape = pad_tables(scores)
    return Tables(shape, low=pad_tables(low, shape), high=pad_tables(high, shape), per_kv_head=per_kv_head)


def _has(group: Sequence[Row], column: str) -> bool:
    return any(row.cells.get(column) not in (None, "") for row in group)


def as_number(cell: Any) -> Any:
    """Parse text as a number: None for empty text, and the cell itself if it is not a number."""
    text = cell.strip() if isinstance(cell, str) else None
    if text == "":
        return None
    # Python would read '1_0' as a number, too.
    if text is None or "_" in text:
        return cell
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return cell


def read_csv(file: Path) -> list[list[str]]:
    """Read the rows of a CSV file, the header first and in lower case, and check that all have the same length."""
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
    if ragged := next((i for i, row in enumerate(rows) if len(row) != len(header)), 0):
        raise BadFile(f"{file}: row {ragged} has {len(rows[ragged])} cells, the header {len(header)}")
    return [header, *rows[1:]]
