"""Lay out small panels side by side for curves of removed heads, with a legend below."""

from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headatlas.figures.style import axes_at, columns, wrap


def small_panels(
    titles: Sequence[str], ylabels: Sequence[str], left: float, bottom: float
) -> tuple[Figure, list[Axes]]:
    """Make a figure with a panel per title. left, bottom: inches of margin around all panels."""
    n_columns = columns(len(titles))
    rows = -(-len(titles) // n_columns)
    width, height, between, above = 1.75, 1.4, 0.5, 0.5
    total_w = max(5.2, left + n_columns * (width + between) - between + 0.15)
    figure = Figure(figsize=(total_w, bottom + rows * (height + above) + 0.2))
    for i, (title, ylabel) in enumerate(zip(titles, ylabels, strict=True)):
        row, column = divmod(i, n_columns)
        x = left + column * (width + between)
        y = bottom + (rows - 1 - row) * (height + above)
        axes = axes_at(figure, x, y, width, height)
        axes.set_title(wrap(title, width + 0.35, 8.5), fontsize=8.5, parse_math=False)
        axes.spines[["top", "right"]].set_visible(False)
        if column == 0:
            axes.set_ylabel(ylabel, labelpad=2)
        if i + n_columns >= len(titles):
            axes.set_xlabel("heads removed", labelpad=2)
    return figure, figure.axes


def legend_below(figure: Figure, marks: Sequence[Artist], names: Sequence[str], left: float, n_columns: int) -> None:
    """Add a legend below all panels. left: inches."""
    place = (left / figure.get_size_inches()[0] - 0.01, 0)
    figure.legend(marks, names, loc="lower left", bbox_to_anchor=place, ncols=n_columns, columnspacing=1.2)
