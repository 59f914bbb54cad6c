"""F1, the importance grid: a heatmap of layers × heads for every function, relation or task."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from headatlas.figures import gates
from headatlas.figures.arguments import one_map
from headatlas.figures.heatmaps import Heatmaps, Panel, axis_ticks, draw, scale_of
from headatlas.figures.names import PUBLISHED
from headatlas.figures.picture import Maps, Picture
from headatlas.figures.style import capital, columns, palette
from headatlas.methods import measures_of
from headatlas.methods._chance import NONE_ABOVE, above_chance, chance, highest_level, level_in_words, none_above
from headatlas.results.about import about, subject_dim, unit
from headatlas.tasks.names import FUNCTIONS

NEEDS = "a map over layer and head"
SAYS = (
    "One heatmap of layers × heads each; where the last label of the colours has a plus, larger values are clipped."
    " Where a chance level is known, heads at chance are drawn as 0, and maps without a head above it are grey."
)


def pictures(maps: Maps, charts: xr.Dataset, colours: str) -> Iterator[Picture]:
    """One of each method's first measure. Maps that are drawn as always and any, which show more, are left out."""
    for method in dict.fromkeys(charts.method.values.tolist()):
        if gates.has_always_any(maps[method]):
            continue
        drawn = charts.measure.values[charts.method.values == method]
        measure = next(m for m in measures_of(method) if m.name in drawn)
        draw_it = partial(importance_grid, maps[method], measure.name, palette=colours)
        yield Picture(f"importance-{method}", draw_it, f"{measure.meaning} {SAYS}".strip(), [method])


def importance_grid(result: Any, variable: str | None = None, *, palette: str = PUBLISHED) -> Figure:
    """One heatmap per function of any map, on one colour scale.

    result: a method's dataset, a DataArray with layer and head, or an array [layer, head] or [something, layer, head].
    variable: which of a dataset's maps over (…, layer, head); without it, what the method declares first.
    Heads at chance are drawn as 0. A function, relation or task without any head above chance, or whose heads were not
    proven, has a grey panel, which says so.
    """
    return draw(plan(result, variable, palette))


def plan(result: Any, variable: str | None = None, colours: str = PUBLISHED) -> Heatmaps:
    """What the grid shows."""
    used = palette(colours)
    result, name = one_map(result, variable)
    measures = measures_of(str(result.attrs.get("method")))
    label = next((m.label for m in measures if m.name == name), "") or capital(name.replace("_", " "))
    dim = subject_dim(result[name])
    score = result[name].transpose(dim, "layer", "head")
    titles = (
        [str(t) for t in score[dim].values] if dim in score.coords else [f"{dim} {i}" for i in range(score.sizes[dim])]
    )
    known = [f for f in FUNCTIONS if f in titles]
    order = [titles.index(t) for t in [*known, *(t for t in titles if t not in known)]]
    order = [i for i in order if score[i].notnull().any()] or order
    raw, values = (
        s.transpose(*score.dims).values[order].astype(np.float64) for s in (score, above_chance(result, name))
    )
    why, notes = _nothing(result, name), _levels(result, name)
    shown = [i for i, o in enumerate(order) if not why[o]]
    level = highest_level(result, name)
    xticks, yticks = axis_ticks(score.sizes["layer"], score.sizes["head"], every=6, most=9)
    return Heatmaps(
        heading=about(result),
        panels=[Panel(titles[i], v, why[i], "" if why[i] else notes[i]) for i, v in zip(order, values, strict=True)],
        columns=columns(len(order)),
        xlabel=unit(result),
        ylabel="Layer",
        xticks=xticks,
        yticks=yticks,
        scale=scale_of(raw[shown], label, used.sequential, used.diverging, level) if shown else None,
        legend=[],
    )


def _nothing(result: xr.Dataset, name: str) -> list[str]:
    """Of every subject: why its panel is empty."""
    none = none_above(result, name)
    if none is None:
        return [""] * result.sizes[subject_dim(result[name])]
    level = chance(result, name)
    texts = []
    for i, empty in enumerate(none.values):
        one = result[name].isel({none.dims[0]: i})
        words = "" if level is None else level_in_words(level.isel({none.dims[0]: i}))
        text = f"{NONE_ABOVE}\nbest {float(one.max()):.2g}\n{words}" if words else NONE_ABOVE
        texts.append("" if not empty else str(result.verdict.values[i]) if "verdict" in result else text)
    return texts


def _levels(result: xr.Dataset, name: str) -> list[str]:
    """Of every subject: its chance level in words."""
    level, dim = chance(result, name), subject_dim(result[name])
    if level is None:
        return [""] * result.sizes[dim]
    return [level_in_words(level.isel({dim: i})) for i in range(result.sizes[dim])]
