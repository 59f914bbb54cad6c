"""Everything an atlas knows of one head."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr

from headatlas.methods import lists_of, measures_of
from headatlas.methods._chance import members_above_chance, stored_members, unranked_label
from headatlas.results.charts import head_ranks, stack_maps
from headatlas.results.curves import change_at, ranking_measure, removed_counts, stack_removal_curves


@dataclass(frozen=True)
class Standing:
    """Where a head stands in one chart."""

    chart: str
    method: str
    subject: str
    measure: str
    value: float
    low: float  # NaN: no interval
    high: float
    rank: int | None  # 1 is the highest; None: at chance, where ranks say nothing
    of: int
    chance: float  # the highest value that chance explains; NaN: not known
    by_removal: bool  # measured with this head alone removed


@dataclass(frozen=True)
class Operation:
    """A token that a head amplifies, how far, and the tokens that it promotes and demotes most then."""

    token: str
    gain: float
    promoted: list[str]
    demoted: list[str]


@dataclass(frozen=True)
class RemovedSet:
    """A set of top heads that this head is one of, and what removing the set did."""

    method: str
    subject: str
    why: str
    heads: int
    measure: str
    change: float
    random: float
    p: float


@dataclass(frozen=True)
class Card:
    layer: int
    head: int
    model: str
    standings: list[Standing]  # the best places first; then those at chance, and scores of 0 last
    operations: list[Operation]
    categories: list[str]
    removed: list[RemovedSet]

    @property
    def name(self) -> str:
        return f"L{self.layer}.H{self.head}"


def place_in_words(standing: Standing) -> str:
    """'rank 3, chance 0.05', 'at chance (0.05)', or 'not proven'."""
    level = "" if np.isnan(standing.chance) else f"{standing.chance:.2g}"
    if standing.rank is not None:
        return f"rank {standing.rank}" + f", chance {level}" * bool(level)
    return unranked_label(standing.method) + f" ({level})" * bool(level)


def card(maps: Mapping[str, xr.Dataset], layer: int, head: int) -> Card:
    """What each method says of head `head` of layer `layer`, with its place among all heads."""
    charts = stack_maps(maps)
    charts = charts.assign(rank=head_ranks(charts), of=charts.score.count(("layer", "head")))
    standings, places = [], {}
    for i, chart in enumerate(charts.chart.values.tolist()):
        here = charts.isel(chart=i).sel(layer=layer, head=head)
        if not np.isnan(here.score):
            names = (here.method.item(), here.subject.item(), here.measure.item())
            numbers = (float(here.score), float(here.low), float(here.high))
            rank = None if here.at_chance else int(here["rank"])
            by_removal = any(m.by_removal for m in measures_of(names[0]) if m.name == names[2])
            standings.append(Standing(chart, *names, *numbers, rank, int(here.of), float(here.chance), by_removal))
            places[names] = _place(charts.score.isel(chart=i), layer, head)
    model = next((str(result.attrs["model"]) for result in maps.values() if "model" in result.attrs), "")
    categories = []
    for result in maps.values():
        belongs = stored_members(result)
        if belongs is not None and "category_name" in result.coords:
            member = members_above_chance(result, belongs).sel(layer=layer, head=head).values
            categories += [str(n) for n, m in zip(result.category_name.values, member, strict=True) if m]
    ordered = sorted(standings, key=lambda s: (s.value == 0, s.rank is None, (s.rank or 0) / s.of))
    operations, removed = _operations(maps, layer, head), _removed(maps, places)
    return Card(layer, head, model, ordered, operations, categories, removed)


def _operations(maps: Mapping[str, xr.Dataset], layer: int, head: int) -> list[Operation]:
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


def _place(score: xr.DataArray, layer: int, head: int) -> int:
    """The head's place in the order of removal: of tied heads, the first by layer and head come first."""
    values = score.transpose("layer", "head").values.ravel()
    at = int(score.indexes["layer"].get_loc(layer)) * score.sizes["head"] + int(score.indexes["head"].get_loc(head))
    return int((values > values[at]).sum() + (values[: at + 1] == values[at]).sum())


def _removed(maps: Mapping[str, xr.Dataset], places: dict[tuple[str, str, str], int]) -> list[RemovedSet]:
    """The smallest removed set of each curve that the head is in. places: by method, subject and measure."""
    curves = stack_removal_curves(maps)
    sets = []
    for i in range(curves.sizes["curve"]):
        one = curves.isel(curve=i)
        method, subject, why = one.method.item(), one.subject.item(), one.why.item()
        place = places.get((method, subject, ranking_measure(method, why)))
        within = [n for n in removed_counts(one) if place is not None and place <= n]
        if within:
            sets.append(RemovedSet(method, subject, why, within[0], *change_at(one, within[0])))
    return sets
