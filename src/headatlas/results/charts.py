"""All head maps of an atlas in one dataset, whichever method made them: tables, figures and the page read it."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import xarray as xr

from headatlas.errors import BadArgument
from headatlas.methods import measures_of
from headatlas.methods._chance import at_chance, chance
from headatlas.methods.method import Measure
from headatlas.results.stored_reliability import reliability_of

MAP = ("layer", "head")


def stack_maps(maps: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Stack the maps of several methods into charts. A chart is one method's map of one measure and one subject.

    Args:
        maps: results by method. Unregistered methods and subjects without any score are left out.

    Returns:
        Over (chart, layer, head): `score`; `low` and `high`, the interval of the measure or the range over seeds (NaN
        without one); `chance`, the highest score that chance explains (NaN if unknown); `at_chance`, whether chance
        explains the score of the head. Over (chart): `none_above`, whether no head is above chance;
        `reliability` (NaN: unknown); and the coordinates `method`, `measure` (importance, facilitation, …) and
        `subject` (a function, relation or task).
    """
    rows = [row for method, result in maps.items() for row in _charts_of(method, result)]
    if not rows:
        dims = ("chart", *MAP)
        no_numbers = np.empty((0, 0, 0))
        empty: dict[str, Any] = dict.fromkeys(("score", "low", "high", "chance"), (dims, no_numbers))
        empty |= {"at_chance": (dims, no_numbers.astype(bool)), "none_above": ("chart", np.empty(0, bool))}
        empty["reliability"] = ("chart", np.empty(0))
        names = ("chart", "method", "measure", "subject")
        return xr.Dataset(empty, coords={c: ("chart", np.empty(0, "<U1")) for c in names})
    labels = [row.coords["chart"].item() for row in rows]
    if repeated := sorted({label for label in labels if labels.count(label) > 1}):
        raise BadArgument(f"maps has several charts of the same name: {', '.join(repeated)}")
    charts = xr.concat(rows, "chart", coords=["method", "measure", "subject"], join="outer")
    # Joining maps of different sizes fills in NaN, which makes the flags numbers.
    flags = charts.at_chance == 1
    return charts.assign(at_chance=flags, none_above=(flags | charts.score.isnull()).all(MAP))


def _charts_of(method: str, result: xr.Dataset) -> Iterator[xr.Dataset]:
    """Yield the charts of one result: one for each measure and subject."""
    result = result.assign_attrs(method=method)
    measures = measures_of(method)
    for measure in measures:
        dim = measure.over
        if measure.name not in result or not {dim, *MAP} <= set(result[measure.name].dims):
            continue
        parts = _parts(result, measure)
        reliability = reliability_of(result, measure, measures)
        for i, subject in enumerate(result[dim].values.tolist()):
            selected = {n: v.isel({dim: i}) if dim in v.dims else v for n, v in parts.items()}
            if selected["score"].notnull().any():
                row = xr.Dataset({n: (MAP, v.transpose(*MAP).values) for n, v in selected.items()})
                row["reliability"] = reliability[str(subject)]
                label = f"{method}: {subject}" + f", {measure.name}" * (len(measures) > 1)
                names = {"chart": label, "method": method, "measure": measure.name, "subject": str(subject)}
                yield row.assign_coords(names | {d: result[d].values for d in MAP})


def _parts(result: xr.Dataset, measure: Measure) -> dict[str, xr.DataArray]:
    """Return score, interval, chance level and flags of a measure over (subject, layer, head), averaged over seeds."""
    values = result[measure.name]
    repeats = [d for d in values.dims if d not in (measure.over, *MAP)]
    score = values.mean(repeats) if repeats else values
    if repeats and any(values.sizes[d] > 1 for d in repeats):
        low, high = values.min(repeats), values.max(repeats)
    elif measure.low in result and measure.high in result:
        low, high = result[measure.low], result[measure.high]
    else:
        low = high = xr.full_like(score, np.nan)
    level = chance(result, measure.name)
    flags = at_chance(result, measure.name)
    if flags is not None and repeats:
        # Above chance in one seed is enough.
        flags = flags.all(repeats)
    return {
        "score": score,
        "low": low,
        "high": high,
        "chance": xr.zeros_like(score) + (np.nan if level is None else level),
        "at_chance": xr.zeros_like(score) if flags is None else flags.astype(float),
    }


def head_ranks(charts: xr.Dataset) -> xr.DataArray:
    """Rank the heads of each chart [chart, layer, head]: 1 is the highest, ties share a rank, NaN means at chance."""
    score = charts.score.transpose("chart", *MAP)
    flat = score.values.reshape(score.sizes["chart"], score.sizes["layer"] * score.sizes["head"])
    order = np.sort(np.where(np.isnan(flat), -np.inf, flat), axis=-1)
    rank = np.array([len(o) - np.searchsorted(o, f, "right") + 1.0 for o, f in zip(order, flat, strict=True)])
    rank = rank.reshape(flat.shape)
    rank[np.isnan(flat)] = np.nan
    return score.copy(data=rank.reshape(score.shape)).where(~charts.at_chance.transpose(*score.dims))
