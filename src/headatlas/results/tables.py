"""What all results of an atlas say together, as rows. Numbers are numbers; None where one is missing."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from headatlas.errors import BadArgument, did_you_mean
from headatlas.methods import measures_of, methods
from headatlas.methods._chance import NO_HEAD_ABOVE, at_chance, no_head_label, unranked_label
from headatlas.methods._tables import best, head_name
from headatlas.results.about import unit_of
from headatlas.results.card import Card
from headatlas.results.charts import head_ranks, stack_maps
from headatlas.results.outcomes import Outcome, outcomes

Maps = Mapping[str, xr.Dataset]
UNPROVEN: dict[str, Any] = dict.fromkeys(("removed", "of", "change", "random", "p"))


def warnings(maps: Maps) -> list[str]:
    """What a reader of the tables must know before believing them: what was not found."""
    lines = _above_chance(maps)
    for name, result in maps.items():
        method = methods().get(name)
        if method is not None and method.sentences is not None and "imported" not in result.attrs:
            lines += [f"{name}: {line.removeprefix(f'{name}: ')}" for line in method.sentences(result)]
    return lines


def _above_chance(maps: Maps) -> list[str]:
    """Of each method with a chance level, which subjects have no head above it; but not of methods that say it in
    their own `sentences`."""
    charts, lines = stack_maps(maps), []
    for method in dict.fromkeys(charts.method.values.tolist()):
        first, known = measures_of(method)[0], methods().get(method)
        says_it = first.above and known is not None and known.sentences
        if says_it or at_chance(maps[method].assign_attrs(method=method), first.name) is None:
            continue
        one = charts.isel(chart=np.flatnonzero((charts.method == method) & (charts.measure == first.name)))
        none = one.subject.values[one.none_above.values].tolist()
        if not none:
            lines.append(f"{method}: every {first.over} has a head above chance")
        elif len(none) < one.sizes["chart"]:
            lines.append(f"{method}: {NO_HEAD_ABOVE} for {', '.join(none)}")
        else:
            i, layer, head, value = _highest(one.score)
            level = one.chance.sel(layer=layer, head=head).isel(chart=i)
            chance = "" if np.isnan(level) else f"; chance gives {float(level):.2g}"
            at = f"{one.subject.values[i]} in {head_name(layer, head, unit_of(maps[method]))}"
            nothing = f"no {first.over} has a head above chance in this model"
            lines.append(f"{method}: {nothing}: the best is {value:.2g} for {at}{chance}")
    return lines


def _highest(score: xr.DataArray) -> tuple[int, int, int, float]:
    """Chart, layer, head and value of the highest score."""
    values = score.transpose("chart", "layer", "head").values
    chart, layer, head = np.unravel_index(int(np.nanargmax(values)), values.shape)
    at = int(score["layer"].values[layer]), int(score["head"].values[head])
    return int(chart), *at, float(values[chart, layer, head])


def evidence(maps: Maps, n: int = 3) -> list[dict[str, Any]]:
    """The short table of an atlas: for every function, task and relation its top heads, and what removing them did.

    By the first measure of each method. Of maps with a threshold, only those in which a head above chance reaches it.
    """
    charts = stack_maps(maps)
    tested = {method: outcomes(method, result) for method, result in maps.items()}
    rows = []
    for i in range(charts.sizes["chart"]):
        one = charts.isel(chart=i)
        method, subject, measure = one.method.item(), one.subject.item(), one.measure.item()
        result, first = maps[method], measures_of(method)[0]
        top = best(one.score.where(~one.at_chance), n) or best(one.score, n)
        if measure != first.name or not top or not _reaches_threshold(result, first.over, one, top[0][2]):
            continue
        row = {
            "method": method,
            "subject": subject,
            "top_heads": [_standing(one, *head, unit_of(result)) for head in top],
        }
        layer, head, _ = top[0]
        row |= _tested(tested[method].get((measure, subject)))
        rows.append(row | {"chance": _or_none(one.chance.sel(layer=layer, head=head))})
    return rows


def _reaches_threshold(result: xr.Dataset, over: str, chart: xr.Dataset, highest: float) -> bool:
    """Whether a head above chance reaches the threshold, if there is one; in groups of heads, a single head."""
    if "threshold" not in result.attrs:
        return True
    highest = float(result.best_head.sel({over: chart.subject.item()})) if "best_head" in result else highest
    return not chart.none_above and highest >= float(result.attrs["threshold"])


def _standing(one: xr.Dataset, layer: int, head: int, value: float, named: str) -> dict[str, Any]:
    at = one.sel(layer=layer, head=head)
    row = {"head": head_name(layer, head, named), "value": value, "low": _or_none(at.low), "high": _or_none(at.high)}
    return row | {"at_chance": bool(at.at_chance)}


def _tested(outcome: Outcome | None) -> dict[str, Any]:
    """What removing a map's heads did; None where nothing was removed."""
    if outcome is None or not outcome.n_removed:
        return UNPROVEN
    row: dict[str, Any] = {"removed": outcome.n_removed, "of": outcome.measure, "change": outcome.effect}
    row |= {"which": outcome.which} if outcome.which != "top" else {}
    return row | {"random": outcome.random, "p": _or_none(outcome.p)}


def _or_none(value: Any) -> float | None:
    return None if math.isnan(float(value)) else float(value)


def evidence_in_words(rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    """`evidence` for people."""
    return [_evidence_row(row) for row in rows]


def _evidence_row(row: dict[str, Any]) -> dict[str, str]:
    top = ", ".join(_with_interval(h) for h in row["top_heads"] if not h["at_chance"])
    words = {"method": row["method"], "subject": row["subject"], "top heads": top or no_head_label(row["method"])}
    if row["removed"] is None:
        words |= {"removed": "-", "change": "-"}
        words["random"] = "-" if row["chance"] is None else f"chance {row['chance']:.2f}"
    else:
        words |= {
            "removed": f"{row.get('which', 'top')} {row['removed']}",
            "change": f"{row['of']} {row['change']:+.2f}",
        }
        words["random"] = f"{row['random']:+.2f}"
    return words | {"p": "-" if row["p"] is None else f"{row['p']:.2f}"}


def _with_interval(head: dict[str, Any]) -> str:
    interval = "" if head["low"] is None else f" ({head['low']:.3g} to {head['high']:.3g})"
    return f"{head['head']} {head['value']:.3g}{interval}"


def heads(maps: Maps, subject: str, top: int, method: str | None = None) -> list[dict[str, Any]]:
    """The top heads of a function, relation, task or pattern in every chart about it."""
    charts = stack_maps(maps)
    known = list(dict.fromkeys(charts.subject.values.tolist()))
    aliases = dict(pair for name in maps for measure in measures_of(name) for pair in measure.aliases)
    about = [s for s in known if s.lower() in (subject.lower(), aliases.get(subject.lower()))]
    if not about:
        expected = ", ".join(known) or "none, for the atlas is empty"
        raise BadArgument(f"function is {subject!r}, expected one of {expected}.{did_you_mean(subject, known)}")
    choices = list(dict.fromkeys(charts.method.values[np.isin(charts.subject.values, about)].tolist()))
    if method is not None and method not in choices:
        raise BadArgument(f"method is {method!r}, expected one of those with {about[0]!r}: {', '.join(choices)}")
    chosen = np.isin(charts.subject.values, about) & ((method is None) | (charts.method.values == method))
    return _ranked(maps, charts.isel(chart=np.flatnonzero(chosen)), top)


def all_heads(maps: Maps, top: int) -> list[dict[str, Any]]:
    """The top heads of every chart."""
    charts = stack_maps(maps)
    each = [charts.isel(chart=[i]) for i in range(charts.sizes["chart"])]
    return [{"subject": one.subject.values[0]} | row for one in each for row in _ranked(maps, one, top)]


def _ranked(maps: Maps, charts: xr.Dataset, top: int) -> list[dict[str, Any]]:
    place = head_ranks(charts)
    rows = []
    for i in range(charts.sizes["chart"]):
        one = charts.isel(chart=i)
        method, named = one.method.item(), unit_of(maps[one.method.item()])
        for layer, head, value in best(one.score, top):
            rank = _or_none(place.isel(chart=i).sel(layer=layer, head=head))
            row = {"method": method, "measure": one.measure.item(), "rank": rank and int(rank)}
            row |= _standing(one, layer, head, value, named)
            rows.append(row | {"chance": _or_none(one.chance.sel(layer=layer, head=head))})
    return rows


def heads_in_words(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`heads` for people: what is at chance has no rank, and methods without a chance level no such column."""
    known = any(row["chance"] is not None for row in rows)
    return [
        {k: v for k, v in row.items() if k != "at_chance" and (k != "chance" or known)}
        | {"rank": unranked_label(row["method"]) if row["at_chance"] else row["rank"]}
        for row in rows
    ]


def standings(card: Card) -> list[dict[str, Any]]:
    """Where a head stands in every chart of an atlas, but those in which it scores 0. rank: None at chance."""
    return [
        {"chart": s.chart, "value": s.value, "low": _or_none(s.low), "high": _or_none(s.high)}
        | {"rank": s.rank, "of": s.of, "chance": _or_none(s.chance)}
        for s in card.standings
        if s.value != 0
    ]


def standings_in_words(card: Card) -> list[dict[str, Any]]:
    """`standings` for people."""
    unranked = {s.chart: unranked_label(s.method) for s in card.standings if s.rank is None}
    return [row | {"rank": unranked.get(row["chart"], row["rank"])} for row in standings(card)]


def removals(card: Card) -> list[dict[str, Any]]:
    """The removed sets of top heads that a head is one of."""
    return [
        {"subject": r.subject, "top heads by": r.why, "removed": r.heads, "of": r.measure}
        | {"change": r.change, "random heads": r.random, "p": _or_none(r.p)}
        for r in card.removed
    ]
