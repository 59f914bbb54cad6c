"""What can be said of a map where no truth is known: does it agree with others, does it agree with itself, does removal hurt?"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import xarray as xr
from scipy.stats import false_discovery_control

from headatlas.results.charts import MEASURES, overview
from headatlas.evidence.agreement import TOP, spearman_matrix, stability
from headatlas.evidence.removal import Heads, draw_like, top_heads

AGAIN = {"gate": ("facilitation", "seed"), "taylor": ("effect_half", "half")}
AGAIN |= {"ig": AGAIN["taylor"], "ablate": AGAIN["taylor"]}

DRAWS, AT_ONCE, ENOUGH = 59, 10, 5  # of random heads: at most, at a time, and how many must lose as much to stop

LogP = Callable[[Sequence[Heads]], np.ndarray]
"""Sets of heads → mean log P of the right answers with each set removed."""


def removal_test(score: np.ndarray, log_p: LogP, *, draws: int = DRAWS, seed: int = 0) -> tuple[float, float, float]:
    """The top 5 % of a map [layer, head] removed: loss of log P, mean loss over random heads of the same layers, and a p-value."""
    heads = top_heads(score, max(1, round(TOP * np.isfinite(score).sum())))
    generator = np.random.default_rng(seed)
    whole, without = log_p([[], heads])

    def lost_by_chance(some: int) -> np.ndarray:
        return whole - log_p([draw_like(heads, score.shape[1], generator) for _ in range(some)])

    by_chance, p = against_chance(whole - without, lost_by_chance, draws)
    return float(whole - without), float(by_chance.mean()), p


def against_chance(
    lost: float, draw: Callable[[int], np.ndarray], draws: int, at_once: int = AT_ONCE
) -> tuple[np.ndarray, float]:
    """What so many draws of random heads lose, and how often they lose as much as was lost: a p-value.

    Drawing ends early where five already do (Besag and Clifford 1991): the p-value holds all the same.
    """
    if not np.isfinite(lost):
        return np.full(draws, np.nan), 1.0
    found = np.empty(0)
    while len(found) < draws and (~(found < lost)).sum() < ENOUGH:
        found = np.append(found, draw(min(at_once, draws - len(found))))
    as_much = np.flatnonzero(~(found < lost))
    p = ENOUGH / (as_much[ENOUGH - 1] + 1) if len(as_much) >= ENOUGH else (1 + len(as_much)) / (1 + len(found))
    return found, float(p)


def agreement_of(maps: Mapping[str, xr.Dataset]) -> dict[tuple[str, str], float]:
    """(method, subject) → mean Spearman with the other methods' first measures of the same subject, where there are any."""
    charts = overview(maps)
    flat = charts.score.transpose("chart", "layer", "head").values.reshape(charts.sizes["chart"], -1)
    labels = list(zip(charts.method.values, charts.measure.values, charts.subject.values, strict=True))
    first = [i for i, (method, measure, _) in enumerate(labels) if MEASURES[method][0][0] == measure]
    rho = spearman_matrix(flat)
    found = {}
    for i in first:
        others = [j for j in first if j != i and labels[j][2] == labels[i][2]]
        if others:
            found[str(labels[i][0]), str(labels[i][2])] = float(np.nanmean(rho[i, others]))
    return found


def stability_of(maps: Mapping[str, xr.Dataset]) -> dict[tuple[str, str], float]:
    """(method, subject) → Spearman of a map with itself over seeds, or over halves of the data."""
    found: dict[tuple[str, str], float] = {}
    for method, (measure, dim) in AGAIN.items():
        if method in maps and measure in maps[method] and maps[method].sizes.get(dim, 0) > 1:
            over = MEASURES[method][0][1]
            again = stability(maps[method][measure], dim).spearman
            found |= {(method, str(s)): float(again.sel({over: s})) for s in again[over].values}
    return found


def corrected(p: np.ndarray) -> np.ndarray:
    """p-values corrected for their number (Benjamini and Hochberg)."""
    return false_discovery_control(p) if len(p) else np.empty(0)
