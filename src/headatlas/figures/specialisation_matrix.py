"""F4, the specialisation matrix: whose heads were removed, and what that did to every function."""

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

NEEDS = "the changes that its method declares, or effect(function) and other_effect(function, other)"
SAYS = (
    "Rows: whose top heads were removed. Columns: which function was asked. Cells: how the answers changed."
    " A specialised map has its strongest cells on the diagonal."
)


def pictures(maps: Maps, charts: xr.Dataset) -> Iterator[Picture]:
    return of_each("specialisation-{method}", maps, has_changes, specialisation, SAYS)


def has_changes(result: xr.Dataset) -> bool:
    """Whether it says what removing a function's heads did to every function."""
    return change_matrix(result) is not None


def specialisation(result: xr.Dataset, *, palette: str = PUBLISHED) -> Figure:
    """Rows: whose heads were removed. Columns: which function was asked. Cells: the change."""
    check_dataset(result, NEEDS)
    return draw(plan(result, palette))


def plan(result: xr.Dataset, colours: str = PUBLISHED) -> Matrix:
    """What the matrix shows."""
    measured = change_matrix(result)
    if measured is None:
        raise BadArgument(f"result has no {NEEDS.replace(', or', ' nor')}: it was made without proof")
    rows, columns, values, measure = measured
    n_removed = n_heads_removed(result)
    step = neat_step(float(np.nanmax(np.abs(values))) or 1.0)
    return Matrix(
        heading=describe_result(result) + (f" · {n_removed} heads removed" if n_removed else ""),
        rows=rows,
        columns=columns,
        values=values,
        ylabel="heads removed of",
        xlabel="function asked",
        label=f"change of {measure}",
        limit=step * float(np.ceil(np.nanmax(np.abs(values)) / step)) or step,
        written=True,
        borders=[],
        colours=palette_of(colours).diverging,
        beside={},
    )
