"""The rows that a result was made from, in its file."""

import json

import numpy as np
import xarray as xr

from headatlas.tasks.used import Used

ROW, SHOTS = "used_row", "used_shots"


def with_used_rows(result: xr.Dataset, used: Used) -> xr.Dataset:
    """Record rows as the coordinate `used_row`, for attributes are limited to 64 kB, and shots as an attribute."""
    rows = np.array(sorted(used.rows), dtype=np.uint64)
    about = {"long_name": "hashes of the rows that the map was made from"}
    recorded = result.assign_coords({ROW: (ROW, rows, about)})
    return recorded.assign_attrs({SHOTS: json.dumps(dict(used.shots))})


def used_rows(result: xr.Dataset) -> Used | None:
    """The rows that a result was made from; None where they are not recorded."""
    if SHOTS not in result.attrs or ROW not in result.coords:
        return None
    return Used(frozenset(result[ROW].values.tolist()), json.loads(result.attrs[SHOTS]))
