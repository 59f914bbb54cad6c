"""F4, the specialisation matrix: how removing the heads of each subject changes every subject."""

from collections.abc import Iterator

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from headatlas.errors import BadArgument
from headatlas.figures.arguments import check_dataset
from headatlas.figures.colour_scale import neat_step
from headatlas.figures.figure_names import PUBLISHED
from headatlas.figures.matrix import Matrix, draw
from headatlas.figures.picture import Maps, Picture, picture_per_result
from headatlas.figures.style import palette as palette_of
from headatlas.results.about import describe_result
from headatlas.results.changes import change_matrix

REQUIRED = "the changes that its method declares, or tests of its maps"
CAPTION = (
    "Rows: the subject whose top heads were removed. Columns: the subject measured. Cells: the change; grey: not"
    " measured. A specialised map has its strongest cells on the diagonal."
)


def pictures(maps: Maps, charts: xr.Dataset) -> Iterator[Picture]:
    """Yield the figure of every result with such changes."""
    return picture_per_result("specialisation-{method}", maps, has_changes, specialisation, CAPTION)


def has_changes(result: xr.Dataset) -> bool:
    """Return whether a result has the effect of removing each subject's heads on other subjects."""
    return change_matrix(result) is not None


def specialisation(result: xr.Dataset, *, palette: str = PUBLISHED) -> Figure:
    """Draw the change of each subject (columns) after removing the heads of a subject (rows)."""
    check_dataset(result, REQUIRED)
    return draw(plan(result, palette))


def plan(result: xr.Dataset, colours: str = PUBLISHED) -> Matrix:
    """Plan the matrix."""
    measured = change_matrix(result)
    if measured is None:
        raise BadArgument(f"result has no changes of other subjects: the figure needs {REQUIRED}")
    largest = float(np.nanmax(np.abs(measured.values)))
    step = neat_step(largest or 1.0)
    return Matrix(
        heading=describe_result(result) + (f" · {measured.n_heads} heads removed" if measured.n_heads else ""),
        rows=measured.rows,
        columns=measured.columns,
        values=measured.values,
        ylabel="heads removed of",
        xlabel="subject measured",
        label=f"change of {measured.measure}",
        limit=step * float(np.ceil(largest / step)) or step,
        show_numbers=True,
        borders=[],
        colours=palette_of(colours).diverging,
        side_points={},
    )
