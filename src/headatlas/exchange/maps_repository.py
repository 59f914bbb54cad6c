"""maps: scores.csv of the MAPS repository, a row for each template, layer and head; or a folder of relations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headatlas.errors import BadArgument, BadFile, brief
from headatlas.exchange.format import Format, Source

if TYPE_CHECKING:
    import numpy as np

    from headatlas.exchange.checked_tables import ImportOptions, Tables

FILES = ("scores.csv", "results.csv")
# Columns of scores.csv, and the names of their tables here.
DYNAMIC = {
    "w_context_dynamic_relation_scores": "with context",
    "w_context_suppression_dynamic_relation_scores": "with context, suppression",
    "wo_context_dynamic_relation_scores": "without context",
    "wo_context_suppression_dynamic_relation_scores": "without context, suppression",
}


def recognises(source: Source) -> bool:
    if source.path.is_dir():
        return any(any(source.path.glob(f"*/{name}")) for name in FILES)
    return source.columns is not None and source.columns <= set(DYNAMIC)


def read(path: Path, options: ImportOptions) -> Tables:
    """Read scores that MAPS measured in texts: rows without numbers, template by template, layer by layer."""
    import numpy as np

    from headatlas.exchange.checked_tables import average_repeats, check_number, check_size
    from headatlas.exchange.head_rows import as_number, read_csv

    if options.layers is None or options.heads is None:
        raise BadArgument(f"layers and heads must be given: the rows of {path} do not have them")
    files = sorted(f for name in FILES for f in path.glob(f"*/{name}")) if path.is_dir() else [path]
    if not files:
        raise BadFile(f"{path} has no folders with {' or '.join(FILES)}")
    tables: dict[str, np.ndarray] = {}
    for file in files:
        header, *lines = read_csv(file)
        if not set(header) <= set(DYNAMIC):
            raise BadFile(f"{file} has the columns {brief(', '.join(header))}, expected some of {', '.join(DYNAMIC)}")
        repeats, remainder = divmod(len(lines), options.layers * options.heads)
        if remainder or not repeats:
            multiple = f"{options.layers} layers × {options.heads} heads = {options.layers * options.heads}"
            raise BadFile(f"{file} has {len(lines)} rows, expected a multiple of {multiple}")
        check_size(file, repeats * len(header), options.layers, options.heads)
        for i, column in enumerate(header):
            cells = [check_number(as_number(row[i]), f"{file}: row {r + 1}", column) for r, row in enumerate(lines)]
            scores = np.array(cells).reshape(repeats, options.layers, options.heads)
            tables[f"{file.absolute().parent.name}, {DYNAMIC[column]}"] = scores
    return average_repeats(tables)


FORMAT = Format("maps", read=read, recognises=recognises, result_name="maps-dynamic", is_folder=True)
