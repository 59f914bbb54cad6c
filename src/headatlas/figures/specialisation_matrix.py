"""F4, the specialisation matrix: how removing the heads of each function changes every function."""

from collections.abc import Iterator

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from headatlas.errors import BadArgument
from headatlas.figures.arguments import check_dataset
from headatlas.figures.colour_scale import neat_step
from headatlas.figures.figure_names import PUBLISHED
from headatlas.figures.matrix import Matrix, draw
from headatlas.figures.picture import Maps, Picture, of_each
from headatlas.figures.style import palette as palette_of
from headatlas.results.about import describe_result
from headatlas.results.curves import change_matrix, n_heads_removed

REQUIRED = "the changes that its method declares, or effect(function) and other_effect(function, other)"
CAPTION = (
    "Rows: the function whose top heads were removed. Columns: the function measured. Cells: the change."
    " A specialised map has its strongest cells on the diagonal."
)


def pictures(maps: Maps, charts: xr.Dataset) -> Iterator[Picture]:
    """Yield the figure of every result with such changes."""
    return of_each("specialisation-{method}", maps, has_changes, specialisation, CAPTION)


def has_changes(result: xr.Dataset) -> bool:
    """Return whether a result has the effect of removing each function's heads on every function."""
    return change_matrix(result) is not None


def specialisation(result: xr.Dataset, *, palette: str = PUBLISHED) -> Figure:
    """Draw the change of each function (columns) after removing the heads of a function (rows)."""
    check_dataset(result, REQUIRED)
    return draw(plan(result, palette))


def plan(result: xr.Dataset, colours: str = PUBLISHED) -> Matrix:
    """Plan the matrix."""
    measured = change_matrix(result)
    if measured is None:
        raise BadArgument(f"result has no {REQUIRED.replace(', or', ' nor')}: it was made without proof")
    rows, columns, values, measure = measured
    n_removed = n_heads_removed(result)
    step = neat_step(float(np.nanmax(np.abs(values))) or 1.0)
    return Matrix(
        heading=describe_result(result) + (f" · {n_removed} heads removed" if n_removed else ""),
        rows=rows,
        columns=columns,
        values=values,
        ylabel="heads removed of",
        xlabel="function measured",
        label=f"change of {measure}",
        limit=step * float(np.ceil(np.nanmax(np.abs(values)) / step)) or step,
        show_numbers=True,
        borders=[],
        colours=palette_of(colours).diverging,
        side_points={},
    )
