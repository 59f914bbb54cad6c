"""Draw heatmaps of heads side by side on one colour scale, for the importance grid and the gate grid."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from headatlas.figures.colour_scale import DIMMED, range_of
from headatlas.figures.style import Palette, axes_at, heading, styled, ticks, wrap

TITLE_SIZE = 9  # points
NOTE_SIZE = 6.5  # points
NOTE_HEIGHT = 0.13  # inches per line
MISSING_COLOUR = "#bdbdbd"  # layers without heads


@dataclass(frozen=True)
class Panel:
    """A heatmap."""

    title: str
    values: np.ndarray  # [layer, head], or [layer, head, 3]: colours
    dimmed: np.ndarray | None = None  # bool [layer, head]: heads at chance, drawn at reduced strength
    framed: np.ndarray | None = None  # bool [layer, head]: tested heads
    notes: tuple[str, ...] = ()  # lines in small letters below the title


@dataclass(frozen=True)
class Scale:
    """A colour bar."""

    label: str
    low: float
    high: float
    ticks: list[float]
    labels: list[str]
    colours: str


@dataclass(frozen=True)
class Heatmaps:
    """A planned figure."""

    heading: str
    panels: list[Panel]
    columns: int
    xlabel: str
    ylabel: str
    xticks: list[int]
    yticks: list[int]
    scale: Scale | None  # None: the values are colours
    legend: list[tuple[str, str]]  # (colour, meaning)
    key: str = ""  # what dimmed and framed cells are


def scale_of(values: np.ndarray, label: str, palette: Palette, chance: float = 0.0, published: bool = False) -> Scale:
    """Choose the colour scale of maps [subject, layer, head]."""
    ends = range_of(values, chance, published=published)
    colours = palette.diverging if ends.signed else palette.sequential
    return Scale(label, ends.low, ends.high, ends.ticks, ends.labels, colours)


def marks_key(panels: Sequence[Panel], unsupported: str) -> str:
    """Explain dimmed and framed cells, if any panel has them. unsupported: the words for dimmed heads."""
    dimmed = any(p.dimmed is not None and p.dimmed.any() for p in panels)
    framed = any(p.framed is not None and p.framed.any() for p in panels)
    parts = [f"half colour strength: {unsupported}"] * dimmed + ["framed: tested heads"] * framed
    return " · ".join(parts)


def axis_ticks(n_layers: int, n_heads: int, every: int, max_ticks: int) -> tuple[list[int], list[int]]:
    """Return the ticks of both axes: heads across, layers down."""
    return ticks(n_heads, every, max_ticks), ticks(n_layers, every, max_ticks)


@styled
def draw(plan: Heatmaps) -> Figure:
    """Draw all panels at the same size, with cells as square as a readable panel allows."""
    rows = -(-len(plan.panels) // plan.columns)
    n_layers, n_heads = plan.panels[0].values.shape[:2]
    # Clipped, so that models with many more layers than heads do not give slivers.
    shape = float(np.clip(n_layers / n_heads, 0.6, 2.0))
    area = 4.6 if len(plan.panels) > 4 else 7.0  # square inches
    width = max(1.3, min(2.9, np.sqrt(area / shape)))
    height = width * shape
    titles = [wrap(p.title, width + 0.15, TITLE_SIZE) for p in plan.panels]
    notes = [_note_lines(p, width + 0.15) for p in plan.panels]
    lines = max(t.count("\n") + 1 for t in titles)
    left, right, bottom, top, between = 0.55, 1.1, 0.45 + 0.16 * bool(plan.key), 0.42, 0.22
    notes_height = NOTE_HEIGHT * max(map(len, notes))
    above = 0.08 + 0.15 * lines + notes_height
    key = 0.0 if not plan.legend else max(1.6, 0.075 * max(len(m) for _, m in plan.legend) + 0.5)
    right = key or (right if plan.scale else 0.2)
    total_w = left + plan.columns * width + (plan.columns - 1) * between + right
    total_h = bottom + rows * (height + above) + top + 0.08 * (rows - 1)
    figure = Figure(figsize=(total_w, total_h))
    for i, (panel, title, lines_below) in enumerate(zip(plan.panels, titles, notes, strict=True)):
        row, column = divmod(i, plan.columns)
        x = left + column * (width + between)
        y = bottom + (rows - 1 - row) * (height + above + 0.08)
        axes = axes_at(figure, x, y, width, height)
        _heatmap(axes, panel, plan.scale, min(width / n_heads, height / n_layers))
        if lines_below:
            look: Any = {"ha": "center", "va": "bottom", "fontsize": NOTE_SIZE, "color": "#444444"}
            text = "\n".join(lines_below)
            axes.annotate(text, (0.5, 1), (0, 2.5), xycoords="axes fraction", textcoords="offset points", **look)
        axes.set_title(title, parse_math=False, pad=rcParams["axes.titlepad"] + 72 * notes_height)
        below = i + plan.columns >= len(plan.panels)
        axes.set_xticks(plan.xticks, [str(t) for t in plan.xticks] if below else [])
        axes.set_yticks(plan.yticks, [str(t) for t in plan.yticks] if column == 0 else [])
        axes.set_xlabel(plan.xlabel if below else "", labelpad=2)
        axes.set_ylabel(plan.ylabel if column == 0 else "", labelpad=2)
    heading(figure, plan.heading, left)
    figure.text(left / total_w, 0.06 / total_h, plan.key, va="bottom", fontsize=NOTE_SIZE, color="#444444")
    panels_right = left + plan.columns * width + (plan.columns - 1) * between
    if plan.scale is not None:
        _colour_bar(figure, plan.scale, panels_right, bottom, rows * (height + above) - above)
    for i, (colour, meaning) in enumerate(plan.legend):
        y = 1 - (top + above + 0.08 + 0.2 * i) / total_h
        figure.text((panels_right + 0.15) / total_w, y, "■", color=colour, fontsize=11, va="center")
        figure.text((panels_right + 0.33) / total_w, y, meaning, fontsize=7.5, va="center")
    return figure


def _note_lines(panel: Panel, width: float) -> list[str]:
    """Break the notes of a panel into lines of at most `width` inches."""
    return [line for note in panel.notes for line in wrap(note, width, NOTE_SIZE).splitlines()]


def _heatmap(axes: Axes, panel: Panel, scale: Scale | None, cell: float) -> None:
    """Draw a panel's values, and the marks of a test on top. cell: inches."""
    axes.set_facecolor(MISSING_COLOUR)
    if scale is None:
        axes.imshow(np.ma.masked_invalid(panel.values), aspect="auto")
    else:
        shown = np.clip(panel.values, scale.low, scale.high)
        if panel.dimmed is not None:
            shown = np.where(panel.dimmed, DIMMED * shown, shown)
        norm = Normalize(scale.low, scale.high)
        axes.imshow(np.ma.masked_invalid(shown), cmap=scale.colours, norm=norm, aspect="auto")
    if panel.framed is not None:
        _frame(axes, panel.framed, float(np.clip(7 * cell, 0.25, 1.0)))


def _frame(axes: Axes, heads: np.ndarray, width: float) -> None:
    """Frame heads in black and white, visible on any colour. width: points."""
    for colour, points in (("black", 2.6 * width), ("white", width)):
        frames = [Rectangle((head - 0.5, layer - 0.5), 1, 1) for layer, head in np.argwhere(heads)]
        axes.add_collection(PatchCollection(frames, facecolor="none", edgecolor=colour, linewidth=points))


def _colour_bar(figure: Figure, scale: Scale, left: float, bottom: float, height: float) -> None:
    """Draw the colour bar right of the panels. left: inches to the panels' right edge. height: inches."""
    total_w, total_h = figure.get_size_inches()
    axes = axes_at(figure, left + 0.18, bottom, 0.13, height)
    gradient = np.linspace(scale.low, scale.high, 256)[:, None]
    ends = (0, 1, scale.low, scale.high)
    axes.imshow(gradient, cmap=scale.colours, aspect="auto", origin="lower", extent=ends)
    axes.set_xticks([])
    axes.yaxis.tick_right()
    axes.set_yticks(scale.ticks, scale.labels)
    label_x = (left + 0.42 + 0.065 * max(len(text) for text in scale.labels)) / total_w
    middle = (bottom + height / 2) / total_h
    figure.text(label_x, middle, scale.label, rotation=270, ha="left", va="center", fontsize=8)
