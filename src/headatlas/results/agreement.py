"""Does a result agree with others of the same subject, and with itself? For all results of an atlas at once."""

import math
from collections.abc import Mapping

import numpy as np
import xarray as xr

from headatlas.evidence.agreement import spearman_matrix, stability, times_needed
from headatlas.methods import measures_of
from headatlas.methods.method import Measure
from headatlas.results.charts import overview

STABLE, UNSTABLE = 0.8, 0.5
LEAST = 0.05  # a correlation so low says only that it takes more than it would from there


def agreement_of(results: Mapping[str, xr.Dataset]) -> dict[tuple[str, str], float]:
    """(method, subject) → mean Spearman with the first measures of other methods that have the same subject."""
    charts = overview(results)
    flat = charts.score.transpose("chart", "layer", "head").values.reshape(charts.sizes["chart"], -1)
    labels = list(zip(charts.method.values, charts.measure.values, charts.subject.values, strict=True))
    first = [i for i, (method, measure, _) in enumerate(labels) if measures_of(method)[0].name == measure]
    rho = spearman_matrix(flat)
    means = {}
    for i in first:
        others = [j for j in first if j != i and labels[j][2] == labels[i][2]]
        if others:
            means[str(labels[i][0]), str(labels[i][2])] = float(np.nanmean(rho[i, others]))
    return means


def stability_of(results: Mapping[str, xr.Dataset]) -> dict[tuple[str, str], float]:
    """(method, subject) → Spearman of a map with itself over seeds, or over halves of the data."""
    means: dict[tuple[str, str], float] = {}
    for name, result in results.items():
        measures = measures_of(name)
        if not measures or not measures[0].repeats:
            continue
        over, (variable, dim) = measures[0].over, measures[0].repeats
        if variable in result and result.sizes.get(dim, 0) > 1:
            again = stability(result[variable], dim).spearman
            means |= {(name, str(subject)): float(again.sel({over: subject})) for subject in again[over].values}
    return means


def unstable(results: Mapping[str, xr.Dataset]) -> list[str]:
    """A line for every map that agrees with itself to less than 0.5, and how much data 0.8 would take.

    The number is an estimate from the map's own halves or seeds, by the Spearman–Brown formula.
    """
    return [
        f"{name}: {subject}: {_in_words(name, measures_of(name)[0], results[name], subject, correlation)}"
        for (name, subject), correlation in stability_of(results).items()
        if correlation < UNSTABLE and "imported" not in results[name].attrs
    ]


def _in_words(method: str, measure: Measure, result: xr.Dataset, subject: str, correlation: float) -> str:
    assert measure.repeats is not None
    dim, command = measure.repeats[1], f"headatlas {method.replace('_', '-')}"
    bound = "more than" if correlation <= LEAST else "about"
    times = times_needed(max(correlation, LEAST), STABLE)
    if dim != "half":  # the map is the mean over them, so that each counts once
        needs = f"the mean over {bound} {rounded_up(times)} would be stable to {STABLE} ({command} --{dim}s)"
        return f"{correlation:.2f} between {dim}s; {needs}"
    counted, option = measure.examples or ("", "")
    if counted not in result and counted not in result.attrs:
        return f"{correlation:.2f} between halves of the data"
    n = int(result[counted].sel({measure.over: subject}) if counted in result else result.attrs[counted])
    needs = f"halves of {bound} {rounded_up(n * times)} would agree to {STABLE} ({command} --{option})"
    return f"{correlation:.2f} between halves of {n} examples; {needs}"


def rounded_up(number: float) -> str:
    """A number above 1 in words, with two digits: an estimate has no more."""
    unit = 10 ** max(0, math.floor(math.log10(number)) - 1)
    return f"{math.ceil(number / unit - 1e-9) * unit:,}"
