"""F2, the category map: which categories of relations every head belongs to."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from headatlas.errors import check_choice
from headatlas.figures.arguments import check_dataset, missing_error
from headatlas.figures.figure_names import MARKED, PUBLISHED, STYLES
from headatlas.figures.picture import Maps, Picture, picture_per_result
from headatlas.figures.style import axes_at, heading, styled, ticks, wrap
from headatlas.figures.style import palette as palette_of
from headatlas.methods._chance import members_above_chance, stored_members
from headatlas.results.about import describe_result, unit_of
from headatlas.tasks.relations import CATEGORIES

UNCLASSIFIED = "Unclassified"
DIMS = {"category", "layer", "head"}
MAX_PANELS_PER_ROW = 6
REQUIRED = "member(category, layer, head) with the coordinate category_name"
CAPTION = (
    "Heads by the categories of relations they implement, from their parameters alone: a head belongs to one when its"
    " score or suppression for one of the category's relations reaches the threshold and is above chance."
)


def pictures(maps: Maps, charts: xr.Dataset) -> Iterator[Picture]:
    """Yield the figure of every result with categories."""
    return picture_per_result("categories", maps, has_categories, category_map, CAPTION)


def has_categories(result: xr.Dataset) -> bool:
    """Return whether a result has the categories that heads are members of."""
    member = stored_members(result)
    return member is not None and set(member.dims) == DIMS and "category_name" in result.coords


@dataclass(frozen=True)
class CategoryMap:
    """A planned figure. panels: title and class of each head [layer, head], −1 for missing heads."""

    heading: str
    panels: list[tuple[str, np.ndarray]]
    classes: list[str]
    colours: list[str]
    legend: list[int]  # order of classes
    xlabel: str
    ylabel: str
    xticks: list[int]
    yticks: list[int]


def category_map(result: xr.Dataset, *, palette: str = PUBLISHED, style: str = MARKED) -> Figure:
    """Draw all categories in one panel, then one panel per category. Needs `member(category, layer, head)`.

    style: 'marked' leaves heads uncoloured whose scores are at chance; 'published' colours them too.
    """
    check_dataset(result, REQUIRED)
    return draw(plan(result, palette, style))


def plan(result: xr.Dataset, colours: str = PUBLISHED, style: str = MARKED) -> CategoryMap:
    """Plan the map."""
    used = palette_of(colours)
    check_choice("style", style, STYLES)
    belongs = stored_members(result)
    if belongs is None or not has_categories(result):
        raise missing_error(result, ("category_name",), REQUIRED)
    listed = [str(n) for n in result.category_name.values]
    names = [n for n in CATEGORIES if n in listed] + [n for n in listed if n not in CATEGORIES]
    shown = members_above_chance(result, belongs) if style == MARKED else belongs
    member = shown.transpose("category", "layer", "head").values[[listed.index(n) for n in names]]
    several = [f"{n} categories" for n in range(2, len(names) + 1)]
    classes = [*names, *several, UNCLASSIFIED]
    published_colours = dict(zip(CATEGORIES, used.categories, strict=True))
    spare = iter([c for c in used.lines if c not in used.categories + used.several] + list(used.lines) * len(names))
    category_colours = [published_colours.get(n) or next(spare) for n in names]
    several_colours = [*used.several, *[used.several[-1]] * len(names)][: len(several)]
    count = member.sum(0)
    classes_of = np.where(count == 0, len(classes) - 1, np.where(count == 1, member.argmax(0), len(names) + count - 2))
    absent = _without_scores(result)
    classes_of[absent] = -1
    panels = [("All Categories", classes_of)]
    for i, name in enumerate(names):
        panels.append((name, np.where(absent, -1, np.where(member[i], i, len(classes) - 1))))
    n_layers, n_heads = classes_of.shape
    # The published axis ends on a tick.
    last_tick = [n_layers] if n_layers % 16 == 0 else []
    return CategoryMap(
        heading=describe_result(result),
        panels=panels,
        classes=classes,
        colours=[*category_colours, *several_colours, used.none],
        legend=[*reversed(range(len(classes) - 1)), len(classes) - 1],
        xlabel="layer",
        ylabel=unit_of(result).lower() if unit_of(result) == "Head" else unit_of(result),
        xticks=ticks(n_layers, 16, 9) + last_tick,
        yticks=ticks(n_heads, 12, 12),
    )


def _without_scores(result: xr.Dataset) -> np.ndarray:
    """Return which heads [layer, head] have no score at all, as in layers without heads."""
    scored = [v for v in result.data_vars.values() if v.dtype.kind == "f" and {"layer", "head"} <= set(v.dims)]
    if not scored:
        return np.zeros((result.sizes["layer"], result.sizes["head"]), bool)
    rest = [[d for d in s.dims if d not in ("layer", "head")] for s in scored]
    missing = [s.isnull().all(dims).transpose("layer", "head").values for s, dims in zip(scored, rest, strict=True)]
    return np.logical_and.reduce(missing)


@styled
def draw(plan: CategoryMap) -> Figure:
    """Draw panels of one size in one row, as published; more than six continue in further rows."""
    n_layers, n_heads = plan.panels[0][1].shape
    width = 2.3
    height = width * float(np.clip(n_heads / n_layers, 0.6, 1.3))
    across = min(len(plan.panels), MAX_PANELS_PER_ROW)
    rows = -(-len(plan.panels) // across)
    # all in inches
    gap_x = 0.32
    gap_y = 0.62
    left = 0.55
    top = 0.58
    bottom = 0.45
    key = 1.3
    total_w = left + across * (width + gap_x) + key
    total_h = bottom + rows * (height + gap_y) - gap_y + top
    figure = Figure(figsize=(total_w, total_h))
    for i, (title, classes) in enumerate(plan.panels):
        row, column = divmod(i, across)
        x = left + column * (width + gap_x) + key * bool(column)
        y = bottom + (rows - 1 - row) * (height + gap_y)
        axes = axes_at(figure, x, y, width, height)
        cell = min(width * 72 / n_layers, height * 72 / n_heads, 28)
        for c, colour in enumerate(plan.colours):
            heads = np.argwhere(classes == c)
            axes.scatter(heads[:, 0], heads[:, 1], s=(0.8 * cell) ** 2, c=colour, marker="s", linewidths=0)
        axes.set_xlim(-0.5 - 0.01 * n_layers, n_layers - 0.5 + 0.02 * n_layers)
        axes.set_ylim(-0.5 - 0.01 * n_heads, n_heads - 0.5 + 0.02 * n_heads)
        axes.set_xticks(plan.xticks)
        axes.set_yticks(plan.yticks, [str(t) for t in plan.yticks] if column < 2 else [])
        axes.set_title(wrap(title, width, 9), parse_math=False)
        axes.set_xlabel(plan.xlabel, labelpad=1)
        axes.set_ylabel(plan.ylabel if column < 2 else "", labelpad=1)
    marks = [Line2D([], [], linestyle="", marker="s", markersize=6, color=plan.colours[c]) for c in plan.legend]
    names = [wrap(plan.classes[c], key, 7.5) for c in plan.legend]
    place = ((left + width + 0.05) / total_w, (total_h - top) / total_h)
    legend = figure.legend(marks, names, loc="upper left", bbox_to_anchor=place, handletextpad=0.2, borderaxespad=0.2)
    for text in legend.get_texts():
        text.set_parse_math(False)
    heading(figure, plan.heading, left)
    return figure
