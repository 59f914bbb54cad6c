"""How well maps agree with themselves over repeats, and how much data a reliable map would take."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from headatlas.comparison.pairs import compare_all_pairs
from headatlas.comparison.side_by_side import named_results
from headatlas.errors import BadArgument
from headatlas.evidence.reliability import RELIABLE, spearman_brown
from headatlas.methods import measures_of
from headatlas.methods.method import Measure
from headatlas.results.stored_reliability import UNKNOWN, reliability_of, variable_name

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
    return "halves" if over == "half" else f"{over.replace('_', ' ')}s"


def _has_repeats(measure: Measure, result: xr.Dataset, over: str) -> bool:
    if isinstance(measure.repeats, str) or measure.repeats[0] not in result:
        return False
    variable, dim = measure.repeats
    return dim == over and result[variable].sizes.get(over, 0) > 1


def _repeats_of_measure(
    label: str, method: str, measure: Measure, result: xr.Dataset, over: str, top: int | None
) -> xr.Dataset:
    """Apply `between_repeats` to a measure; its subjects become the dimension (chart)."""
    assert not isinstance(measure.repeats, str)
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


def map_reliability(results: Mapping[str, xr.Dataset]) -> dict[tuple[str, str], float]:
    """Return the reliability of the maps of each method's first measure, by method and subject; NaN if unknown."""
    return {
        (name, subject): reliability
        for name, result in results.items()
        for measure in measures_of(name)[:1]
        if measure.name in result
        for subject, reliability in reliability_of(result, measure, measures_of(name)).items()
    }


def reliability_warnings(results: Mapping[str, xr.Dataset]) -> list[str]:
    """Return a line for every map with a reliability below 0.8, with the data that 0.8 would take.

    The amount of data is estimated by the Spearman–Brown formula. Maps of unknown reliability share a line per measure.
    """
    lines = []
    for name, result in results.items():
        measures = measures_of(name)
        for measure in measures:
            if measure.name not in result:
                continue
            suffix = f", {measure.name}" if len(measures) > 1 else ""
            reliability = reliability_of(result, measure, measures)
            unknown = [subject for subject, value in reliability.items() if np.isnan(value)]
            if unknown:
                subjects = "" if len(unknown) == len(reliability) else f": {', '.join(unknown)}"
                reason = f": {measure.repeats}" if isinstance(measure.repeats, str) and measure.repeats else ""
                lines.append(f"{name}{subjects}{suffix}: {UNKNOWN}{reason}")
            lines += [
                f"{name}: {subject}{suffix}: {_warning(name, measure, result, subject, value)}"
                for subject, value in reliability.items()
                if value < RELIABLE
            ]
    return lines


def _warning(method: str, measure: Measure, result: xr.Dataset, subject: str, reliability: float) -> str:
    repeats = result[variable_name("repeats", measure, measures_of(method))]
    n = int(repeats.sel({measure.over: subject}))
    dim = repeats.attrs["over"]
    warning = f"reliability {reliability:.2f} between halves of {n} {plural(dim)}"
    option = plural(dim) if dim in ("seed", "refit") else measure.examples[1] if measure.examples else ""
    if not option or "imported" in result.attrs:
        return warning
    bound = "more than" if reliability <= MIN_CORRELATION else "about"
    times = data_factor_needed(max(reliability, MIN_CORRELATION), RELIABLE)
    command = f"headatlas {method.replace('_', '-')} --{option}"
    return f"{warning}; halves of {bound} {round_up_in_words(n * times)} would reach {RELIABLE} ({command})"


def data_factor_needed(correlation: float, wanted: float) -> float:
    """Return how many times as much data two maps need to correlate at `wanted` (the inverse of Spearman–Brown)."""
    if not 0 < correlation < 1 or not 0 < wanted < 1:
        raise BadArgument(f"correlation is {correlation} and wanted is {wanted}, expected both between 0 and 1")
    return wanted * (1 - correlation) / (correlation * (1 - wanted))


def round_up_in_words(number: float) -> str:
    """Round up a number above 1 to two digits, as it is an estimate, and write it with commas for thousands."""
    unit = 10 ** max(0, math.floor(math.log10(number)) - 1)
    return f"{math.ceil(number / unit - 1e-9) * unit:,}"
