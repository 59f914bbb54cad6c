"""F4, agreement: do maps of different methods, and fits of one, rank heads alike?"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from headatlas.errors import BadArgument
from headatlas.figures.matrix import Matrix, draw
from headatlas.figures.style import PUBLISHED
from headatlas.figures.style import palette as palette_of
from headatlas.results.chance import no_rank
from headatlas.results.charts import overview
from headatlas.results.reading import results_of
from headatlas.methods.gate.fits import ROLES
from headatlas.evidence.agreement import spearman_matrix


def agreement(maps: Any, *, palette: str = PUBLISHED) -> Figure:
    """Spearman correlation over heads of all maps of an atlas, and between a gate map's seeds.

    maps: an atlas, its folder, a result, or results by method.
    """
    return draw(plan(results_of("maps", maps), palette))


def plan(maps: Mapping[str, xr.Dataset], colours: str = PUBLISHED) -> Matrix:
    """What the matrix shows."""
    charts = overview(maps)
    score = charts.score.transpose("chart", "layer", "head").values.reshape(charts.sizes["chart"], -1)
    varied = [i for i, s in enumerate(score) if len(np.unique(s[~np.isnan(s)])) > 1]
    if len(varied) < 2:
        raise BadArgument(f"maps has {len(varied)} maps in which heads differ, expected at least two to compare")
    charts = charts.isel(chart=varied)
    each = zip(charts.chart.values, charts.method.values, charts.none_above.values, strict=True)
    names = [f"{name} ({no_rank(method)})" if none else str(name) for name, method, none in each]
    values = spearman_matrix(score[varied])
    kinds = list(zip(charts.method.values, charts.measure.values, strict=True))
    return Matrix(
        heading=" · ".join(
            p for p in ("Agreement of maps", str(next(iter(maps.values())).attrs.get("model", ""))) if p
        ),
        rows=names,
        columns=names,
        values=values,
        ylabel="",
        xlabel="",
        label="Spearman correlation over heads",
        limit=1.0,
        written=len(names) <= 10,
        borders=[i for i in range(1, len(kinds)) if kinds[i] != kinds[i - 1]],
        colours=palette_of(colours).diverging,
        beside=_between_seeds(maps),
    )


def _between_seeds(maps: Mapping[str, xr.Dataset]) -> dict[str, np.ndarray]:
    """Spearman correlation of every two seeds, by task and role."""
    found = maps.get("gate")
    if found is None or found.sizes.get("seed", 0) < 2:
        return {}
    between = {}
    for i, task in enumerate(found.task.values.tolist()):
        for role in ROLES:
            if role in found:
                seeds = found[role].isel(task=i).transpose("seed", "layer", "head").values
                every_two = np.triu_indices(len(seeds), 1)
                between[f"{task}, {role}"] = spearman_matrix(seeds.reshape(len(seeds), -1))[every_two]
    return between
