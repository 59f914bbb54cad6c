"""Small panels side by side, of what happens as heads are removed, with a legend below."""

from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headatlas.figures.style import axes_at, columns, wrap


def small_panels(
    titles: Sequence[str], ylabels: Sequence[str], left: float, bottom: float
) -> tuple[Figure, list[Axes]]:
    """A figure with a panel for each title; left, bottom: inches beside and below all panels."""
    across = columns(len(titles))
    rows = -(-len(titles) // across)
    width, height, between, above = 1.75, 1.4, 0.5, 0.5
    total_w = max(5.2, left + across * (width + between) - between + 0.15)
    figure = Figure(figsize=(total_w, bottom + rows * (height + above) + 0.2))
    for i, (title, ylabel) in enumerate(zip(titles, ylabels, strict=True)):
        row, column = divmod(i, across)
        x, y = left + column * (width + between), bottom + (rows - 1 - row) * (height + above)
        axes = axes_at(figure, x, y, width, height)
        axes.set_title(wrap(title, width + 0.35, 8.5), fontsize=8.5, parse_math=False)
        axes.spines[["top", "right"]].set_visible(False)
        if column == 0:
            axes.set_ylabel(ylabel, labelpad=2)
        if i + across >= len(titles):
            axes.set_xlabel("heads removed", labelpad=2)
    return figure, figure.axes


def legend_below(figure: Figure, marks: Sequence[Artist], names: Sequence[str], left: float, across: int) -> None:
    """A legend below all panels, `across` entries beside each other; left: inches."""
    place = (left / figure.get_size_inches()[0] - 0.01, 0)
    figure.legend(marks, names, loc="lower left", bbox_to_anchor=place, ncols=across, columnspacing=1.2)
