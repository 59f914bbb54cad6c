"""Rows of tables over all results of an atlas. Numbers stay numbers; a missing one is None."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from headatlas.errors import BadArgument, did_you_mean
from headatlas.methods import measures_of, methods
from headatlas.methods._chance import AT_CHANCE, NO_HEAD_ABOVE, at_chance
from headatlas.methods._tables import best, head_name
from headatlas.results.about import unit_of
from headatlas.results.card import Card
from headatlas.results.charts import head_ranks, stack_maps
from headatlas.results.outcomes import NOT_TESTED, Outcome, all_outcomes, percent
from headatlas.results.stored_reliability import reliability_in_words

Maps = Mapping[str, xr.Dataset]
TEST_COLUMNS = ("heads", "accuracy", "accuracy_after", "change", "random", "beyond", "low", "high", "p")


def warnings(maps: Maps) -> list[str]:
    """Return the warnings that belong to the tables: subjects without a head above chance, and those of the methods."""
    lines = _above_chance(maps)
    for name, result in maps.items():
        method = methods().get(name)
        if method is not None and method.sentences is not None and "imported" not in result.attrs:
            lines += [f"{name}: {line.removeprefix(f'{name}: ')}" for line in method.sentences(result)]
    return lines


def _above_chance(maps: Maps) -> list[str]:
    """Name the subjects without a head above chance, for each method with a chance level.

    Methods that say this in their own `sentences` are left out.
    """
    charts = stack_maps(maps)
    lines = []
    for method in dict.fromkeys(charts.method.values.tolist()):
        first = measures_of(method)[0]
        declared = methods().get(method)
        has_own_sentence = first.above and declared is not None and declared.sentences
        if has_own_sentence or at_chance(maps[method].assign_attrs(method=method), first.name) is None:
            continue
        own_charts = charts.isel(chart=np.flatnonzero((charts.method == method) & (charts.measure == first.name)))
        at_chance_subjects = own_charts.subject.values[own_charts.none_above.values].tolist()
        if not at_chance_subjects:
            lines.append(f"{method}: every {first.over} has a head above chance")
        elif len(at_chance_subjects) < own_charts.sizes["chart"]:
            lines.append(f"{method}: {NO_HEAD_ABOVE} for {', '.join(at_chance_subjects)}")
        else:
            i, layer, head, value = _highest(own_charts.score)
            level = own_charts.chance.sel(layer=layer, head=head).isel(chart=i)
            chance = "" if np.isnan(level) else f"; chance gives {float(level):.2g}"
            name = head_name(layer, head, unit_of(maps[method]))
            lines.append(
                f"{method}: no {first.over} has a head above chance in this model:"
                f" the best is {value:.2g} for {own_charts.subject.values[i]} in {name}{chance}"
            )
    return lines


def _highest(score: xr.DataArray) -> tuple[int, int, int, float]:
    """Return the index of the chart, the layer, the head and the value of the highest score."""
    values = score.transpose("chart", "layer", "head").values
    chart, layer, head = np.unravel_index(int(np.nanargmax(values)), values.shape)
    value = float(values[chart, layer, head])
    return int(chart), int(score["layer"].values[layer]), int(score["head"].values[head]), value


def evidence(maps: Maps, n: int = 3) -> list[dict[str, Any]]:
    """Make the short table of an atlas: the top n heads of every subject, and the outcome of their test.

    It has the first measure of each method, and all tested maps. Other maps with a threshold are left out if no head
    above chance reaches it.
    """
    charts = stack_maps(maps)
    tested = {(method, measure, subject): outcome for method, measure, subject, outcome in all_outcomes(maps)}
    rows = []
    for i in range(charts.sizes["chart"]):
        chart = charts.isel(chart=i)
        method = chart.method.item()
        subject = chart.subject.item()
        measure = chart.measure.item()
        result = maps[method]
        first = measures_of(method)[0]
        top = best(chart.score.where(~chart.at_chance), n) or best(chart.score, n)
        outcome = tested.get((method, measure, subject))
        is_main = measure == first.name and top and _reaches_threshold(result, first.over, chart, top[0][2])
        if not top or not (outcome or is_main):
            continue
        top_heads = [_head_row(chart, layer, head, value, unit_of(result)) for layer, head, value in top]
        row = {"method": method, "measure": measure, "subject": subject, "top_heads": top_heads}
        row |= {"reliability": _or_none(chart.reliability)} | _test_row(outcome)
        layer, head, _ = top[0]
        rows.append(row | {"chance": _or_none(chart.chance.sel(layer=layer, head=head))})
    return rows


def _reaches_threshold(result: xr.Dataset, over: str, chart: xr.Dataset, highest: float) -> bool:
    """Return whether a head above chance reaches the threshold, if there is one; after `by_kv_group`, a single head."""
    if "threshold" not in result.attrs:
        return True
    highest = float(result.best_head.sel({over: chart.subject.item()})) if "best_head" in result else highest
    return not chart.none_above and highest >= float(result.attrs["threshold"])


def _head_row(chart: xr.Dataset, layer: int, head: int, value: float, unit: str) -> dict[str, Any]:
    """Make the part of a row that is about one head: its name, score and interval."""
    entry = chart.sel(layer=layer, head=head)
    row = {"head": head_name(layer, head, unit), "value": value}
    row |= {"low": _or_none(entry.low), "high": _or_none(entry.high)}
    return row | {"at_chance": bool(entry.at_chance)}


def _test_row(outcome: Outcome | None) -> dict[str, Any]:
    """Make the part of a row that is about the test of a map; numbers that were not measured are None."""
    if outcome is None:
        return dict.fromkeys(TEST_COLUMNS) | {"outcome": NOT_TESTED, "reason": "", "text": NOT_TESTED}
    numbers = {
        "heads": outcome.n_heads,
        "accuracy": outcome.accuracy,
        "accuracy_after": outcome.accuracy_after,
        "change": outcome.effect,
        "random": outcome.random,
        "beyond": outcome.beyond["zero"],
        "low": outcome.low["zero"],
        "high": outcome.high["zero"],
        "p": outcome.p,
    }
    words = {"outcome": outcome.outcome, "reason": outcome.reason, "text": outcome.text}
    return {name: _or_none(value) for name, value in numbers.items()} | {"heads": outcome.n_heads} | words


def _or_none(value: Any) -> float | None:
    return None if math.isnan(float(value)) else float(value)


def evidence_in_words(rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Put the rows of `evidence` into words; without any test or chance level, their columns are left out."""
    table = [_evidence_row(row) for row in rows]
    shown = [name for name in dict.fromkeys(name for row in table for name in row) if any(r[name] for r in table)]
    return [{name: row[name] or "-" for name in shown} for row in table]


def _evidence_row(row: dict[str, Any]) -> dict[str, str]:
    """Put one row into words; '' for what was not measured."""
    measure = "" if row["measure"] == measures_of(row["method"])[0].name else f", {row['measure']}"
    top = ", ".join(_with_interval(h) for h in row["top_heads"] if not h["at_chance"])
    words = {"method": f"{row['method']}{measure}", "subject": row["subject"]}
    words["top heads"] = top or NO_HEAD_ABOVE
    words["reliability"] = _reliability(row)
    words["chance"] = "" if row["chance"] is None else f"{row['chance']:.2g}"
    words["right"] = "" if row["accuracy"] is None else _before_and_after(row["accuracy"], row["accuracy_after"])
    words["log P"] = "" if row["change"] is None else f"{row['change']:+.2f}"
    words["random heads"] = "" if row["random"] is None else f"{row['random']:+.2f}"
    words["interval"] = "" if row["low"] is None else f"{row['low']:+.2f} to {row['high']:+.2f}"
    return words | {"outcome": "" if row["outcome"] == NOT_TESTED else row["text"]}


def _reliability(row: dict[str, Any]) -> str:
    """Put the reliability of a row's map into words."""
    return reliability_in_words(np.nan if row["reliability"] is None else row["reliability"])


def _before_and_after(before: float, after: float | None) -> str:
    return percent(before) if after is None else f"{percent(before)} → {percent(after)}"


def _with_interval(head: dict[str, Any]) -> str:
    interval = "" if head["low"] is None else f" ({head['low']:.3g} to {head['high']:.3g})"
    return f"{head['head']} {head['value']:.3g}{interval}"


def heads(maps: Maps, subject: str, top: int, method: str | None = None) -> list[dict[str, Any]]:
    """Rank the top heads of a subject in every chart about it.

    Args:
        maps: results by method.
        subject: function, relation, task or pattern; case does not matter.
        top: heads per chart.
        method: only the charts of this method (default: all).
    """
    charts = stack_maps(maps)
    subjects = list(dict.fromkeys(charts.subject.values.tolist()))
    aliases = dict(pair for name in maps for measure in measures_of(name) for pair in measure.aliases)
    matching = [s for s in subjects if s.lower() in (subject.lower(), aliases.get(subject.lower()))]
    if not matching:
        if not subjects:
            raise BadArgument(f"function is {subject!r}, but there are no maps here")
        hint = did_you_mean(subject, subjects)
        raise BadArgument(f"function is {subject!r}, expected one of {', '.join(subjects)}.{hint}")
    is_about_it = np.isin(charts.subject.values, matching)
    choices = list(dict.fromkeys(charts.method.values[is_about_it].tolist()))
    if method is not None and method not in choices:
        raise BadArgument(f"method is {method!r}, expected one of those with {matching[0]!r}: {', '.join(choices)}")
    if method is not None:
        is_about_it &= charts.method.values == method
    return _top_head_rows(maps, charts.isel(chart=np.flatnonzero(is_about_it)), top)


def all_heads(maps: Maps, top: int) -> list[dict[str, Any]]:
    """Rank the top heads of every chart."""
    charts = stack_maps(maps)
    singles = [charts.isel(chart=[i]) for i in range(charts.sizes["chart"])]
    return [{"subject": chart.subject.values[0]} | row for chart in singles for row in _top_head_rows(maps, chart, top)]


def _top_head_rows(maps: Maps, charts: xr.Dataset, top: int) -> list[dict[str, Any]]:
    """Make a row for each of the top heads of each chart."""
    ranks = head_ranks(charts)
    rows = []
    for i in range(charts.sizes["chart"]):
        chart = charts.isel(chart=i)
        method = chart.method.item()
        for layer, head, value in best(chart.score, top):
            rank = _or_none(ranks.isel(chart=i).sel(layer=layer, head=head))
            row = {"method": method, "measure": chart.measure.item(), "rank": rank and int(rank)}
            row |= _head_row(chart, layer, head, value, unit_of(maps[method]))
            row |= {"chance": _or_none(chart.chance.sel(layer=layer, head=head))}
            rows.append(row | {"reliability": _or_none(chart.reliability)})
    return rows


def heads_in_words(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put the rows of `heads` into words: heads at chance get no rank; without any chance level, there is no column."""
    has_chance = any(row["chance"] is not None for row in rows)
    return [
        {k: v for k, v in row.items() if k != "at_chance" and (k != "chance" or has_chance)}
        | {"rank": AT_CHANCE if row["at_chance"] else row["rank"]}
        | {"reliability": _reliability(row)}
        for row in rows
    ]


def standings(card: Card) -> list[dict[str, Any]]:
    """List the scores and ranks of a head in every chart in which it does not score 0. rank: None at chance."""
    return [
        {"chart": s.chart, "value": s.value, "low": _or_none(s.low), "high": _or_none(s.high)}
        | {"rank": s.rank, "of": s.n_heads, "chance": _or_none(s.chance), "reliability": _or_none(s.reliability)}
        for s in card.standings
        if s.value != 0
    ]


def standings_in_words(card: Card) -> list[dict[str, Any]]:
    """Put the rows of `standings` into words."""
    unranked = {s.chart: AT_CHANCE for s in card.standings if s.rank is None}
    rows = [row | {"rank": unranked.get(row["chart"], row["rank"])} for row in standings(card)]
    return [row | {"reliability": _reliability(row)} for row in rows]


def tested_sets(card: Card) -> list[dict[str, Any]]:
    """List the tested sets of top heads that contain a head."""
    return [
        {"subject": t.subject, "top heads by": f"{t.method}, {t.measure}", "heads": t.outcome.n_heads}
        | {"change": _or_none(t.outcome.effect), "random heads": _or_none(t.outcome.random)}
        | {"p": _or_none(t.outcome.p), "outcome": t.outcome.text}
        for t in card.tested
    ]
