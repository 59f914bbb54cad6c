"""Record in a result's file which rows of tasks the result was made from."""

import json

import numpy as np
import xarray as xr

from headatlas.tasks.used import Used

ROW = "used_row"
SHOTS = "used_shots"


def with_recorded_rows(result: xr.Dataset, used: Used) -> xr.Dataset:
    """Record the rows as the coordinate `used_row`, and the few-shot examples as the attribute `used_shots`."""
    # A coordinate, because attributes are limited to 64 kB.
    rows = np.array(sorted(used.rows), dtype=np.uint64)
    attributes = {"long_name": "hashes of the rows that the map was made from"}
    return result.assign_coords({ROW: (ROW, rows, attributes)}).assign_attrs({SHOTS: json.dumps(dict(used.shots))})


def recorded_rows(result: xr.Dataset) -> Used | None:
    """Return the rows that a result was made from; None if they are not recorded."""
    if SHOTS not in result.attrs or ROW not in result.coords:
        return None
    return Used(frozenset(result[ROW].values.tolist()), json.loads(result.attrs[SHOTS]))
