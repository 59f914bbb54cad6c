"""All head maps of an atlas side by side, whichever method they are from: what tables, figures and the page compare heads by."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import xarray as xr

from headatlas.errors import BadArgument
from headatlas.results.chance import at_chance, chance

MEASURES: dict[str, tuple[tuple[str, str], ...]] = {
    "probe": (("importance", "function"),),
    "dissociate": (("importance", "function"),),
    "maps": (("score", "relation"), ("suppression", "relation")),
    "gate": (("facilitation", "task"), ("interference", "task"), ("irrelevance", "task")),
    "ablate": (("effect", "task"),),
    "taylor": (("effect", "task"),),
    "ig": (("effect", "task"),),
    "pattern": (("score", "pattern"),),
}
"""What each method says of heads: its variables, and the dimension that names what they are about."""


def overview(maps: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """`score(chart, layer, head)`, with `low` and `high` where a method gives an interval (a bootstrap's, or the range over seeds),
    `chance`, the highest score that chance explains (NaN: not known), and `at_chance`, whether it explains the head's;
    `none_above(chart)`: whether no head of the chart is above chance.

    maps: datasets by method, each with the variables DESIGN names; those of other methods are left out, as are subjects without
    any score. Coordinates of `chart`: `method`, `measure` (importance, facilitation, …) and `subject` (a function, relation, task).
    """
    rows = [row for method, found in maps.items() for row in _rows(method, found)]
    if not rows:
        nothing = np.empty((0, 0, 0))
        dims = ("chart", "layer", "head")
        empty: dict[str, Any] = dict.fromkeys(("score", "low", "high", "chance"), (dims, nothing))
        empty |= {"at_chance": (dims, nothing.astype(bool)), "none_above": ("chart", np.empty(0, bool))}
        return xr.Dataset(
            empty, coords={c: ("chart", np.empty(0, "<U1")) for c in ("chart", "method", "measure", "subject")}
        )
    labels = [row.coords["chart"].item() for row in rows]
    if twice := sorted({label for label in labels if labels.count(label) > 1}):
        raise BadArgument(f"maps has charts of the same name: {', '.join(twice)}")
    charts = xr.concat(rows, "chart", coords=["method", "measure", "subject"], join="outer")
    flags = charts.at_chance == 1
    return charts.assign(at_chance=flags, none_above=(flags | charts.score.isnull()).all(("layer", "head")))


def _rows(method: str, found: xr.Dataset) -> Iterator[xr.Dataset]:
    there = [(m, d) for m, d in MEASURES.get(method, ()) if m in found and {d, "layer", "head"} <= set(found[m].dims)]
    for measure, dim in there:
        flags, level = at_chance(found, measure), chance(found, measure)
        for i, subject in enumerate(found[dim].values.tolist()):
            one = found[measure].isel({dim: i})
            seeds = "seed" in one.dims
            low, high = (
                (one.min("seed"), one.max("seed"))
                if seeds and one.sizes["seed"] > 1
                else (found[n].isel({dim: i}) for n in ("low", "high"))
                if measure == "importance" and {"low", "high"} <= set(found)
                else (xr.full_like(one.mean("seed") if seeds else one, np.nan),) * 2
            )
            score = one.mean("seed") if seeds else one
            if score.notnull().any():
                parts = {"score": score, "low": low, "high": high}
                parts["chance"] = xr.zeros_like(score) + (np.nan if level is None else level.isel({dim: i}))
                parts["at_chance"] = xr.zeros_like(score) if flags is None else flags.isel({dim: i}).astype(float)
                row = xr.Dataset(
                    {n: (("layer", "head"), v.transpose("layer", "head").values) for n, v in parts.items()}
                )
                label = f"{method}: {subject}" + f", {measure}" * (len(MEASURES[method]) > 1)
                names = {"chart": label, "method": method, "measure": measure, "subject": str(subject)}
                yield row.assign_coords(names | {d: found[d].values for d in ("layer", "head")})


def ranks(charts: xr.Dataset) -> xr.DataArray:
    """Place of each head among all, by map: 1 is the highest; ties share the better place; heads at chance and NaN have none."""
    place = _places(charts.score)
    return place.where(~charts.at_chance.transpose(*place.dims))


def _places(score: xr.DataArray) -> xr.DataArray:
    score = score.transpose("chart", "layer", "head")
    flat = score.values.reshape(score.sizes["chart"], score.sizes["layer"] * score.sizes["head"])
    order = np.sort(np.where(np.isnan(flat), -np.inf, flat), axis=-1)
    place = np.array([len(o) - np.searchsorted(o, f, "right") + 1.0 for o, f in zip(order, flat, strict=True)])
    place = place.reshape(flat.shape)
    place[np.isnan(flat)] = np.nan
    return score.copy(data=place.reshape(score.shape))
