"""What a function loses, and what the others lose, as more of its heads are removed: how `dissociate` chose their number."""

from dataclasses import dataclass

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from headatlas.errors import BadArgument
from headatlas.figures.style import PUBLISHED, columns, heading, styled, wrap
from headatlas.figures.style import palette as palette_of
from headatlas.results.about import about
from headatlas.results.reading import check_result

NEEDED = ("own_curve", "other_curve", "heads", "own_effect", "other_effect", "random_effect")


@dataclass(frozen=True)
class Curve:
    title: str
    removed: np.ndarray
    own: np.ndarray
    others: np.ndarray
    chosen: int  # 0: none
    tested: tuple[float, float]  # the function and the others, on test questions
    random: tuple[float, float]  # the middle 90 % of random heads
    why: str  # why there are no curves


@dataclass(frozen=True)
class TradeOff:
    """What to draw."""

    heading: str
    panels: list[Curve]
    colours: tuple[str, str]


def trade_off(found: xr.Dataset, *, palette: str = PUBLISHED) -> Figure:
    """One small panel per function: change of log P per answer token over the number of heads removed. As `dissociate` gives."""
    check_result("found", found, "dissociate")
    return draw(plan(found, palette))


def plan(found: xr.Dataset, colours: str = PUBLISHED) -> TradeOff:
    """What the curves show."""
    if missing := [n for n in NEEDED if n not in found]:
        raise BadArgument(f"found has no {', '.join(missing)}, as `dissociate` gives")
    panels = []
    for i, name in enumerate(found["function"].values.tolist()):
        one = found.isel(function=i)
        chosen = one.sel(split="validation")
        there = chosen.own_curve.notnull().values
        random = one.random_effect.values
        known = bool(np.isfinite(random).any())
        low, high = np.nanquantile(random, [0.05, 0.95]) if known else (np.nan, np.nan)
        panels.append(
            Curve(
                str(name),
                one.removed.values[there],
                chosen.own_curve.values[there],
                chosen.other_curve.values[there],
                int(one.heads),
                (float(one.own_effect), float(one.other_effect.mean())),
                (float(low), float(high)),
                "" if there.any() else "no gate was shut",
            )
        )
    lines = palette_of(colours).lines
    return TradeOff(about(found), panels, (lines[0], lines[1]))


@styled
def draw(plan: TradeOff) -> Figure:
    wide = columns(len(plan.panels))
    rows = -(-len(plan.panels) // wide)
    width, height, between, above = 1.75, 1.4, 0.5, 0.5
    left, bottom, top = 0.7, 0.95, 0.2
    total_w = max(5.2, left + wide * (width + between) - between + 0.15)
    total_h = bottom + rows * (height + above) + top
    figure = Figure(figsize=(total_w, total_h))
    own, others = plan.colours
    for i, panel in enumerate(plan.panels):
        row, column = divmod(i, wide)
        x, y = left + column * (width + between), bottom + (rows - 1 - row) * (height + above)
        axes = figure.add_axes((x / total_w, y / total_h, width / total_w, height / total_h))
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
        axes.set_title(wrap(panel.title, width + 0.35, 8.5), fontsize=8.5, parse_math=False)
        axes.margins(x=0.06)
        axes.spines[["top", "right"]].set_visible(False)
        axes.locator_params(nbins=4)
        if column == 0:
            axes.set_ylabel("change of log P per token", labelpad=2)
        if i + wide >= len(plan.panels):
            axes.set_xlabel("heads removed", labelpad=2)
    marks = [
        Line2D([], [], linestyle="-", marker="o", markersize=3, color=own),
        Line2D([], [], linestyle=":", marker="s", markersize=3, color=others),
        Line2D([], [], linestyle="", marker="x", markersize=6, color="#333333"),
        Line2D([], [], linewidth=5, color="#999999", alpha=0.45),
    ]
    names = ["the function", "the other functions", "on test questions", "random heads, on test questions"]
    figure.legend(marks, names, loc="lower left", bbox_to_anchor=(left / total_w - 0.01, 0), ncols=2, columnspacing=1.2)
    heading(figure, plan.heading, left)
    return figure
