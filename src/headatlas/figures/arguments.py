"""Check what users pass to figures, and turn arrays into datasets."""

from typing import Any

import numpy as np
import xarray as xr

from headatlas.errors import BadArgument, brief
from headatlas.methods import measures_of, methods

# Variables that are drawn if the method declares none.
USUAL_VARIABLES = ("importance", "score", "contribution")
EXPECTED = "a result of a method, a labelled array with layer and head, or an array [layer, head]"


def check_dataset(result: Any, required: str) -> None:
    """Check that a result is a dataset, before its variables are read. required: what the figure needs, in words."""
    if not isinstance(result, xr.Dataset):
        raise BadArgument(f"result is {brief(result)}, expected an xarray.Dataset with {required}")


def missing_error(result: xr.Dataset, names: tuple[str, ...], required: str) -> BadArgument:
    """Return the error for a dataset that lacks some of the variables that a figure needs."""
    missing = [n for n in names if n not in result.variables] or ["such dimensions"]
    present = ", ".join(map(str, result.data_vars)) or "nothing"
    return BadArgument(f"result has no {', '.join(missing)}: the figure needs {required}; the result has {present}")


def one_map(result: Any, variable: str | None) -> tuple[xr.Dataset, str]:
    """Return a dataset and the name of its map over (something, layer, head), averaged over seeds.

    result: a dataset, a DataArray, or anything that numpy turns into an array. variable: name of the map (default: the
    first that can be drawn).
    """
    dataset = result if isinstance(result, xr.Dataset) else _as_dataset(result)
    maps = {
        str(n): v.mean("seed") if "seed" in v.dims else v
        for n, v in dataset.data_vars.items()
        if v.dtype.kind in "fiub"
    }
    maps = {n: v for n, v in maps.items() if {"layer", "head"} <= set(v.dims) and v.ndim in (2, 3)}
    measured = [m.name for m in measures_of(str(dataset.attrs.get("method")))]
    name = variable or next((n for n in (*measured, *USUAL_VARIABLES, *maps) if n in maps), None)
    if name not in maps:
        choices = ", ".join(maps) or "none"
        raise BadArgument(f"variable is {brief(variable)}, expected a map over layer and head; the maps are: {choices}")
    score = maps[name]
    if score.ndim == 2:
        subjects = [str(score[c].item()) for c in _subject_dims() if c in score.coords and score[c].ndim == 0]
        score = score.drop_vars([c for c in score.coords if c not in ("layer", "head")])
        score = score.expand_dims(map=[subjects[0] if subjects else name])
    others = {n: v for n, v in dataset.data_vars.items() if n != name and ("map" not in score.dims or v.ndim == 0)}
    return xr.Dataset({**others, name: score}, attrs=dataset.attrs), name


def _subject_dims() -> list[str]:
    """Return the subject dimensions of all methods: function, relation, task, …"""
    return list(dict.fromkeys(m.over for method in methods().values() for m in method.measures))


def _as_dataset(values: Any) -> xr.Dataset:
    if not isinstance(values, xr.DataArray):
        try:
            array = np.asarray(values)
        except (TypeError, ValueError, RuntimeError) as e:
            raise BadArgument(f"result is {brief(values)}, expected {EXPECTED}") from e
        if array.dtype.kind not in "fiub":
            raise BadArgument(f"result is {brief(values)}, expected {EXPECTED}")
        values = xr.DataArray(array)
    # Without named dimensions, arrays are [layer, head] or [map, layer, head].
    if not {"layer", "head"} & set(values.dims) and values.ndim in (2, 3):
        values = values.rename(dict(zip(values.dims[::-1], ("head", "layer", "map"), strict=False)))
    rest = [d for d in values.dims if d not in ("layer", "head", "seed")]
    if not {"layer", "head"} <= set(values.dims) or len(rest) > 1 or 0 in values.shape:
        shape = ", ".join(f"{d}: {n}" for d, n in values.sizes.items())
        raise BadArgument(f"result has the shape ({shape}), expected layers × heads, or one more dimension before them")
    return values.to_dataset(name=str(values.name or "score")).assign_attrs(values.attrs)
