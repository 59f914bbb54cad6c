"""A labelled square with a colour for every cell: the specialisation matrix, and the agreement of maps."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from headatlas.figures.style import axes_at, heading, printable, styled


@dataclass(frozen=True)
class Matrix:
    """What to draw."""

    heading: str
    rows: list[str]
    columns: list[str]
    values: np.ndarray  # [row, column], NaN: no value
    ylabel: str
    xlabel: str
    label: str  # of the colour bar
    limit: float
    written: bool  # numbers in the cells
    borders: list[int]  # rows and columns before which a group begins
    colours: str
    beside: dict[str, np.ndarray]  # a second panel: points by name, such as agreement between seeds
    beside_title: str = ""


@styled
def draw(plan: Matrix) -> Figure:
    n_rows, n_columns = plan.values.shape
    cell = 0.46 if plan.written else float(np.clip(7.0 / n_rows, 0.06, 0.3))
    size = min(8.0, cell * 72 * 0.8)  # points
    words = 0.0088 * size  # inches a letter
    left = 0.35 + words * max(map(len, plan.rows)) * 0.95
    bottom = 0.35 + words * max(map(len, plan.columns)) * (0.72 if plan.written else 0.95)
    width, height = n_columns * cell, n_rows * cell
    side = 2.4 if plan.beside else 0.0
    apart = 1.6 if plan.beside else 0.0
    figure = Figure(figsize=(left + width + 0.95 + apart + side, bottom + max(height, 1.2) + 0.5))
    image = _cells(axes_at(figure, left, bottom, width, height), plan, size)
    figure.colorbar(image, cax=axes_at(figure, left + width + 0.15, bottom, 0.12, height), label=plan.label)
    if plan.beside:
        tall = min(height, 0.28 * len(plan.beside) + 0.1)
        _points(axes_at(figure, left + width + 0.95 + apart, bottom + height - tall, side - 0.15, tall), plan)
    heading(figure, plan.heading, 0.1)
    return figure


def _cells(axes: Axes, plan: Matrix, size: float) -> AxesImage:
    """The square with its labels, `size` points high."""
    axes.set_facecolor("#dddddd")
    norm = Normalize(-plan.limit, plan.limit)
    image = axes.imshow(np.ma.masked_invalid(plan.values), cmap=plan.colours, norm=norm, aspect="auto")
    turned = 40 if plan.written else 90
    axes.set_xticks(
        range(len(plan.columns)),
        [printable(c) for c in plan.columns],
        rotation=turned,
        ha="right" if plan.written else "center",
        rotation_mode="anchor" if plan.written else "default",
        fontsize=size,
        parse_math=False,
    )
    axes.set_yticks(range(len(plan.rows)), [printable(r) for r in plan.rows], fontsize=size, parse_math=False)
    axes.tick_params(length=0)
    axes.set_xlabel(plan.xlabel)
    axes.set_ylabel(plan.ylabel)
    for at in plan.borders:
        axes.axhline(at - 0.5, color="black", linewidth=0.5)
        axes.axvline(at - 0.5, color="black", linewidth=0.5)
    centred: Any = {"ha": "center", "va": "center", "fontsize": 7}
    for (r, c), value in np.ndenumerate(plan.values):
        if plan.written and np.isfinite(value):
            dark = abs(value) > 0.6 * plan.limit
            axes.text(c, r, f"{value:.2f}".replace("-", "−"), color="white" if dark else "black", **centred)
    return image


def _points(axes: Axes, plan: Matrix) -> None:
    """The second panel."""
    for i, values in enumerate(plan.beside.values()):
        axes.plot(values, np.full(len(values), i), "o", markersize=3, color="#333333", alpha=0.6)
    axes.set_yticks(range(len(plan.beside)), [printable(n) for n in plan.beside], parse_math=False)
    axes.set_ylim(len(plan.beside) - 0.5, -0.5)
    axes.set_xlim(-1.05, 1.05)
    axes.axvline(0, color="#999999", linewidth=0.6)
    axes.set_title(plan.beside_title, fontsize=8)
    axes.set_xlabel("Spearman correlation", labelpad=2)
