"""ranked: JSON list of heads with a score each, in any order; or an object of such lists, each a table.

An entry is [layer, head, score], or an object with "layer", "head" (or "head_idx") and "score", or an object whose only
value is such an entry.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from headatlas.errors import BadFile, brief
from headatlas.exchange.format import Format, Source

if TYPE_CHECKING:
    from headatlas.exchange.checked_tables import ImportOptions, Tables
    from headatlas.exchange.head_rows import Row


def recognises(source: Source) -> bool:
    content = source.json
    lists = list(content.values()) if isinstance(content, dict) else [content]
    return bool(lists) and all(_is_ranking(value) for value in lists)


def _is_ranking(content: Any) -> bool:
    """Return whether a list must be a ranking: bare triples could also be layers of three heads."""
    first = content[0] if isinstance(content, list) and content else None
    if not isinstance(first, dict) or not first:
        return False
    if {"layer", "layer_idx"} & set(first):
        return not {"method", "subject", "measure"} & set(first)
    only = next(iter(first.values()))
    return len(first) == 1 and isinstance(only, list) and len(only) == 3


def read(path: Path, options: ImportOptions) -> Tables:
    """Read a list of heads with scores, in any order, or an object of such lists by name."""
    from headatlas.exchange.checked_tables import read_json, value_at_key
    from headatlas.exchange.head_rows import tables_of_rows

    content = value_at_key(read_json(path), options.key, path)
    if not isinstance(content, dict):
        return tables_of_rows(_rows(content, str(path)), path, options)
    rows = [row for name, entries in content.items() for row in _rows(entries, f"{path}: {brief(name)}", name)]
    return tables_of_rows(rows, path, options)


def _rows(entries: Any, where: str, table: str = "") -> list[Row]:
    """Rows of triples, of objects, and of objects whose only value is a triple."""
    from headatlas.exchange.head_rows import Row

    if not isinstance(entries, list):
        raise BadFile(f"{where} holds {brief(entries)}, expected a list of [layer, head, score]")
    rows = []
    for i, entry in enumerate(entries):
        cells = next(iter(entry.values())) if isinstance(entry, dict) and len(entry) == 1 else entry
        if isinstance(cells, list) and len(cells) == 3:
            cells = dict(zip(("layer", "head", "score"), cells, strict=True))
        if not isinstance(cells, dict):
            raise BadFile(f"{where}: row {i + 1} is {brief(entry)}, expected [layer, head, score]")
        rows.append(Row({"table": table} | cells if table else cells, f"{where}: row {i + 1}"))
    return rows


FORMAT = Format("ranked", read=read, recognises=recognises, import_options=("key",))
