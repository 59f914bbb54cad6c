"""F4, removal curves: quality as heads are removed; top heads against random and lowest ones."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from headatlas.errors import BadArgument
from headatlas.figures.arguments import check_dataset
from headatlas.figures.figure_names import PUBLISHED
from headatlas.figures.picture import Maps, Picture, of_each
from headatlas.figures.small_panels import legend_below, small_panels
from headatlas.figures.style import capital, heading, styled
from headatlas.figures.style import palette as palette_of
from headatlas.results.about import describe_result
from headatlas.results.curves import has_curves, stack_removal_curves

NEEDS = "what removing heads did: effect, random_effect, p and baseline over n_removed"
SAYS = (
    "Quality as heads are removed: the top heads of the map, random heads of the same layers (band: 90 % of draws), and"
    " the lowest. p: how often random heads lower it as much, at the last step, corrected for the number of tests. Of"
    " roles: log P with heads switched off minus on."
)
LINES: dict[str, tuple[str, str, Literal["-", "--", ":"]]] = {
    "top": ("top heads", "o", "-"),
    "random": ("random heads of the same layers", "", "--"),
    "lowest": ("lowest heads", "s", ":"),
}


def pictures(maps: Maps, charts: xr.Dataset) -> Iterator[Picture]:
    return of_each("removal-{method}", maps, has_curves, removal_curves, SAYS)


@dataclass(frozen=True)
class Curves:
    title: str
    removed: np.ndarray
    lines: dict[str, np.ndarray]  # top, random, lowest: those that were measured
    band: tuple[np.ndarray, np.ndarray]  # the middle 90 % of the random draws
    p: float  # at the last step
    ylabel: str


@dataclass(frozen=True)
class Removal:
    """What to draw."""

    heading: str
    panels: list[Curves]
    colours: dict[str, str]


def removal_curves(result: xr.Dataset, *, palette: str = PUBLISHED) -> Figure:
    """One small panel per function, relation or task whose heads were removed or switched off."""
    check_dataset(result, NEEDS)
    return draw(plan(result, palette))


def plan(result: xr.Dataset, colours: str = PUBLISHED) -> Removal:
    """What the curves show."""
    if not has_curves(result):
        raise BadArgument(f"result has no removal curves: it was made without proof. The figure needs {NEEDS}")
    all_curves = stack_removal_curves({str(result.attrs.get("method", "")): result})
    panels = []
    for i in range(all_curves.sizes["curve"]):
        one = all_curves.isel(curve=i)
        one = one.isel(removed=np.flatnonzero(one.top.notnull()))
        why = one.ranked_by.item()
        title = one.subject.item() if why == "importance" else f"{capital(one.subject.item())}: {why}"
        lines = {n: one[n].values for n in LINES if one[n].notnull().any()}
        band = (one.random_low.values, one.random_high.values)
        panels.append(Curves(title, one.removed.values, lines, band, float(one.p[-1]), one.measure.item()))
    used = palette_of(colours)
    return Removal(
        describe_result(result), panels, dict(zip(LINES, (used.lines[0], "#777777", used.lines[1]), strict=True))
    )


@styled
def draw(plan: Removal) -> Figure:
    left = 0.65
    figure, all_axes = small_panels([p.title for p in plan.panels], [p.ylabel for p in plan.panels], left, 0.75)
    for panel, axes in zip(plan.panels, all_axes, strict=True):
        axes.fill_between(panel.removed, *panel.band, color=plan.colours["random"], alpha=0.22, linewidth=0)
        for name, values in panel.lines.items():
            _, marker, dashes = LINES[name]
            axes.plot(panel.removed, values, dashes, marker=marker, markersize=3, color=plan.colours[name])
        axes.margins(x=0.04)
        axes.set_xticks(_spread(panel.removed))
        axes.locator_params(axis="y", nbins=4)
        if not np.isnan(panel.p):
            text = f"p {'<' if panel.p < 0.01 else '='} {max(panel.p, 0.01):.2f}"
            axes.text(0.03, 0.04, text, transform=axes.transAxes, fontsize=7, color="#444444")
    shown = [n for n in LINES if any(n in p.lines for p in plan.panels)]
    marks: list[Line2D | Patch] = [
        Line2D([], [], linestyle=LINES[n][2], marker=LINES[n][1], markersize=3, color=plan.colours[n]) for n in shown
    ]
    marks.append(Patch(color=plan.colours["random"], alpha=0.22, linewidth=0))
    names = [LINES[n][0] for n in shown] + ["90 % of random draws"]
    legend_below(figure, marks, names, left, 2 if figure.get_size_inches()[0] < 6 else 4)
    heading(figure, plan.heading, left)
    return figure


def _spread(removed: np.ndarray, apart: float = 0.14) -> list[int]:
    """Steps whose labels do not touch, the last one always."""
    kept: list[int] = []
    for step in reversed(removed.tolist()):
        if not kept or kept[-1] - step >= apart * max(removed.max(), 1):
            kept.append(int(step))
    return kept
