"""All head maps of an atlas side by side, whichever method they are from: tables, figures and the page use them."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import xarray as xr

from headatlas.errors import BadArgument
from headatlas.methods import measures_of
from headatlas.methods._chance import at_chance, chance
from headatlas.methods.method import Measure

MAP = ("layer", "head")


def stack_maps(maps: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Scores of all heads in every chart: a map of one method for one measure and one subject.

    Over (chart, layer, head): `score`; `low` and `high`, the measure's interval or the range over seeds (NaN: none);
    `chance`, the highest score that chance explains (NaN: not known); `at_chance`, whether it explains the head's.
    Over (chart): `none_above`, whether no head is above chance; and the coordinates `method`, `measure` (importance,
    facilitation, …) and `subject` (a function, relation, task).

    maps: datasets by method. Methods that are not registered are left out, as are subjects without any score.
    """
    rows = [row for method, result in maps.items() for row in _rows(method, result)]
    if not rows:
        nothing, dims = np.empty((0, 0, 0)), ("chart", *MAP)
        empty: dict[str, Any] = dict.fromkeys(("score", "low", "high", "chance"), (dims, nothing))
        empty |= {"at_chance": (dims, nothing.astype(bool)), "none_above": ("chart", np.empty(0, bool))}
        names = ("chart", "method", "measure", "subject")
        return xr.Dataset(empty, coords={c: ("chart", np.empty(0, "<U1")) for c in names})
    labels = [row.coords["chart"].item() for row in rows]
    if twice := sorted({label for label in labels if labels.count(label) > 1}):
        raise BadArgument(f"maps has charts of the same name: {', '.join(twice)}")
    charts = xr.concat(rows, "chart", coords=["method", "measure", "subject"], join="outer")
    flags = charts.at_chance == 1
    return charts.assign(at_chance=flags, none_above=(flags | charts.score.isnull()).all(MAP))


def _rows(method: str, result: xr.Dataset) -> Iterator[xr.Dataset]:
    result, measures = result.assign_attrs(method=method), measures_of(method)
    for measure in measures:
        dim = measure.over
        if measure.name not in result or not {dim, *MAP} <= set(result[measure.name].dims):
            continue
        parts = _parts(result, measure)
        for i, subject in enumerate(result[dim].values.tolist()):
            one = {n: v.isel({dim: i}) if dim in v.dims else v for n, v in parts.items()}
            if one["score"].notnull().any():
                row = xr.Dataset({n: (MAP, v.transpose(*MAP).values) for n, v in one.items()})
                label = f"{method}: {subject}" + f", {measure.name}" * (len(measures) > 1)
                names = {"chart": label, "method": method, "measure": measure.name, "subject": str(subject)}
                yield row.assign_coords(names | {d: result[d].values for d in MAP})


def _parts(result: xr.Dataset, measure: Measure) -> dict[str, xr.DataArray]:
    """Score, interval, chance level and flags of a measure over (subject, layer, head); seeds averaged."""
    values = result[measure.name]
    repeats = [d for d in values.dims if d not in (measure.over, *MAP)]
    score = values.mean(repeats) if repeats else values
    if repeats and any(values.sizes[d] > 1 for d in repeats):
        low, high = values.min(repeats), values.max(repeats)
    elif measure.low in result and measure.high in result:
        low, high = result[measure.low], result[measure.high]
    else:
        low = high = xr.full_like(score, np.nan)
    flags, level = at_chance(result, measure.name), chance(result, measure.name)
    if flags is not None and repeats:
        flags = flags.all(repeats)
    return {
        "score": score,
        "low": low,
        "high": high,
        "chance": xr.zeros_like(score) + (np.nan if level is None else level),
        "at_chance": xr.zeros_like(score) if flags is None else flags.astype(float),
    }


def head_ranks(charts: xr.Dataset) -> xr.DataArray:
    """Rank of each head in each chart: 1 is the highest; ties share the better rank; NaN for heads at chance."""
    score = charts.score.transpose("chart", *MAP)
    flat = score.values.reshape(score.sizes["chart"], score.sizes["layer"] * score.sizes["head"])
    order = np.sort(np.where(np.isnan(flat), -np.inf, flat), axis=-1)
    place = np.array([len(o) - np.searchsorted(o, f, "right") + 1.0 for o, f in zip(order, flat, strict=True)])
    place = place.reshape(flat.shape)
    place[np.isnan(flat)] = np.nan
    return score.copy(data=place.reshape(score.shape)).where(~charts.at_chance.transpose(*score.dims))
