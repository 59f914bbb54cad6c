"""F4, removal curves: quality as heads are removed; top heads compared with random and lowest heads."""

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

REQUIRED = "what removing heads did: effect, random_effect, p and baseline over n_removed"
CAPTION = (
    "Quality as heads are removed: the top heads of the map, random heads of the same layers (band: 90 % of draws), and"
    " the lowest. p: how often random heads lower it as much, at the last step, corrected for the number of tests. For"
    " roles: log P with heads switched off minus on."
)
LINES: dict[str, tuple[str, str, Literal["-", "--", ":"]]] = {
    "top": ("top heads", "o", "-"),
    "random": ("random heads of the same layers", "", "--"),
    "lowest": ("lowest heads", "s", ":"),
}


def pictures(maps: Maps, charts: xr.Dataset) -> Iterator[Picture]:
    """Yield the figure of every result with removal curves."""
    return of_each("removal-{method}", maps, has_curves, removal_curves, CAPTION)


@dataclass(frozen=True)
class Curves:
    """A panel: the curves of one subject."""

    title: str
    removed: np.ndarray
    lines: dict[str, np.ndarray]  # top, random and lowest, as far as measured
    band: tuple[np.ndarray, np.ndarray]  # the middle 90 % of the random draws
    p: float  # at the last step
    ylabel: str


@dataclass(frozen=True)
class Removal:
    """A planned figure."""

    heading: str
    panels: list[Curves]
    colours: dict[str, str]


def removal_curves(result: xr.Dataset, *, palette: str = PUBLISHED) -> Figure:
    """Draw a small panel per function, relation or task whose heads were removed or switched off."""
    check_dataset(result, REQUIRED)
    return draw(plan(result, palette))


def plan(result: xr.Dataset, colours: str = PUBLISHED) -> Removal:
    """Plan the curves."""
    if not has_curves(result):
        raise BadArgument(f"result has no removal curves: it was made without proof. The figure needs {REQUIRED}")
    all_curves = stack_removal_curves({str(result.attrs.get("method", "")): result})
    panels = []
    for i in range(all_curves.sizes["curve"]):
        curve = all_curves.isel(curve=i)
        curve = curve.isel(removed=np.flatnonzero(curve.top.notnull()))
        why = curve.ranked_by.item()
        title = curve.subject.item() if why == "importance" else f"{capital(curve.subject.item())}: {why}"
        lines = {n: curve[n].values for n in LINES if curve[n].notnull().any()}
        band = (curve.random_low.values, curve.random_high.values)
        panels.append(Curves(title, curve.removed.values, lines, band, float(curve.p[-1]), curve.measure.item()))
    used = palette_of(colours)
    return Removal(
        describe_result(result), panels, dict(zip(LINES, (used.lines[0], "#777777", used.lines[1]), strict=True))
    )


@styled
def draw(plan: Removal) -> Figure:
    """Draw small panels with one legend below."""
    left = 0.65
    figure, all_axes = small_panels([p.title for p in plan.panels], [p.ylabel for p in plan.panels], left, 0.75)
    for panel, axes in zip(plan.panels, all_axes, strict=True):
        axes.fill_between(panel.removed, *panel.band, color=plan.colours["random"], alpha=0.22, linewidth=0)
        for name, values in panel.lines.items():
            _, marker, dashes = LINES[name]
            axes.plot(panel.removed, values, dashes, marker=marker, markersize=3, color=plan.colours[name])
        axes.margins(x=0.04)
        axes.set_xticks(_spaced_ticks(panel.removed))
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


def _spaced_ticks(removed: np.ndarray, distance: float = 0.14) -> list[int]:
    """Return steps whose labels do not overlap, the last one always. distance: share of the axis."""
    ticks: list[int] = []
    for step in reversed(removed.tolist()):
        if not ticks or ticks[-1] - step >= distance * max(removed.max(), 1):
            ticks.append(int(step))
    return ticks
