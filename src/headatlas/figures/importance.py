"""F1, the importance grid: a heatmap of layers × heads per function, relation or task."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from headatlas.errors import check_choice
from headatlas.figures import gates
from headatlas.figures.arguments import one_map
from headatlas.figures.figure_names import MARKED, PUBLISHED, STYLES
from headatlas.figures.heatmaps import Heatmaps, Panel, axis_ticks, draw, marks_key, scale_of
from headatlas.figures.picture import Maps, Picture
from headatlas.figures.style import capital, columns
from headatlas.figures.style import palette as palette_of
from headatlas.methods import measures_of
from headatlas.methods._chance import AT_CHANCE, above_chance_text, at_chance, chance, scale_level
from headatlas.results.about import describe_result, subject_dim, unit_of
from headatlas.results.outcomes import outcomes
from headatlas.results.stored_reliability import reliability_notes
from headatlas.tasks.built_in import FUNCTIONS

REQUIRED = "a map over layer and head"
CAPTION = (
    "One heatmap of layers × heads per map, all on one colour scale; a plus at the last tick label means that larger"
    " values are clipped. If a chance level is known, heads at chance are drawn at half colour strength. Framed:"
    " tested heads. Below a title: the map's reliability if it is below 0.8 or unknown, and the outcome of the test."
)


def pictures(maps: Maps, charts: xr.Dataset) -> Iterator[Picture]:
    """Yield a figure of each method's first measure, except for results that are drawn as always and any instead."""
    for method in dict.fromkeys(charts.method.values.tolist()):
        if gates.has_always_any(maps[method]):
            continue
        present = charts.measure.values[charts.method.values == method]
        measure = next(m for m in measures_of(method) if m.name in present)
        draw_grid = partial(importance_grid, maps[method], measure.name)
        yield Picture(f"importance-{method}", draw_grid, f"{measure.meaning} {CAPTION}".strip(), [method])


def importance_grid(
    result: Any, variable: str | None = None, *, palette: str = PUBLISHED, style: str = MARKED
) -> Figure:
    """Draw one heatmap per function of any map, on one colour scale.

    Heads at chance are drawn at half colour strength, tested heads are framed, and the outcome of the test is
    printed below the title.

    Args:
        result: a method's dataset, a DataArray with layer and head, or an array [layer, head] or [map, layer, head].
        variable: the dataset's map over (…, layer, head) to draw (default: the one that the method declares first).
        palette: name of the colours, one of `headatlas.figures.figure_names.PALETTES`.
        style: 'marked', or 'published' for the plain values on the published scale.
    """
    return draw(plan(result, variable, palette, style))


def plan(result: Any, variable: str | None = None, colours: str = PUBLISHED, style: str = MARKED) -> Heatmaps:
    """Plan the grid."""
    used = palette_of(colours)
    check_choice("style", style, STYLES)
    result, name = one_map(result, variable)
    measures = measures_of(str(result.attrs.get("method")))
    label = next((m.label for m in measures if m.name == name), "") or capital(name.replace("_", " "))
    dim = subject_dim(result[name])
    score = result[name].transpose(dim, "layer", "head")
    titles = (
        [str(t) for t in score[dim].values] if dim in score.coords else [f"{dim} {i}" for i in range(score.sizes[dim])]
    )
    functions = [f for f in FUNCTIONS if f in titles]
    order = [titles.index(t) for t in [*functions, *(t for t in titles if t not in functions)]]
    order = [i for i in order if score[i].notnull().any()] or order
    values = score.values[order].astype(np.float64)
    panels = [Panel(titles[i], v) for i, v in zip(order, values, strict=True)]
    if style == MARKED:
        marks = _marks(result, name, titles)
        panels = [replace(panel, **marks[i]) for i, panel in zip(order, panels, strict=True)]
    xticks, yticks = axis_ticks(score.sizes["layer"], score.sizes["head"], every=6, max_ticks=9)
    return Heatmaps(
        heading=describe_result(result),
        panels=panels,
        columns=columns(len(order)),
        xlabel=unit_of(result),
        ylabel="Layer",
        xticks=xticks,
        yticks=yticks,
        scale=scale_of(values, label, used, scale_level(chance(result, name)), style != MARKED),
        legend=[],
        key=marks_key(panels, AT_CHANCE),
    )


def _marks(result: xr.Dataset, name: str, subjects: list[str]) -> list[dict[str, Any]]:
    """Return for every subject the heads at chance, the tested heads, and notes on both."""
    dims = (subject_dim(result[name]), "layer", "head")
    score = result[name].transpose(*dims)
    flags = at_chance(result, name)
    levels = chance(result, name)
    level = (xr.full_like(score, np.nan, float) if levels is None else xr.zeros_like(score, float) + levels).values
    tested = outcomes(result)
    reliability = reliability_notes(result, name)
    marks = []
    for i, subject in enumerate(subjects):
        outcome = tested.get((name, subject))
        dimmed = None if flags is None else flags.transpose(*dims).values[i]
        words = "" if dimmed is None else above_chance_text(score.values[i], level[i], dimmed)
        lines = (words, reliability.get(subject, ""), outcome.text if outcome else "")
        notes = tuple(line for line in lines if line)
        marks.append({"dimmed": dimmed, "framed": outcome.heads if outcome else None, "notes": notes})
    return marks
