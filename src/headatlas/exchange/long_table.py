"""csv, json, parquet: a row for every chart, layer and head.

Columns are layer, head (or kv_head) and score; method, subject, measure, … name the table; low and high are intervals.
Numbers are written with enough digits to read the same number back.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headatlas.errors import BadFile, MissingExtra, brief, one_line
from headatlas.exchange.format import Format, Source

if TYPE_CHECKING:
    from headatlas.exchange.checked_tables import ImportOptions, Tables
    from headatlas.exchange.export_request import ExportRequest, Files


def _ends_in(suffix: str, source: Source) -> bool:
    return not source.path.is_dir() and source.path.suffix.lower() == suffix


def recognises_csv(source: Source) -> bool:
    return _ends_in(".csv", source)


def recognises_parquet(source: Source) -> bool:
    return _ends_in(".parquet", source)


def recognises_json(source: Source) -> bool:
    """Return whether rows name their table; without names, they are a ranking."""
    first = source.json[0] if isinstance(source.json, list) and source.json else None
    if not isinstance(first, dict):
        return False
    return not {"layer", "layer_idx"}.isdisjoint(first) and not {"method", "subject", "measure"}.isdisjoint(first)


def read(path: Path, options: ImportOptions) -> Tables:
    """Read a row for every table, layer and head, from a file that ends in .csv, .json or .parquet."""
    from headatlas.exchange.checked_tables import read_json, value_at_key
    from headatlas.exchange.head_rows import Row, read_csv, tables_of_rows

    if path.suffix.lower() == ".parquet":
        rows = _read_parquet(path)
    elif path.suffix.lower() == ".json":
        rows = value_at_key(read_json(path), options.key, path)
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise BadFile(f"{path} holds {brief(rows)}, expected a list of objects")
    else:
        header, *lines = read_csv(path)
        rows = [dict(zip(header, line, strict=True)) for line in lines]
    return tables_of_rows([Row(cells, f"{path}: row {i + 1}") for i, cells in enumerate(rows)], path, options)


def _read_parquet(file: Path) -> list[dict[str, Any]]:
    """Read rows. NaN is read as missing; pandas writes missing numbers that way."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as e:
        raise MissingExtra("parquet files need pyarrow: pip install 'headatlas[parquet]'") from e
    try:
        rows = parquet.read_table(file).to_pylist()
    except (ArrowException, OSError) as e:
        raise BadFile(f"cannot read {file} as parquet: {one_line(e)}") from e
    return [{name: None if cell != cell else cell for name, cell in row.items()} for row in rows]


def _rows(request: ExportRequest) -> list[dict[str, Any]]:
    """Make a row for every chart, layer and head; None for a missing number."""
    import numpy as np

    from headatlas.exchange.export_request import MAP, finite_or_none
    from headatlas.results.charts import head_ranks

    charts = request.charts
    head_column = "kv_head" if request.per_group else "head"
    numbers = {name: charts[name].transpose("chart", *MAP).values for name in ("score", "low", "high")}
    rank = head_ranks(charts).transpose("chart", *MAP).values
    names = ("method", "measure", "subject")
    rows = []
    for i, values in enumerate(zip(*(charts[name].values.tolist() for name in names), strict=True)):
        for layer, head in np.ndindex(rank.shape[1:]):
            row = dict(zip(names, values, strict=True)) | {"layer": layer, head_column: head}
            row |= {name: finite_or_none(array[i, layer, head]) for name, array in numbers.items()}
            place = rank[i, layer, head]
            rows.append(row | {"rank": None if np.isnan(place) else int(place)})
    return rows


def _shape(request: ExportRequest) -> str:
    sizes = request.charts.sizes
    units = "KV heads" if request.per_group else "heads"
    return f"{sizes['chart']} charts of {sizes['layer']} layers × {sizes['head']} {units}"


def write_csv(request: ExportRequest) -> Files:
    """Write rows; missing numbers are empty cells."""
    from headatlas.exchange.export_request import Files, utf8_bytes

    rows = _rows(request)
    text = io.StringIO()
    table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return Files({"": utf8_bytes(text.getvalue())}, _shape(request))


def write_json(request: ExportRequest) -> Files:
    """Write a list of objects, one per line; missing numbers are null."""
    from headatlas.exchange.export_request import Files, utf8_bytes

    lines = ",\n".join(json.dumps(row, ensure_ascii=False, allow_nan=False) for row in _rows(request))
    return Files({"": utf8_bytes(f"[\n{lines}\n]\n")}, _shape(request))


def write_parquet(request: ExportRequest) -> Files:
    """Write rows; missing numbers are null."""
    from headatlas.exchange.export_request import Files

    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as e:
        raise MissingExtra("parquet files need pyarrow: pip install 'headatlas[parquet]'") from e
    rows = _rows(request)
    texts = [pyarrow.string()] * 3
    numbers = [*[pyarrow.int64()] * 2, *[pyarrow.float64()] * 3, pyarrow.int64()]
    schema = pyarrow.schema(list(zip(rows[0], [*texts, *numbers], strict=True)))
    buffer = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), buffer)
    return Files({"": buffer.getvalue().to_pybytes()}, _shape(request))


CSV = Format("csv", read=read, recognises=recognises_csv, write=write_csv, ending=".csv")
JSON = Format("json", read=read, recognises=recognises_json, import_options=("key",), write=write_json, ending=".json")
PARQUET = Format("parquet", read=read, recognises=recognises_parquet, write=write_parquet, ending=".parquet")
