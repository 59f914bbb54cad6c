"""What a function loses, and what the others lose, as more of its heads are removed: how their number was chosen."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from headatlas.figures.arguments import check_dataset, lacks
from headatlas.figures.figure_names import PUBLISHED
from headatlas.figures.picture import Maps, Picture, of_each
from headatlas.figures.small_panels import legend_below, small_panels
from headatlas.figures.style import heading, styled
from headatlas.figures.style import palette as palette_of
from headatlas.results.about import describe_result

NEEDED = ("effect_curve", "other_curve", "n_removed", "effect", "other_effect", "random_effect")
NEEDS = (
    "effect_curve and other_curve over (function, split, step), with n_removed, effect, other_effect and random_effect"
)
SAYS = (
    "Heads removed for good in the order of the map: what the function loses and what the others lose, on validation"
    " questions, by which the number of heads is chosen (dotted). Cross and band: the same number on test questions,"
    " and the middle 90 % of random heads of the same layers."
)


def pictures(maps: Maps, charts: xr.Dataset) -> Iterator[Picture]:
    return of_each("trade-off", maps, has_trade_off, trade_off, SAYS)


def has_trade_off(result: xr.Dataset) -> bool:
    """Whether it has the curves by which the number of each function's heads was chosen."""
    if not set(NEEDED) <= set(result.variables) or result.effect.ndim != 1:
        return False
    return set(result.effect_curve.dims) == {*result.effect.dims, "split", "step"}


@dataclass(frozen=True)
class Curve:
    title: str
    removed: np.ndarray
    own: np.ndarray
    others: np.ndarray
    chosen: int  # 0: none
    tested: tuple[float, float]  # the function and the others, on test questions
    random: tuple[float, float]  # the middle 90 % of random heads
    why: str  # why the panel has no curves


@dataclass(frozen=True)
class TradeOff:
    """What to draw."""

    heading: str
    panels: list[Curve]
    colours: tuple[str, str]


def trade_off(result: xr.Dataset, *, palette: str = PUBLISHED) -> Figure:
    """One small panel per function: change of log P per answer token over the number of heads removed."""
    check_dataset(result, NEEDS)
    return draw(plan(result, palette))


def plan(result: xr.Dataset, colours: str = PUBLISHED) -> TradeOff:
    """What the curves show."""
    if not has_trade_off(result):
        raise lacks(result, NEEDED, NEEDS)
    panels = []
    (dim,) = result.effect.dims
    for i, name in enumerate(result[dim].values.tolist()):
        one = result.isel({dim: i})
        validation = one.sel(split="validation")
        measured = validation.effect_curve.notnull().values
        random = one.random_effect.values
        known = bool(np.isfinite(random).any())
        low, high = np.nanquantile(random, [0.05, 0.95]) if known else (np.nan, np.nan)
        panels.append(
            Curve(
                str(name),
                one.step.values[measured],
                validation.effect_curve.values[measured],
                validation.other_curve.values[measured],
                int(one.n_removed),
                (float(one.effect), float(one.other_effect.mean())),
                (float(low), float(high)),
                "" if measured.any() else "no gate was shut",
            )
        )
    lines = palette_of(colours).lines
    return TradeOff(describe_result(result), panels, (lines[0], lines[1]))


@styled
def draw(plan: TradeOff) -> Figure:
    left, (own, others) = 0.7, plan.colours
    titles, ylabels = [p.title for p in plan.panels], ["change of log P per token"] * len(plan.panels)
    figure, all_axes = small_panels(titles, ylabels, left, 0.95)
    for panel, axes in zip(plan.panels, all_axes, strict=True):
        axes.axhline(0, color="#aaaaaa", linewidth=0.6)
        axes.plot(panel.removed, panel.own, "-o", markersize=3, color=own)
        axes.plot(panel.removed, panel.others, ":s", markersize=3, color=others)
        if panel.chosen:
            axes.axvline(panel.chosen, color="#777777", linewidth=0.8, linestyle=":")
            axes.plot([panel.chosen] * 2, panel.random, color="#999999", linewidth=5, alpha=0.45, solid_capstyle="butt")
            for value, colour in zip(panel.tested, plan.colours, strict=True):
                axes.plot(panel.chosen, value, "x", markersize=6, markeredgewidth=1.6, color=colour)
        if panel.why:
            axes.text(0.5, 0.5, panel.why, transform=axes.transAxes, ha="center", va="center", fontsize=7.5)
            axes.set_xticks([])
            axes.set_yticks([])
        axes.margins(x=0.06)
        axes.locator_params(nbins=4)
    marks = [
        Line2D([], [], linestyle="-", marker="o", markersize=3, color=own),
        Line2D([], [], linestyle=":", marker="s", markersize=3, color=others),
        Line2D([], [], linestyle="", marker="x", markersize=6, color="#333333"),
        Line2D([], [], linewidth=5, color="#999999", alpha=0.45),
    ]
    names = ["the function", "the other functions", "on test questions", "random heads, on test questions"]
    legend_below(figure, marks, names, left, 2)
    heading(figure, plan.heading, left)
    return figure
