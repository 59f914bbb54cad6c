"""What a user wants drawn, as the figures take it."""

from typing import Any

import numpy as np
import xarray as xr

from headatlas.errors import BadArgument, brief
from headatlas.results.charts import MEASURES

SUBJECTS = ("function", "relation", "task", "pattern")
USUAL = ("importance", "score", "effect")
EXPECTED = "a result such as atlas['maps'], a labelled array with layer and head, or an array [layer, head]"


def one_map(found: Any, variable: str | None) -> tuple[xr.Dataset, str]:
    """A dataset, and which of its variables is over (something, layer, head), seeds averaged.

    found: a dataset, of which `variable` is taken, or the first that can be; a DataArray; or anything numpy makes an array of.
    """
    dataset = found if isinstance(found, xr.Dataset) else _labelled(found)
    maps = {
        str(n): v.mean("seed") if "seed" in v.dims else v
        for n, v in dataset.data_vars.items()
        if v.dtype.kind in "fiub"
    }
    maps = {n: v for n, v in maps.items() if {"layer", "head"} <= set(v.dims) and v.ndim in (2, 3)}
    first = MEASURES.get(str(dataset.attrs.get("method")), ((None, ""),))[0][0]
    name = variable or next((n for n in (first, *USUAL, *maps) if n in maps), None)
    if name not in maps:
        raise BadArgument(
            f"variable is {brief(variable)}, expected a map over (something, layer, head); here are: {', '.join(maps) or 'none'}"
        )
    score = maps[name]
    if score.ndim == 2:
        subjects = [str(score[c].item()) for c in SUBJECTS if c in score.coords and score[c].ndim == 0]
        score = score.drop_vars([c for c in score.coords if c not in ("layer", "head")])
        score = score.expand_dims(map=[subjects[0] if subjects else name])
    others = {n: v for n, v in dataset.data_vars.items() if n != name and ("map" not in score.dims or v.ndim == 0)}
    return xr.Dataset({**others, name: score}, attrs=dataset.attrs), name


def _labelled(found: Any) -> xr.Dataset:
    if not isinstance(found, xr.DataArray):
        try:
            values = np.asarray(found)
        except (TypeError, ValueError, RuntimeError) as e:
            raise BadArgument(f"found is {brief(found)}, expected {EXPECTED}") from e
        if values.dtype.kind not in "fiub":
            raise BadArgument(f"found is {brief(found)}, expected {EXPECTED}")
        found = xr.DataArray(values)
    if not {"layer", "head"} & set(found.dims) and found.ndim in (
        2,
        3,
    ):  # as they come: [layer, head] or [map, layer, head]
        found = found.rename(dict(zip(found.dims[::-1], ("head", "layer", "map"), strict=False)))
    rest = [d for d in found.dims if d not in ("layer", "head", "seed")]
    if not {"layer", "head"} <= set(found.dims) or len(rest) > 1 or 0 in found.shape:
        shape = ", ".join(f"{d}: {n}" for d, n in found.sizes.items())
        raise BadArgument(f"found has the shape ({shape}), expected layers × heads, or one more dimension before them")
    return found.to_dataset(name=str(found.name or "score")).assign_attrs(found.attrs)
