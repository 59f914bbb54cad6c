"""Draw a labelled matrix with a colour per cell: for the specialisation matrix, and for the agreement of maps."""

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
    """A planned figure."""

    heading: str
    rows: list[str]
    columns: list[str]
    values: np.ndarray  # [row, column], NaN: no value
    ylabel: str
    xlabel: str
    label: str  # of the colour bar
    limit: float
    show_numbers: bool  # in the cells
    borders: list[int]  # rows and columns before which a group begins
    colours: str
    side_points: dict[str, np.ndarray]  # a second panel: points by name, such as agreement between seeds
    side_title: str = ""


@styled
def draw(plan: Matrix) -> Figure:
    """Draw the matrix, its colour bar, and the second panel if there is one."""
    n_rows, n_columns = plan.values.shape
    cell = 0.46 if plan.show_numbers else float(np.clip(7.0 / n_rows, 0.06, 0.3))
    size = min(8.0, cell * 72 * 0.8)  # points
    letter = 0.0088 * size  # inches per letter
    left = 0.35 + letter * max(map(len, plan.rows)) * 0.95
    bottom = 0.35 + letter * max(map(len, plan.columns)) * (0.72 if plan.show_numbers else 0.95)
    width, height = n_columns * cell, n_rows * cell
    side = 2.4 if plan.side_points else 0.0
    gap = 1.6 if plan.side_points else 0.0
    figure = Figure(figsize=(left + width + 0.95 + gap + side, bottom + max(height, 1.2) + 0.5))
    image = _cells(axes_at(figure, left, bottom, width, height), plan, size)
    figure.colorbar(image, cax=axes_at(figure, left + width + 0.15, bottom, 0.12, height), label=plan.label)
    if plan.side_points:
        side_height = min(height, 0.28 * len(plan.side_points) + 0.1)
        side_axes = axes_at(figure, left + width + 0.95 + gap, bottom + height - side_height, side - 0.15, side_height)
        _points(side_axes, plan)
    heading(figure, plan.heading, 0.1)
    return figure


def _cells(axes: Axes, plan: Matrix, size: float) -> AxesImage:
    """Draw the cells with their labels. size: points of the labels."""
    axes.set_facecolor("#dddddd")
    norm = Normalize(-plan.limit, plan.limit)
    image = axes.imshow(np.ma.masked_invalid(plan.values), cmap=plan.colours, norm=norm, aspect="auto")
    rotation = 40 if plan.show_numbers else 90
    axes.set_xticks(
        range(len(plan.columns)),
        [printable(c) for c in plan.columns],
        rotation=rotation,
        ha="right" if plan.show_numbers else "center",
        rotation_mode="anchor" if plan.show_numbers else "default",
        fontsize=size,
        parse_math=False,
    )
    axes.set_yticks(range(len(plan.rows)), [printable(r) for r in plan.rows], fontsize=size, parse_math=False)
    axes.tick_params(length=0)
    axes.set_xlabel(plan.xlabel)
    axes.set_ylabel(plan.ylabel)
    for border in plan.borders:
        axes.axhline(border - 0.5, color="black", linewidth=0.5)
        axes.axvline(border - 0.5, color="black", linewidth=0.5)
    centred: Any = {"ha": "center", "va": "center", "fontsize": 7}
    for (r, c), value in np.ndenumerate(plan.values):
        if plan.show_numbers and np.isfinite(value):
            dark = abs(value) > 0.6 * plan.limit
            axes.text(c, r, f"{value:.2f}".replace("-", "−"), color="white" if dark else "black", **centred)
    return image


def _points(axes: Axes, plan: Matrix) -> None:
    """Draw the second panel."""
    for i, values in enumerate(plan.side_points.values()):
        axes.plot(values, np.full(len(values), i), "o", markersize=3, color="#333333", alpha=0.6)
    axes.set_yticks(range(len(plan.side_points)), [printable(n) for n in plan.side_points], parse_math=False)
    axes.set_ylim(len(plan.side_points) - 0.5, -0.5)
    axes.set_xlim(-1.05, 1.05)
    axes.axvline(0, color="#999999", linewidth=0.6)
    axes.set_title(plan.side_title, fontsize=8)
    axes.set_xlabel("Spearman correlation", labelpad=2)
