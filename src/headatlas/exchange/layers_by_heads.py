"""layers-by-heads: JSON list of layers, each a list of scores; or an object of such lists; or either at a key."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from headatlas.errors import BadFile, brief
from headatlas.exchange.format import Format, Source

if TYPE_CHECKING:
    from headatlas.exchange.checked_tables import ImportOptions, Tables


def recognises(source: Source) -> bool:
    content = source.json
    tables = list(content.values()) if isinstance(content, dict) else [content]
    return bool(tables) and all(_is_square(table) and not _is_triples(table) for table in tables)


def _is_square(value: Any) -> bool:
    rows = isinstance(value, list) and bool(value) and all(isinstance(row, list) and row for row in value)
    return rows and all(type(v) in (int, float) for row in value for v in row)


def _is_triples(rows: list[list[Any]]) -> bool:
    """Return whether rows could also be [layer, head, score]."""
    return all(len(row) == 3 and all(type(v) is int for v in row[:2]) for row in rows)


def read(path: Path, options: ImportOptions) -> Tables:
    """Read a list of layers, each a list of scores; or an object of several such lists."""
    from headatlas.exchange.checked_tables import Tables, check_same_shape, parse_square, read_json, value_at_key

    content = value_at_key(read_json(path), options.key, path)
    if isinstance(content, dict):
        if not content or not all(_is_square(value) for value in content.values()):
            keys = ", ".join(brief(name, 30) for name in list(content)[:8]) or "none"
            raise BadFile(f"{path} has the keys {keys}: give key, the place of the list of layers")
        scores = {name: parse_square(value, f"{path}: {brief(name)}") for name, value in content.items()}
    else:
        scores = {options.table_name: parse_square(content, str(path))}
    check_same_shape(scores, path, options.layers, options.heads)
    return Tables(scores)


FORMAT = Format("layers-by-heads", read=read, recognises=recognises, import_options=("key",))
