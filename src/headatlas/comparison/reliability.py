"""Does a map agree with itself, over seeds and over halves of the data? And how much data would it take?"""

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

STABLE_CORRELATION, UNSTABLE_CORRELATION = 0.8, 0.5
MIN_CORRELATION = 0.05  # a correlation so low says only that it takes more than it would from there


def between_repeats(score: xr.DataArray, over: str, top: int | None = None) -> xr.Dataset:
    """How far a map agrees with itself over a dimension such as seed or half, on average over every two repeats.

    `spearman`, and how many of the `top` heads are `shared`; `spearman_whole` is what the mean of all repeats would
    correlate to with another such mean (Spearman–Brown).
    """
    if over not in score.dims or score.sizes[over] < 2:
        raise BadArgument(
            f"over is {over!r}, expected a dimension of at least 2 of this map, which has {dict(score.sizes)}"
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
            known = numbers[name][pairs]
            known = known[np.isfinite(known)]
            column.append(float(known.mean()) if len(known) else np.nan)
    variables = {name: (rest, np.array(column).reshape(sizes)) for name, column in means.items()}
    result = xr.Dataset(variables, coords={d: score[d] for d in rest if d in score.coords})
    # The formula is for maps that share something: without a correlation above 0, more data tell nothing.
    whole = spearman_brown(result.spearman.where(result.spearman > 0), repeats)
    return result.assign(spearman_whole=whole).assign_attrs(over=over, repeats=repeats)


def between_repeats_of_results(atlases: Sequence[Any], over: str, top: int | None = None) -> xr.Dataset:
    """`between_repeats` of every map that has such repeats, over (chart)."""
    rows = [
        _of_measure(label, method, measure, result, over, top)
        for label, results in named_results(atlases).items()
        for method, result in results.items()
        for measure in measures_of(method)
        if _has_repeats(measure, result, over)
    ]
    if not rows:
        raise BadArgument(f"over is {over!r}, but no map here has several {plural(over)}")
    return xr.concat(rows, "chart").assign_attrs(over=over)


def plural(over: str) -> str:
    """A dimension of repeats in words: 'seeds', 'halves'."""
    return "halves" if over == "half" else f"{over}s"


def _has_repeats(measure: Measure, result: xr.Dataset, over: str) -> bool:
    if measure.repeats is None or measure.repeats[0] not in result:
        return False
    variable, dim = measure.repeats
    return dim == over and result[variable].sizes.get(over, 0) > 1


def _of_measure(
    label: str, method: str, measure: Measure, result: xr.Dataset, over: str, top: int | None
) -> xr.Dataset:
    """`between_repeats` of a measure, over (chart) instead of its subjects."""
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
    """(method, subject) → Spearman of a map with itself over seeds, or over halves of the data."""
    means: dict[tuple[str, str], float] = {}
    for name, result in results.items():
        measures = measures_of(name)
        if not measures or not measures[0].repeats:
            continue
        over, (variable, dim) = measures[0].over, measures[0].repeats
        if variable in result and result.sizes.get(dim, 0) > 1:
            again = between_repeats(result[variable], dim).spearman
            means |= {(name, str(subject)): float(again.sel({over: subject})) for subject in again[over].values}
    return means


def stability_warnings(results: Mapping[str, xr.Dataset]) -> list[str]:
    """A line for every map that agrees with itself to less than 0.5, and how much data 0.8 would take.

    The number is an estimate from the map's own halves or seeds, by the Spearman–Brown formula.
    """
    return [
        f"{name}: {subject}: {_in_words(name, measures_of(name)[0], results[name], subject, correlation)}"
        for (name, subject), correlation in map_stability(results).items()
        if correlation < UNSTABLE_CORRELATION and "imported" not in results[name].attrs
    ]


def _in_words(method: str, measure: Measure, result: xr.Dataset, subject: str, correlation: float) -> str:
    assert measure.repeats is not None
    dim, command = measure.repeats[1], f"headatlas {method.replace('_', '-')}"
    bound = "more than" if correlation <= MIN_CORRELATION else "about"
    times = data_factor_needed(max(correlation, MIN_CORRELATION), STABLE_CORRELATION)
    if dim != "half":  # the map is the mean over them, so that each counts once
        needs = f"the mean over {bound} {round_up_in_words(times)} would be stable to {STABLE_CORRELATION} ({command} --{dim}s)"
        return f"{correlation:.2f} between {dim}s; {needs}"
    counted, option = measure.examples or ("", "")
    if counted not in result and counted not in result.attrs:
        return f"{correlation:.2f} between halves of the data"
    n = int(result[counted].sel({measure.over: subject}) if counted in result else result.attrs[counted])
    needs = (
        f"halves of {bound} {round_up_in_words(n * times)} would agree to {STABLE_CORRELATION} ({command} --{option})"
    )
    return f"{correlation:.2f} between halves of {n} examples; {needs}"


def spearman_brown(correlation: Any, times: float) -> Any:
    """What two maps that correlate so would correlate to, if each were made of `times` the data (Spearman–Brown)."""
    return times * correlation / (1 + (times - 1) * correlation)


def data_factor_needed(correlation: float, wanted: float) -> float:
    """Of how many times the data two maps must be made to correlate to `wanted` (Spearman–Brown, solved for it)."""
    if not 0 < correlation < 1 or not 0 < wanted < 1:
        raise BadArgument(f"correlation is {correlation} and wanted is {wanted}, expected both between 0 and 1")
    return wanted * (1 - correlation) / (correlation * (1 - wanted))


def round_up_in_words(number: float) -> str:
    """A number above 1 in words, with two digits: an estimate has no more."""
    unit = 10 ** max(0, math.floor(math.log10(number)) - 1)
    return f"{math.ceil(number / unit - 1e-9) * unit:,}"
