"""Collect what an atlas has on one head."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr

from headatlas.evidence.reliability import RELIABLE
from headatlas.methods import lists_of, measures_of
from headatlas.methods._chance import AT_CHANCE, members_above_chance, stored_members
from headatlas.results.charts import head_ranks, stack_maps
from headatlas.results.outcomes import Outcome, all_outcomes


@dataclass(frozen=True)
class Standing:
    """The score and the rank of a head in one chart.

    Attributes:
        low: lower end of the interval; NaN without one, as `high`.
        rank: 1 for the highest score; None at chance, where ranks mean nothing.
        n_heads: heads that have a score in this chart.
        chance: highest score that chance explains; NaN if unknown.
        reliability: of the chart; NaN if unknown.
        by_removal: whether the score was measured with only this head removed.
    """

    chart: str
    method: str
    subject: str
    measure: str
    value: float
    low: float
    high: float
    rank: int | None
    n_heads: int
    chance: float
    reliability: float
    by_removal: bool


@dataclass(frozen=True)
class Operation:
    """A token that a head amplifies, by which factor, and the tokens that the head then promotes and demotes most."""

    token: str
    gain: float
    promoted: list[str]
    demoted: list[str]


@dataclass(frozen=True)
class TestedSet:
    """A tested set of top heads that contains this head.

    Attributes:
        measure: measure that the heads are the top of.
    """

    method: str
    measure: str
    subject: str
    outcome: Outcome


@dataclass(frozen=True)
class Card:
    """What an atlas has on one head.

    Attributes:
        standings: best ranks first, then charts in which the head is at chance, then scores of 0.
    """

    layer: int
    head: int
    model: str
    standings: list[Standing]
    operations: list[Operation]
    categories: list[str]
    tested: list[TestedSet]

    @property
    def name(self) -> str:
        return f"L{self.layer}.H{self.head}"


def place_in_words(standing: Standing) -> str:
    """Say where a head ranks: 'rank 3, chance 0.05', 'at chance (0.05); reliability 0.41' if that is below 0.8."""
    level = "" if np.isnan(standing.chance) else f"{standing.chance:.2g}"
    note = f"; reliability {standing.reliability:.2f}" * (standing.reliability < RELIABLE)
    if standing.rank is not None:
        return f"rank {standing.rank}" + f", chance {level}" * bool(level) + note
    return AT_CHANCE + f" ({level})" * bool(level) + note


def card(maps: Mapping[str, xr.Dataset], layer: int, head: int) -> Card:
    """Collect the scores of one head in all charts, its ranks, token lists, categories and tested sets."""
    charts = stack_maps(maps)
    charts = charts.assign(rank=head_ranks(charts), n_heads=charts.score.count(("layer", "head")))
    standings = []
    for i, chart in enumerate(charts.chart.values.tolist()):
        entry = charts.isel(chart=i).sel(layer=layer, head=head)
        if np.isnan(entry.score):
            continue
        method = entry.method.item()
        subject = entry.subject.item()
        measure = entry.measure.item()
        standing = Standing(
            chart,
            method,
            subject,
            measure,
            value=float(entry.score),
            low=float(entry.low),
            high=float(entry.high),
            rank=None if entry.at_chance else int(entry["rank"]),
            n_heads=int(entry.n_heads),
            chance=float(entry.chance),
            reliability=float(entry.reliability),
            by_removal=any(m.by_removal for m in measures_of(method) if m.name == measure),
        )
        standings.append(standing)
    model = next((str(result.attrs["model"]) for result in maps.values() if "model" in result.attrs), "")
    categories = []
    for result in maps.values():
        variable = stored_members(result)
        if variable is not None and "category_name" in result.coords:
            is_member = members_above_chance(result, variable).sel(layer=layer, head=head).values
            categories += [str(n) for n, m in zip(result.category_name.values, is_member, strict=True) if m]
    ordered = sorted(standings, key=lambda s: (s.value == 0, s.rank is None, (s.rank or 0) / s.n_heads))
    return Card(
        layer, head, model, ordered, _operations(maps, layer, head), categories, _tested_sets(maps, layer, head)
    )


def _operations(maps: Mapping[str, xr.Dataset], layer: int, head: int) -> list[Operation]:
    """Read the token lists of a head from the first result that has such lists."""
    for result in maps.values():
        lists = lists_of(result)
        if lists is not None:
            at_head = result.sel(layer=layer, head=head)
            names = (lists.tokens, lists.value, lists.written, lists.demoted)
            rows = zip(*(at_head[name].values for name in names), strict=True)
            return [
                Operation(str(token), float(value), list(map(str, written)), list(map(str, suppressed)))
                for token, value, written, suppressed in rows
                if not np.isnan(value)
            ]
    return []


def _tested_sets(maps: Mapping[str, xr.Dataset], layer: int, head: int) -> list[TestedSet]:
    """Find the tested sets of heads that contain the head."""
    sets = []
    for method, measure, subject, outcome in all_outcomes(maps):
        row, column = (maps[method].indexes[d].get_loc(n) for d, n in (("layer", layer), ("head", head)))
        if outcome.heads[row, column]:
            sets.append(TestedSet(method, measure, subject, outcome))
    return sets
