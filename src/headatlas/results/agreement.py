"""Does a result agree with others of the same subject, and with itself? For all results of an atlas at once."""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from headatlas.evidence.agreement import spearman_matrix, stability
from headatlas.methods import measures_of
from headatlas.results.charts import overview


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
