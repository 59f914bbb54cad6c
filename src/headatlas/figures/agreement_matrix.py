"""F4, agreement: whether different maps, maps of different atlases, and fits of one map rank heads alike."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from headatlas.comparison.compare import correlation_matrix
from headatlas.comparison.pairs import spearman_matrix
from headatlas.errors import BadArgument
from headatlas.figures.arguments import check_dataset, missing_error
from headatlas.figures.figure_names import PUBLISHED
from headatlas.figures.matrix import Matrix, draw
from headatlas.figures.picture import Maps, Picture
from headatlas.figures.style import palette as palette_of
from headatlas.methods import measures_of
from headatlas.methods._chance import AT_CHANCE
from headatlas.results.charts import stack_maps
from headatlas.results.reading import results_of

CAPTION_OF_COMPARISON = (
    "Spearman correlation over heads of every two maps of several atlases. If a map has one score per KV group, the"
    " correlation is over groups, by the maximum of their heads. Grey: not known."
)
REQUIRED = "two maps in which heads differ"
CAPTION = (
    "Spearman correlation over heads of every two maps; right: of every two fits of a map, if there are several."
    " A map marked (at chance) has no head above chance; one marked (not supported) did not pass its test."
)


def pictures(maps: Maps, charts: xr.Dataset) -> Iterator[Picture]:
    """Yield the figure if heads differ in at least two maps."""
    varied = charts.score.max(("layer", "head")) > charts.score.min(("layer", "head")) if charts.sizes["chart"] else ()
    if sum(map(bool, varied)) > 1:
        methods = list(dict.fromkeys(charts.method.values.tolist()))
        yield Picture("agreement", partial(agreement, maps), CAPTION, methods)


def agreement(maps: Any, *, palette: str = PUBLISHED) -> Figure:
    """Draw the Spearman correlation over heads of all maps of an atlas, and between the fits (seeds) of a map.

    maps: an atlas, its folder, a result, or results by method.
    """
    return draw(plan(results_of("maps", maps), palette))


def plan(maps: Maps, colours: str = PUBLISHED) -> Matrix:
    """Plan the matrix."""
    charts = stack_maps(maps)
    score = charts.score.transpose("chart", "layer", "head").values.reshape(charts.sizes["chart"], -1)
    varied = [i for i, s in enumerate(score) if len(np.unique(s[~np.isnan(s)])) > 1]
    if len(varied) < 2:
        raise BadArgument(f"maps has {len(varied)} maps in which heads differ, expected at least two to compare")
    charts = charts.isel(chart=varied)
    labels = zip(charts.chart.values, charts.method.values, charts.none_above.values, strict=True)
    names = [f"{name} ({AT_CHANCE})" if none_above else str(name) for name, method, none_above in labels]
    values = spearman_matrix(score[varied])
    kinds = list(zip(charts.method.values, charts.measure.values, strict=True))
    model = str(next(iter(maps.values())).attrs.get("model", ""))
    side_title, side_points = _between_repeats(maps)
    return Matrix(
        heading=" · ".join(part for part in ("Agreement of maps", model) if part),
        rows=names,
        columns=names,
        values=values,
        ylabel="",
        xlabel="",
        label="Spearman correlation over heads",
        limit=1.0,
        show_numbers=len(names) <= 10,
        borders=[i for i in range(1, len(kinds)) if kinds[i] != kinds[i - 1]],
        colours=palette_of(colours).diverging,
        side_points=side_points,
        side_title=side_title,
    )


def agreed(result: xr.Dataset, *, palette: str = PUBLISHED) -> Figure:
    """Draw the Spearman correlation of every two maps that `ha.compare` compared; KV groups by their maximum.

    result: what `ha.compare` returned.
    """
    check_dataset(result, "the pairs of ha.compare")
    return draw(plan_comparison(result, palette))


def plan_comparison(result: xr.Dataset, colours: str = PUBLISHED) -> Matrix:
    """Plan the matrix of a result of `ha.compare`: the maps that can be compared, by atlas."""
    if not {"a", "b", "chart", "spearman"} <= set(result.variables):
        raise missing_error(result, ("a", "b", "chart", "spearman"), "the pairs of ha.compare")
    values = correlation_matrix(result)
    comparable = np.flatnonzero(values.notnull().any("other").values)
    if not len(comparable):
        raise BadArgument("result has no two maps in which heads differ, expected at least two to compare")
    values = values.isel(chart=comparable, other=comparable)
    atlas = result.atlas.values[comparable]
    names = [str(name) for name in values.chart.values]
    return Matrix(
        heading="Agreement of maps",
        rows=names,
        columns=names,
        values=values.values,
        ylabel="",
        xlabel="",
        label="Spearman correlation",
        limit=1.0,
        show_numbers=len(names) <= 10,
        borders=[i for i in range(1, len(names)) if atlas[i] != atlas[i - 1]],
        colours=palette_of(colours).diverging,
        side_points={},
    )


def _between_repeats(maps: Maps) -> tuple[str, dict[str, np.ndarray]]:
    """Return a title, and by map the Spearman correlation of every two fits that the map averages."""
    between: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    for method, result in maps.items():
        over = next((m.repeats[1] for m in measures_of(method) if not isinstance(m.repeats, str)), "")
        fitted = [m for m in measures_of(method) if m.name in result and result[m.name].sizes.get(over, 0) > 1]
        for subject, measure in sorted(
            ((s, m) for m in fitted for s in range(result.sizes[m.over])), key=lambda p: p[0]
        ):
            fits = result[measure.name].isel({measure.over: subject}).transpose(over, "layer", "head").values
            pairs = spearman_matrix(fits.reshape(len(fits), -1))[np.triu_indices(len(fits), 1)]
            name = f"{result[measure.over].values[subject]}, {measure.name}"
            between.setdefault((method, over), {})[name] = pairs
    if len(between) == 1:
        ((method, over), rows), *_ = between.items()
        return f"{over.capitalize()}s of the {method} maps, pairwise", rows
    return "Fits of each map, pairwise", {f"{m}: {n}": v for (m, _), rows in between.items() for n, v in rows.items()}
