"""F1, the importance grid: a heatmap of layers × heads for every function, relation or task."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from headatlas.errors import BadArgument
from headatlas.figures.given import one_map
from headatlas.figures.heatmaps import Heatmaps, Panel, axis_ticks, draw, scale_of
from headatlas.figures.style import PUBLISHED, columns, palette
from headatlas.headmap.about import about, subject_dim, unit
from headatlas.headmap.overview import MEASURES
from headatlas.tasks.names import FUNCTIONS

LABELS = {"importance": "Heads Importance", "score": "Score", "effect": "log P lost without the head"}


def importance_grid(found: Any, variable: str | None = None, *, palette: str = PUBLISHED) -> Figure:
    """One heatmap per function of any map, on one colour scale.

    found: a method's dataset, a DataArray with layer and head, or an array [layer, head] or [something, layer, head].
    variable: which of a dataset's maps over (…, layer, head); without it, the method's first: importance, score or effect.
    A function that `dissociate` found no heads of its own for has an empty panel, which says why.
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
    values = score.values[order].astype(np.float64)
    why = [""] * len(titles)
    if {"verdict", "proven"} <= set(found):
        why = ["" if p else str(v) for v, p in zip(found.verdict.values, found.proven.values, strict=True)]
    shown = [i for i, o in enumerate(order) if not why[o]]
    xticks, yticks = axis_ticks(score.sizes["layer"], score.sizes["head"], every=6, most=9)
    return Heatmaps(
        heading=about(found),
        panels=[Panel(titles[i], v, why[i]) for i, v in zip(order, values, strict=True)],
        columns=columns(len(order)),
        xlabel=unit(found),
        ylabel="Layer",
        xticks=xticks,
        yticks=yticks,
        scale=scale_of(
            values[shown] if shown else values,
            LABELS.get(name, name.replace("_", " ")),
            used.sequential,
            used.diverging,
        ),
        legend=[],
    )
