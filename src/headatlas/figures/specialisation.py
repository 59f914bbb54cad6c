"""F4, the specialisation matrix: whose heads were removed, and what that did to every function."""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from headatlas.errors import BadArgument
from headatlas.figures.matrix import Matrix, draw
from headatlas.figures.style import PUBLISHED
from headatlas.figures.style import palette as palette_of
from headatlas.headmap.about import about
from headatlas.headmap.scale import neat_step


def specialisation(found: xr.Dataset, *, palette: str = PUBLISHED) -> Figure:
    """Rows: whose top heads were removed. Columns: which function was asked. Cells: the change. As `probe` gives."""
    return draw(plan(found, palette))


def plan(found: xr.Dataset, colours: str = PUBLISHED) -> Matrix:
    """What the matrix shows."""
    if "specialisation" not in found:
        raise BadArgument("found has no specialisation(function, masked, measure): it was made without proof")
    measure = "log_p" if "log_p" in found.measure.values else found.measure.values[0]
    change = found.specialisation.sel(measure=measure).transpose("masked", "function")
    values = change.values.astype(np.float64)
    step = neat_step(float(np.nanmax(np.abs(values))) or 1.0)
    return Matrix(
        heading=f"{about(found)} · {int(found.masked_heads)} heads removed"
        if "masked_heads" in found
        else about(found),
        rows=[str(v) for v in change.masked.values],
        columns=[str(v) for v in change.function.values],
        values=values,
        ylabel="top heads removed of",
        xlabel="function asked",
        label=f"change of {'log P' if measure == 'log_p' else measure}",
        limit=step * float(np.ceil(np.nanmax(np.abs(values)) / step)) or step,
        written=True,
        borders=[],
        colours=palette_of(colours).diverging,
        beside={},
    )
