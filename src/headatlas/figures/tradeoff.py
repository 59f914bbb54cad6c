"""The trade-off that selects a number of heads: what a function, and the others, lose as its heads are removed."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from headatlas.figures.arguments import check_dataset, missing_error
from headatlas.figures.figure_names import PUBLISHED
from headatlas.figures.picture import Maps, Picture, of_each
from headatlas.figures.small_panels import legend_below, small_panels
from headatlas.figures.style import heading, styled
from headatlas.figures.style import palette as palette_of
from headatlas.results.about import describe_result

REQUIRED_VARIABLES = ("effect_curve", "other_curve", "n_removed", "effect", "other_effect", "random_effect")
REQUIRED = (
    "effect_curve and other_curve over (function, split, step), with n_removed, effect, other_effect and random_effect"
)
CAPTION = (
    "Heads removed in the order of the map: what the function loses and what the others lose, on validation questions,"
    " by which the number of heads is selected (dotted). Crosses: that number of heads on test questions; band: the"
    " middle 90 % of draws of random heads of the same layers."
)


def pictures(maps: Maps, charts: xr.Dataset) -> Iterator[Picture]:
    """Yield the figure of every result with such curves."""
    return of_each("trade-off", maps, has_trade_off, trade_off, CAPTION)


def has_trade_off(result: xr.Dataset) -> bool:
    """Return whether a result has the curves by which the number of each function's heads was selected."""
    if not set(REQUIRED_VARIABLES) <= set(result.variables) or result.effect.ndim != 1:
        return False
    return set(result.effect_curve.dims) == {*result.effect.dims, "split", "step"}


@dataclass(frozen=True)
class Curve:
    """A panel: the change of the function (target) and of the others over the number of heads removed."""

    title: str
    removed: np.ndarray
    target: np.ndarray
    others: np.ndarray
    n_selected: int  # 0: none
    tested: tuple[float, float]  # the function and the others, on test questions
    random: tuple[float, float]  # the middle 90 % of random heads
    note: str  # why the panel has no curves


@dataclass(frozen=True)
class TradeOff:
    """A planned figure."""

    heading: str
    panels: list[Curve]
    colours: tuple[str, str]


def trade_off(result: xr.Dataset, *, palette: str = PUBLISHED) -> Figure:
    """Draw a small panel per function: change of log P per answer token over the number of heads removed."""
    check_dataset(result, REQUIRED)
    return draw(plan(result, palette))


def plan(result: xr.Dataset, colours: str = PUBLISHED) -> TradeOff:
    """Plan the curves."""
    if not has_trade_off(result):
        raise missing_error(result, REQUIRED_VARIABLES, REQUIRED)
    panels = []
    (dim,) = result.effect.dims
    for i, name in enumerate(result[dim].values.tolist()):
        row = result.isel({dim: i})
        validation = row.sel(split="validation")
        measured = validation.effect_curve.notnull().values
        random = row.random_effect.values
        has_draws = bool(np.isfinite(random).any())
        low, high = np.nanquantile(random, [0.05, 0.95]) if has_draws else (np.nan, np.nan)
        panels.append(
            Curve(
                str(name),
                row.step.values[measured],
                validation.effect_curve.values[measured],
                validation.other_curve.values[measured],
                int(row.n_removed),
                (float(row.effect), float(row.other_effect.mean())),
                (float(low), float(high)),
                "" if measured.any() else "no gate was shut",
            )
        )
    lines = palette_of(colours).lines
    return TradeOff(describe_result(result), panels, (lines[0], lines[1]))


@styled
def draw(plan: TradeOff) -> Figure:
    """Draw small panels with one legend below."""
    left = 0.7
    target_colour, others_colour = plan.colours
    titles = [p.title for p in plan.panels]
    ylabels = ["change of log P per token"] * len(plan.panels)
    figure, all_axes = small_panels(titles, ylabels, left, 0.95)
    for panel, axes in zip(plan.panels, all_axes, strict=True):
        axes.axhline(0, color="#aaaaaa", linewidth=0.6)
        axes.plot(panel.removed, panel.target, "-o", markersize=3, color=target_colour)
        axes.plot(panel.removed, panel.others, ":s", markersize=3, color=others_colour)
        if panel.n_selected:
            axes.axvline(panel.n_selected, color="#777777", linewidth=0.8, linestyle=":")
            band = [panel.n_selected] * 2
            axes.plot(band, panel.random, color="#999999", linewidth=5, alpha=0.45, solid_capstyle="butt")
            for value, colour in zip(panel.tested, plan.colours, strict=True):
                axes.plot(panel.n_selected, value, "x", markersize=6, markeredgewidth=1.6, color=colour)
        if panel.note:
            axes.text(0.5, 0.5, panel.note, transform=axes.transAxes, ha="center", va="center", fontsize=7.5)
            axes.set_xticks([])
            axes.set_yticks([])
        axes.margins(x=0.06)
        axes.locator_params(nbins=4)
    marks = [
        Line2D([], [], linestyle="-", marker="o", markersize=3, color=target_colour),
        Line2D([], [], linestyle=":", marker="s", markersize=3, color=others_colour),
        Line2D([], [], linestyle="", marker="x", markersize=6, color="#333333"),
        Line2D([], [], linewidth=5, color="#999999", alpha=0.45),
    ]
    names = ["the function", "the other functions", "on test questions", "random heads, on test questions"]
    legend_below(figure, marks, names, left, 2)
    heading(figure, plan.heading, left)
    return figure
