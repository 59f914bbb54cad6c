"""Compare maps of functions by the same test: the cost of removing their heads, for the function and for the others."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from headatlas.evidence.selective import WEIGHT
from headatlas.figures.arguments import check_dataset, missing_error
from headatlas.figures.figure_names import PUBLISHED
from headatlas.figures.picture import Maps, Picture, of_each
from headatlas.figures.style import axes_at, capital, heading, styled
from headatlas.figures.style import palette as palette_of
from headatlas.results.about import describe_result

REQUIRED_VARIABLES = ("ranking", "effect", "other_effect", "proven")
REQUIRED = "effect, other_effect and proven over ranking and function"
CAPTION = (
    "Each map's heads of each function removed, their number selected on validation questions: change of log P"
    " per answer token on test questions, of the function against the mean of the others. Green: the function loses"
    " more than three times that. Filled: more than three times the mean size of the others' changes, and more than"
    " random heads of the same layers (p < 0.05, corrected)."
)


def pictures(maps: Maps, charts: xr.Dataset) -> Iterator[Picture]:
    """Yield the figure of every result that compares maps."""
    return of_each("comparison", maps, has_rankings, comparison, CAPTION)


def has_rankings(result: xr.Dataset) -> bool:
    """Return whether a result has several maps in the same test."""
    return set(REQUIRED_VARIABLES) <= set(result.variables) and set(result.effect.dims) == {"ranking", "function"}


@dataclass(frozen=True)
class Points:
    """A panel: per function, the change of itself (target) and of the others."""

    title: str
    target: np.ndarray  # [function]
    others: np.ndarray
    proven: np.ndarray


@dataclass(frozen=True)
class Comparison:
    """A planned figure."""

    heading: str
    panels: list[Points]
    functions: list[str]
    colours: list[str]


def comparison(result: xr.Dataset, *, palette: str = PUBLISHED) -> Figure:
    """Draw a panel per map with a number per function: its change of log P per token (y) against the others' (x)."""
    check_dataset(result, REQUIRED)
    return draw(plan(result, palette))


def plan(result: xr.Dataset, colours: str = PUBLISHED) -> Comparison:
    """Plan the panels."""
    if not has_rankings(result):
        raise missing_error(result, REQUIRED_VARIABLES, REQUIRED)
    names = [str(f) for f in result["function"].values]
    panels = [
        Points(
            capital(str(name)),
            result.effect.isel(ranking=i).values,
            result.other_effect.isel(ranking=i).mean("other").values,
            result.proven.isel(ranking=i).values.astype(bool),
        )
        for i, name in enumerate(result["ranking"].values.tolist())
    ]
    lines = palette_of(colours).lines
    return Comparison(describe_result(result), panels, names, [lines[0], "#777777"])


@styled
def draw(plan: Comparison) -> Figure:
    """Draw panels in up to three columns, with the functions' numbers explained at the right."""
    n_columns = min(3, len(plan.panels))
    rows = -(-len(plan.panels) // n_columns)
    side, between, above, left, bottom, top = 1.75, 0.25, 0.4, 0.65, 0.5, 0.25
    key = 0.075 * max(len(f) for f in plan.functions) + 0.5
    total_w = max(5.2, left + n_columns * (side + between) + key)
    total_h = max(bottom + rows * (side + above) + top, bottom + top + 0.17 * (len(plan.functions) + 5))
    figure = Figure(figsize=(total_w, total_h))
    values = [v[np.isfinite(v)] for p in plan.panels for v in (p.target, p.others)]
    changes = np.concatenate(values) if values else np.zeros(1)
    low = min(-0.1, changes.min(initial=0))
    high = max(0.1, changes.max(initial=0))
    margin = 0.08 * (high - low)
    ends = (low - margin, high + margin)
    for i, panel in enumerate(plan.panels):
        row, column = divmod(i, n_columns)
        x = left + column * (side + between)
        y = total_h - top - (row + 1) * (side + above) + 0.05
        axes = axes_at(figure, x, y, side, side)
        _points(axes, panel, plan.colours, ends)
        if column:
            axes.set_yticklabels([])
        else:
            axes.set_ylabel("change of the function", labelpad=2)
        if i + n_columns >= len(plan.panels):
            axes.set_xlabel("change of the others", labelpad=2)
        else:
            axes.set_xticklabels([])
    key_left = left + n_columns * (side + between) + 0.05
    for number, name in enumerate(plan.functions, 1):
        y = total_h - top - above - 0.17 * (number - 1)
        figure.text(key_left / total_w, y / total_h, f"{number}  {name}", fontsize=7.5, va="center", parse_math=False)
    marks = [
        Line2D([], [], linestyle="", marker="o", markersize=7, color=plan.colours[0]),
        Line2D([], [], linestyle="", marker="o", markersize=7, color=plan.colours[1], markerfacecolor="white"),
        Line2D([], [], linewidth=6, color="#2f7f4f", alpha=0.12),
    ]
    y = total_h - top - above - 0.17 * len(plan.functions)
    figure.legend(
        marks,
        ["proven", "not proven", f"{WEIGHT:g} times the others"],
        loc="upper left",
        bbox_to_anchor=((key_left - 0.1) / total_w, y / total_h),
        fontsize=7,
    )
    heading(figure, plan.heading, left)
    return figure


def _points(axes: Axes, panel: Points, colours: list[str], ends: tuple[float, float]) -> None:
    """Draw a panel's numbered points, and the region in which heads are specific to their function."""
    low = ends[0]
    axes.fill([0, low / WEIGHT, -low / WEIGHT], [0, low, low], color="#2f7f4f", alpha=0.12, linewidth=0)
    axes.axhline(0, color="#bbbbbb", linewidth=0.6)
    axes.axvline(0, color="#bbbbbb", linewidth=0.6)
    axes.plot([low, 0], [low, 0], "--", color="#bbbbbb", linewidth=0.7)
    for number, (target, others, proven) in enumerate(zip(panel.target, panel.others, panel.proven, strict=True), 1):
        if np.isfinite(target):
            colour = colours[0] if proven else colours[1]
            axes.plot(others, target, "o", markersize=9, color=colour, markerfacecolor=colour if proven else "white")
            digits: Any = {"marker": f"${number}$", "markersize": 3.6 + 1.4 * (number > 9), "markeredgewidth": 0.2}
            axes.plot(others, target, color="white" if proven else "#333333", **digits)
    axes.set_xlim(*ends)
    axes.set_ylim(*ends)
    axes.set_title(panel.title, fontsize=8.5, parse_math=False)
    axes.locator_params(nbins=4)
    axes.spines[["top", "right"]].set_visible(False)
