"""npy: an array [layer, head] or [table, layer, head]; NaN marks a missing head."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headatlas.errors import BadArgument, BadFile, check_unique
from headatlas.exchange.format import Format, Source

if TYPE_CHECKING:
    from headatlas.exchange.checked_tables import ImportOptions, Tables


def recognises(source: Source) -> bool:
    return not source.path.is_dir() and source.path.suffix.lower() == ".npy"


def read(path: Path, options: ImportOptions) -> Tables:
    """Read an array; NaN marks a missing head."""
    import numpy as np

    from headatlas.exchange.checked_tables import Tables, check_same_shape, check_size

    values = np.load(path, mmap_mode="r", allow_pickle=False)
    if values.dtype.kind not in "biuf" or values.ndim not in (2, 3) or 0 in values.shape:
        expected = "numbers [layer, head] or [table, layer, head]"
        raise BadFile(f"{path} holds {values.dtype} of the shape {values.shape}, expected {expected}")
    check_size(path, values.size // (values.shape[-2] * values.shape[-1]), *values.shape[-2:])
    scores = np.array(values, np.float64).reshape(-1, *values.shape[-2:])
    if np.isinf(scores).any():
        table, layer, head = (int(i) for i in np.argwhere(np.isinf(scores))[0])
        raise BadFile(f"{path}: table {table}, layer {layer}, head {head} is infinite")
    default = [options.table_name] if len(scores) == 1 else [f"table {i}" for i in range(len(scores))]
    names = options.names or default
    if len(names) != len(scores):
        raise BadArgument(f"names has {len(names)} names, but {path} has {len(scores)} tables")
    check_unique("names", names)
    tables = dict(zip(names, scores, strict=True))
    check_same_shape(tables, path, options.layers, options.heads)
    return Tables(tables)


FORMAT = Format("npy", read=read, recognises=recognises, import_options=("names",))
