"""F1, the importance grid: a heatmap of layers × heads for every function, relation or task."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from headatlas.errors import BadArgument
from headatlas.figures.given import one_map
from headatlas.figures.heatmaps import Heatmaps, Panel, axis_ticks, draw, scale_of
from headatlas.figures.style import PUBLISHED, columns, palette
from headatlas.results.about import about, subject_dim, unit
from headatlas.results.chance import NONE_ABOVE, above_chance, chance, highest_level, level_in_words, none_above
from headatlas.results.charts import MEASURES
from headatlas.tasks.names import FUNCTIONS

LABELS = {"importance": "Heads Importance", "score": "Score", "effect": "log P lost without the head"}


def importance_grid(found: Any, variable: str | None = None, *, palette: str = PUBLISHED) -> Figure:
    """One heatmap per function of any map, on one colour scale.

    found: a method's dataset, a DataArray with layer and head, or an array [layer, head] or [something, layer, head].
    variable: which of a dataset's maps over (…, layer, head); without it, the method's first: importance, score or effect.
    Heads at chance are drawn as 0. A function, relation or task without any head above chance has a grey panel, which says so;
    one that `dissociate` found no heads of its own for, too.
    """
    return draw(plan(*one_map(found, variable), palette))


def plan(found: xr.Dataset, variable: str | None = None, colours: str = PUBLISHED) -> Heatmaps:
    """What the grid shows."""
    used = palette(colours)
    there = [str(n) for n, v in found.data_vars.items() if {"layer", "head"} <= set(v.dims) and v.ndim == 3]
    first = MEASURES.get(str(found.attrs.get("method")), ((None, ""),))[0][0]
    name = variable or next((n for n in (first, *LABELS) if n in there), None)
    if name not in there:
        raise BadArgument(
            f"variable is {variable!r}, expected a map over (something, layer, head); here are: {', '.join(there) or 'none'}"
        )
    dim = subject_dim(found[name])
    score = found[name].transpose(dim, "layer", "head")
    titles = (
        [str(t) for t in score[dim].values] if dim in score.coords else [f"{dim} {i}" for i in range(score.sizes[dim])]
    )
    known = [f for f in FUNCTIONS if f in titles]
    order = [titles.index(t) for t in [*known, *(t for t in titles if t not in known)]]
    order = [i for i in order if score[i].notnull().any()] or order
    raw, values = (
        s.transpose(*score.dims).values[order].astype(np.float64) for s in (score, above_chance(found, name))
    )
    why, notes = _nothing(found, name), _levels(found, name)
    shown = [i for i, o in enumerate(order) if not why[o]]
    xticks, yticks = axis_ticks(score.sizes["layer"], score.sizes["head"], every=6, most=9)
    return Heatmaps(
        heading=about(found),
        panels=[Panel(titles[i], v, why[i], "" if why[i] else notes[i]) for i, v in zip(order, values, strict=True)],
        columns=columns(len(order)),
        xlabel=unit(found),
        ylabel="Layer",
        xticks=xticks,
        yticks=yticks,
        scale=scale_of(
            raw[shown],
            LABELS.get(name, name.replace("_", " ")),
            used.sequential,
            used.diverging,
            highest_level(found, name),
        )
        if shown
        else None,
        legend=[],
    )


def _nothing(found: xr.Dataset, name: str) -> list[str]:
    """Of every subject: why its panel is empty."""
    none = none_above(found, name)
    if none is None:
        return [""] * found.sizes[subject_dim(found[name])]
    level = chance(found, name)
    texts = []
    for i, empty in enumerate(none.values):
        one = found[name].isel({none.dims[0]: i})
        words = "" if level is None else level_in_words(level.isel({none.dims[0]: i}))
        said = f"{NONE_ABOVE}\nbest {float(one.max()):.2g}\n{words}" if words else NONE_ABOVE
        texts.append("" if not empty else str(found.verdict.values[i]) if "verdict" in found else said)
    return texts


def _levels(found: xr.Dataset, name: str) -> list[str]:
    """Of every subject: its chance level in words."""
    level, dim = chance(found, name), subject_dim(found[name])
    if level is None:
        return [""] * found.sizes[dim]
    return [level_in_words(level.isel({dim: i})) for i in range(found.sizes[dim])]
