"""Plot quality against cost: how well each method finds the planted heads, and how many passes that takes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from headatlas.figures.figure_names import FORMATS, PUBLISHED
from headatlas.figures.saving import write_formats
from headatlas.figures.style import axes_at, capital, heading, styled
from headatlas.figures.style import palette as palette_of

MARKERS = "osD^vP*X"
# A backward pass costs about two forward passes.
BACKWARD_COST = 2.0


@dataclass(frozen=True)
class Point:
    """A method's cost (or a noise level) x, and its mean AUROC with an interval."""

    name: str
    x: float
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Panel:
    """One set of axes. joined: whether points of one name are connected by a line."""

    title: str
    x_label: str
    points: list[Point]
    joined: bool


@dataclass(frozen=True)
class Quality:
    """A planned figure."""

    heading: str
    panels: list[Panel]
    colours: tuple[str, ...]


def quality_and_cost(result: xr.Dataset, *, palette: str = PUBLISHED) -> Figure:
    """Draw AUROC with its interval against passes per function, by kind of truth; for relations, against noise."""
    return draw(plan(result, palette))


def write_quality_and_cost(result: xr.Dataset, folder: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write the figure into a folder as benchmark.FORMAT, unless all models have harder plantings."""
    return write_formats(quality_and_cost(result), folder, "benchmark", formats) if plan(result).panels else []


def plan(result: xr.Dataset, colours: str = PUBLISHED) -> Quality:
    panels: dict[str, Panel] = {}
    for name in result.contender.values.tolist():
        for group in result.over.values.tolist():
            result_of_group = result.sel(contender=name, over=group)
            mean, low, high = (float(result_of_group[f"auroc_{part}"]) for part in ("mean", "low", "high"))
            # Harder plantings are shown in a table.
            if np.isnan(mean) or ": " in group:
                continue
            kind, _, noise = group.partition(", noise ")
            if noise:
                title, label, x = "Relations", "noise (times the relation's size)", float(noise)
            else:
                cost = result.sel(contender=name, model=result.group == group)
                title, label = capital(kind), "passes of one example, per function"
                x = float((cost.forward + BACKWARD_COST * cost.backward).mean())
            panel = panels.setdefault(title, Panel(title, label, [], bool(noise)))
            panel.points.append(Point(name, x, mean, low, high))
    models = result.attrs.get("model", "")
    notes = "95 % bootstrap intervals · a backward pass counts as 2 forward passes"
    text = f"Methods against planted heads · models {models} · {notes}"
    return Quality(text, list(panels.values()), palette_of(colours).lines)


@styled
def draw(plan: Quality) -> Figure:
    width, height, legend_width, left, bottom, top = 2.6, 2.6, 1.35, 0.55, 0.5, 0.5
    figure = Figure(figsize=(len(plan.panels) * (left + width + legend_width), height + bottom + top))
    for i, panel in enumerate(plan.panels):
        axes = axes_at(figure, i * (left + width + legend_width) + left, bottom, width, height)
        for j, name in enumerate(dict.fromkeys(p.name for p in panel.points)):
            points = [p for p in panel.points if p.name == name]
            mean = np.array([p.mean for p in points])
            error_bars = np.array([[p.mean - p.low for p in points], [p.high - p.mean for p in points]])
            axes.errorbar(
                [p.x for p in points],
                mean,
                np.maximum(error_bars, 0),
                fmt=MARKERS[j % len(MARKERS)] + ("-" if panel.joined else ""),
                color=plan.colours[j % len(plan.colours)],
                markersize=4,
                linewidth=1,
                elinewidth=0.8,
                label=name,
                clip_on=False,
            )
        axes.axhline(0.5, color="#999999", linewidth=0.6, zorder=0)
        if not panel.joined:
            axes.set_xscale("symlog", linthresh=10)
        axes.set_xlim(left=0)
        axes.set_ylim(min(0.4, *(p.low for p in panel.points)) - 0.02, 1.0)
        axes.set_title(panel.title, parse_math=False)
        axes.set_xlabel(panel.x_label, labelpad=2)
        if i == 0:
            axes.set_ylabel("AUROC for the planted heads", labelpad=2)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1.03), fontsize=6.5, labelspacing=0.35, handlelength=1.6)
    heading(figure, plan.heading, left)
    return figure
