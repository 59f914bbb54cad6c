"""How well a map agrees with itself over seeds or halves of the data, and how much data it would take."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from headatlas.comparison.pairs import compare_all_pairs
from headatlas.comparison.side_by_side import named_results
from headatlas.errors import BadArgument
from headatlas.methods import measures_of
from headatlas.methods.method import Measure

# Spearman correlation between repeats of a map that counts as stable.
STABLE_CORRELATION = 0.8
# Below this correlation, a warning is printed.
UNSTABLE_CORRELATION = 0.5
# From a lower correlation, only a lower bound of the data that it takes can be given.
MIN_CORRELATION = 0.05


def between_repeats(score: xr.DataArray, over: str, top: int | None = None) -> xr.Dataset:
    """Compare the repeats of a map with each other, over a dimension such as seed or half.

    Args:
        score: a map with the dimensions layer, head and `over`; others (such as task) are kept.
        over: dimension of the repeats.
        top: number of top heads to compare (default: 5 %).

    Returns:
        Means over every two repeats: `spearman`, and the number of the `top` heads that are `shared`. `spearman_whole`
        is the expected correlation between two means of all repeats (Spearman–Brown).
    """
    if over not in score.dims or score.sizes[over] < 2:
        raise BadArgument(
            f"over is {over!r}, expected a dimension with at least 2 labels; this map has {dict(score.sizes)}"
        )
    rest = [d for d in score.dims if d not in (over, "layer", "head")]
    sizes = [score.sizes[d] for d in rest]
    repeats = score.sizes[over]
    n_heads = score.sizes["layer"] * score.sizes["head"]
    values = score.transpose(*rest, over, "layer", "head").values.reshape(-1, repeats, n_heads)
    layer = np.repeat(np.arange(score.sizes["layer"]), score.sizes["head"])
    pairs = np.triu_indices(repeats, 1)
    means: dict[str, list[float]] = {"spearman": [], "shared": [], "top": []}
    for maps in values:
        numbers = compare_all_pairs(maps, layer, top, draws=0)
        for name, column in means.items():
            finite = numbers[name][pairs]
            finite = finite[np.isfinite(finite)]
            column.append(float(finite.mean()) if len(finite) else np.nan)
    variables = {name: (rest, np.array(column).reshape(sizes)) for name, column in means.items()}
    result = xr.Dataset(variables, coords={d: score[d] for d in rest if d in score.coords})
    # The formula assumes that repeats share a signal: it means nothing without a correlation above 0.
    whole_map = spearman_brown(result.spearman.where(result.spearman > 0), repeats)
    return result.assign(spearman_whole=whole_map).assign_attrs(over=over, repeats=repeats)


def between_repeats_of_results(atlases: Sequence[Any], over: str, top: int | None = None) -> xr.Dataset:
    """Apply `between_repeats` to every map that has such repeats; the result is over (chart)."""
    rows = [
        _repeats_of_measure(label, method, measure, result, over, top)
        for label, results in named_results(atlases).items()
        for method, result in results.items()
        for measure in measures_of(method)
        if _has_repeats(measure, result, over)
    ]
    if not rows:
        raise BadArgument(f"over is {over!r}, but no map has several {plural(over)}")
    return xr.concat(rows, "chart").assign_attrs(over=over)


def plural(over: str) -> str:
    """Return the plural of a dimension of repeats: 'seeds', 'halves'."""
    return "halves" if over == "half" else f"{over}s"


def _has_repeats(measure: Measure, result: xr.Dataset, over: str) -> bool:
    if measure.repeats is None or measure.repeats[0] not in result:
        return False
    variable, dim = measure.repeats
    return dim == over and result[variable].sizes.get(over, 0) > 1


def _repeats_of_measure(
    label: str, method: str, measure: Measure, result: xr.Dataset, over: str, top: int | None
) -> xr.Dataset:
    """Apply `between_repeats` to a measure; its subjects become the dimension (chart)."""
    assert measure.repeats is not None
    numbers = between_repeats(result[measure.repeats[0]], over, top)
    subjects = [str(subject) for subject in result[measure.over].values]
    suffix = f", {measure.name}" if len(measures_of(method)) > 1 else ""
    names = {
        "chart": [f"{method}: {subject}{suffix}" for subject in subjects],
        "atlas": [label] * len(subjects),
        "method": [method] * len(subjects),
        "measure": [measure.name] * len(subjects),
        "subject": subjects,
    }
    charts = numbers.drop_vars(measure.over, errors="ignore").rename({measure.over: "chart"}).drop_attrs()
    charts = charts.assign(repeats=("chart", [numbers.attrs["repeats"]] * len(subjects)))
    return charts.assign_coords({name: ("chart", values) for name, values in names.items()})


def map_stability(results: Mapping[str, xr.Dataset]) -> dict[tuple[str, str], float]:
    """Return the Spearman correlation between repeats (seeds or halves) of each map, by method and subject."""
    means: dict[tuple[str, str], float] = {}
    for name, result in results.items():
        measures = measures_of(name)
        if not measures or not measures[0].repeats:
            continue
        over, (variable, dim) = measures[0].over, measures[0].repeats
        if variable in result and result.sizes.get(dim, 0) > 1:
            correlations = between_repeats(result[variable], dim).spearman
            for subject in correlations[over].values:
                means[name, str(subject)] = float(correlations.sel({over: subject}))
    return means


def stability_warnings(results: Mapping[str, xr.Dataset]) -> list[str]:
    """Return a line for every map whose repeats correlate at less than 0.5, with the data that 0.8 would take.

    The amount of data is estimated from the map's halves or seeds by the Spearman–Brown formula.
    """
    return [
        f"{name}: {subject}: {_warning(name, measures_of(name)[0], results[name], subject, correlation)}"
        for (name, subject), correlation in map_stability(results).items()
        if correlation < UNSTABLE_CORRELATION and "imported" not in results[name].attrs
    ]


def _warning(method: str, measure: Measure, result: xr.Dataset, subject: str, correlation: float) -> str:
    assert measure.repeats is not None
    dim, command = measure.repeats[1], f"headatlas {method.replace('_', '-')}"
    bound = "more than" if correlation <= MIN_CORRELATION else "about"
    times = data_factor_needed(max(correlation, MIN_CORRELATION), STABLE_CORRELATION)
    if dim != "half":
        # The map is the mean over the seeds, and each of them is one unit of data.
        return (
            f"{correlation:.2f} between {dim}s; means over {bound} {round_up_in_words(times)} {dim}s would correlate"
            f" at {STABLE_CORRELATION} ({command} --{dim}s)"
        )
    variable, option = measure.examples or ("", "")
    if variable not in result and variable not in result.attrs:
        return f"{correlation:.2f} between halves of the data"
    n = int(result[variable].sel({measure.over: subject}) if variable in result else result.attrs[variable])
    return (
        f"{correlation:.2f} between halves of {n} examples; halves of {bound} {round_up_in_words(n * times)} would"
        f" correlate at {STABLE_CORRELATION} ({command} --{option})"
    )


def spearman_brown(correlation: Any, times: float) -> Any:
    """Predict the correlation of two maps if each were made from `times` as much data (Spearman–Brown)."""
    return times * correlation / (1 + (times - 1) * correlation)


def data_factor_needed(correlation: float, wanted: float) -> float:
    """Return how many times as much data two maps need to correlate at `wanted` (the inverse of Spearman–Brown)."""
    if not 0 < correlation < 1 or not 0 < wanted < 1:
        raise BadArgument(f"correlation is {correlation} and wanted is {wanted}, expected both between 0 and 1")
    return wanted * (1 - correlation) / (correlation * (1 - wanted))


def round_up_in_words(number: float) -> str:
    """Round up a number above 1 to two digits, as it is an estimate, and write it with commas for thousands."""
    unit = 10 ** max(0, math.floor(math.log10(number)) - 1)
    return f"{math.ceil(number / unit - 1e-9) * unit:,}"
