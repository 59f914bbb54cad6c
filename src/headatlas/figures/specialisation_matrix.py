"""F4, the specialisation matrix: whose heads were removed, and what that did to every function."""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from headatlas.errors import BadArgument
from headatlas.figures.matrix import Matrix, draw
from headatlas.figures.style import PUBLISHED
from headatlas.figures.style import palette as palette_of
from headatlas.results.about import about
from headatlas.results.curves import changes
from headatlas.results.reading import check_result
from headatlas.results.scale import neat_step


def specialisation(found: xr.Dataset, *, palette: str = PUBLISHED) -> Figure:
    """Rows: whose heads were removed. Columns: which function was asked. Cells: the change. As `probe` and `dissociate` give."""
    check_result("found", found, "dissociate")
    return draw(plan(found, palette))


def plan(found: xr.Dataset, colours: str = PUBLISHED) -> Matrix:
    """What the matrix shows."""
    said = changes(found)
    if said is None:
        raise BadArgument(
            "found has neither specialisation(function, masked, measure) nor other_effect(function, other): made without proof"
        )
    rows, columns, values, measure = said
    step = neat_step(float(np.nanmax(np.abs(values))) or 1.0)
    return Matrix(
        heading=f"{about(found)} · {int(found.masked_heads)} heads removed"
        if "masked_heads" in found
        else about(found),
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
