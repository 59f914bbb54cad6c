"""What an atlas says as a whole, as rows: numbers are numbers, None where there is none."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from headatlas.errors import BadArgument, did_you_mean
from headatlas.results.about import unit
from headatlas.results.card import Card
from headatlas.results.chance import NONE_ABOVE, at_chance, no_rank, none_in_words
from headatlas.results.curves import removal
from headatlas.results.charts import MEASURES, overview, ranks
from headatlas.models.memory import GIB
from headatlas.runs.estimate import Estimate
from headatlas.results.method_tables import best, head_name

Maps = Mapping[str, xr.Dataset]
SHOWN = {"probe": "importance", "dissociate": "importance", "gate": "facilitation", "maps": "score", "ablate": "effect"}


def plan(planned: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What `run` is about to do: a row per method."""
    return [
        {"method": name, "state": getattr(job, "state", "cannot be done"), "what": getattr(job, "says", str(job))}
        for name, job in planned.items()
    ]


def estimate(found: Estimate) -> list[dict[str, Any]]:
    """What a run would take: a row per method."""
    return [
        {"method": name, "jobs": None, "time": None, "longest_job": each}
        if isinstance(each, str)
        else {"method": name, "jobs": len(each), "time": _time(sum(each)), "longest_job": _time(max(each))}
        for name, each in found.jobs.items()
    ]


def estimate_in_words(found: Estimate) -> list[str]:
    who = f"{found.workers} worker{'s' * (found.workers != 1)}"
    needs, at_once = found.memory, found.at_once
    return [
        f"all together: {_time(found.work)} of work; {_time(found.seconds)} with {who}, and then the figures",
        f"memory of a worker: {needs.weights / GIB:.1f} GiB of weights, {at_once * needs.a_learned / GIB:.1f} GiB for"
        f" {at_once} tokens at once",
        "estimated from copies of one and three layers; expect it within a factor of two (docs/scale.md)",
    ]


def _time(seconds: float) -> str:
    minutes, hours = seconds / 60, seconds / 3600
    return f"{seconds:.0f} s" if seconds < 120 else f"{minutes:.0f} min" if minutes < 120 else f"{hours:.1f} h"


def warnings(maps: Maps) -> list[str]:
    """What a reader of the tables must know before believing them: for methods that found nothing, that they did not."""
    lines = _above_chance(maps)
    found = maps.get("probe", xr.Dataset())
    if "clears_control" in found:
        clear = int(found.clears_control.any("function").sum())
        of = int(found.importance.isel(function=0).count())
        said = f"{clear or 'none'} of {of} heads clear what shuffled labels give"
        lines.append(f"probe: {said}" if clear else f"probe: no function has a head above chance in this model: {said}")
    if {"accuracy", "bag_of_words"} <= set(found):
        words = found.bag_of_words.max()
        which = found.wording.values[np.argmax(found.bag_of_words.values)]
        right, guessed = f"{float(found.accuracy):.1%}", f"{float(words):.1%}"
        lines.append(
            f"probe: reads the function right in {right} of test questions; words alone ({which}) in {guessed}"
        )
    found = maps.get("gate", xr.Dataset())
    if {"whole_accuracy", "guess_accuracy"} <= set(found):
        for task in found.task.values.tolist():
            one = found.sel(task=task)
            right, guessed = f"{float(one.whole_accuracy):.0%}", f"{float(one.guess_accuracy):.0%}"
            lines.append(f"gate: the whole model gets {right} of {task} right; the best guess {guessed}")
    found = maps.get("dissociate", xr.Dataset())
    if {"verdict", "proven", "other_effect"} <= set(found):
        for function in found.function.values.tolist():
            one = found.sel(function=function)
            beside = (
                ""
                if not bool(one.proven)
                else f"; without them the others change by {float(one.other_effect.mean()):+.2f}"
            )
            lines.append(f"dissociate: {function}: {one.verdict.item()}{beside}")
    return lines


def _above_chance(maps: Maps) -> list[str]:
    """Of each method with a chance level, which subjects have no head above it."""
    charts, lines = overview(maps), []
    for method in dict.fromkeys(charts.method.values.tolist()):
        measure, dim = MEASURES[method][0]
        known = at_chance(maps[method], measure)
        if known is None or method in ("probe", "dissociate"):  # these have lines of their own
            continue
        one = charts.isel(chart=np.flatnonzero((charts.method == method) & (charts.measure == measure)))
        none = one.subject.values[one.none_above.values].tolist()
        if not none:
            lines.append(f"{method}: every {dim} has a head above chance")
        elif len(none) < one.sizes["chart"]:
            lines.append(f"{method}: {NONE_ABOVE} for {', '.join(none)}")
        else:
            i, layer, head, value = _highest(one.score)
            level = one.chance.sel(layer=layer, head=head).isel(chart=i)
            chance = "" if np.isnan(level) else f"; chance gives {float(level):.2g}"
            at = f"{one.subject.values[i]} in {head_name(layer, head, unit(maps[method]))}"
            lines.append(
                f"{method}: no {dim} has a head above chance in this model: the best is {value:.2g} for {at}{chance}"
            )
    return lines


def _highest(score: xr.DataArray) -> tuple[int, int, int, float]:
    """Chart, layer, head and value of the highest score."""
    values = score.transpose("chart", "layer", "head").values
    chart, layer, head = np.unravel_index(int(np.nanargmax(values)), values.shape)
    at = int(score["layer"].values[layer]), int(score["head"].values[head])
    return int(chart), *at, float(values[chart, layer, head])


def evidence(maps: Maps, n: int = 3) -> list[dict[str, Any]]:
    """The short table of an atlas: for every function, task and relation its top heads, and what removing them did.

    Of relations only those that a head above chance reaches the threshold of; of gates, what heads facilitate; no patterns.
    """
    charts, curves = overview(maps), removal(maps)
    rows = []
    for i in range(charts.sizes["chart"]):
        one = charts.isel(chart=i)
        method, subject, measure = one.method.item(), one.subject.item(), one.measure.item()
        top = best(one.score, n)
        if SHOWN.get(method) != measure or not top:
            continue
        if method == "maps" and (bool(one.none_above) or not _reaches(maps[method], subject, top[0][2])):
            continue
        named = unit(maps[method])
        row = {"method": method, "subject": subject, "top_heads": [_standing(one, *head, named) for head in top]}
        proof = _lost(maps[method], subject) if method == "dissociate" else _proof(curves, method, subject, measure)
        layer, head, _ = top[0]
        rows.append(row | proof | {"chance": _or_none(one.chance.sel(layer=layer, head=head))})
    return rows


def _reaches(found: xr.Dataset, subject: str, highest: float) -> bool:
    """Whether a head of a relation reaches the threshold of categories; of groups of heads, one of them."""
    highest = float(found.best_head.sel(relation=subject)) if "best_head" in found else highest
    return highest >= float(found.attrs.get("threshold", 0.15))


def _standing(one: xr.Dataset, layer: int, head: int, value: float, named: str) -> dict[str, Any]:
    at = one.sel(layer=layer, head=head)
    row = {"head": head_name(layer, head, named), "value": value, "low": _or_none(at.low), "high": _or_none(at.high)}
    return row | {"at_chance": bool(at.at_chance)}


def _or_none(value: Any) -> float | None:
    return None if math.isnan(float(value)) else float(value)


def _proof(curves: xr.Dataset, method: str, subject: str, measure: str) -> dict[str, Any]:
    """What removing the fewest top heads that were removed did."""
    why = {"score": "importance"}.get(measure, measure)
    for i in range(curves.sizes["curve"]):
        one = curves.isel(curve=i)
        if (one.method.item(), one.subject.item(), one.why.item()) == (method, subject, why):
            steps = one.removed.values[(one.removed.values > 0) & one.top.notnull().values]
            at, whole = one.sel(removed=steps[0]), one.top.sel(removed=0)
            said = {"removed": int(steps[0]), "of": one.measure.item().removeprefix("change of ")}
            return said | {"change": float(at.top - whole), "random": float(at.random - whole), "p": _or_none(at.p)}
    return dict.fromkeys(("removed", "of", "change", "random", "p"))


def _lost(found: xr.Dataset, subject: str) -> dict[str, Any]:
    """What removing a function's own heads did to it."""
    one = found.sel(function=subject)
    if not {"own_effect", "random_effect", "p_corrected", "heads"} <= set(one) or not int(one.heads):
        return dict.fromkeys(("removed", "of", "change", "random", "p"))
    said = {"removed": int(one.heads), "of": "log P a token", "change": float(one.own_effect)}
    return said | {"random": float(one.random_effect.mean()), "p": _or_none(one.p_corrected)}


def evidence_in_words(rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    """`evidence` for people."""
    return [
        {
            "method": row["method"],
            "subject": row["subject"],
            "top heads": ", ".join(_with_interval(h) for h in row["top_heads"] if not h["at_chance"])
            or none_in_words(row["method"]),
            "removed": "-" if row["removed"] is None else f"top {row['removed']}",
            "change": "-" if row["removed"] is None else f"{row['of']} {row['change']:+.2f}",
            "random": (f"chance {row['chance']:.2f}" if row["chance"] is not None else "-")
            if row["removed"] is None
            else f"{row['random']:+.2f}",
            "p": "-" if row["p"] is None else f"{row['p']:.2f}",
        }
        for row in rows
    ]


def _with_interval(head: dict[str, Any]) -> str:
    interval = "" if head["low"] is None else f" ({head['low']:.3g} to {head['high']:.3g})"
    return f"{head['head']} {head['value']:.3g}{interval}"


def heads(maps: Maps, subject: str, top: int, method: str | None = None) -> list[dict[str, Any]]:
    """The top heads of a function, relation, task or pattern in every chart about it."""
    charts = overview(maps)
    known = list(dict.fromkeys(charts.subject.values.tolist()))
    about = [s for s in known if s.lower() == subject.lower()]
    if not about:
        choices = ", ".join(known) or "none, for the atlas is empty"
        raise BadArgument(f"function is {subject!r}, expected one of {choices}.{did_you_mean(subject, known)}")
    methods = list(dict.fromkeys(charts.method.values[np.isin(charts.subject.values, about)].tolist()))
    if method is not None and method not in methods:
        raise BadArgument(f"method is {method!r}, expected one of those with {about[0]!r}: {', '.join(methods)}")
    place = ranks(charts)
    rows = []
    for i in range(charts.sizes["chart"]):
        one = charts.isel(chart=i)
        found = maps[one.method.item()]
        if one.subject.item() not in about or (method is not None and one.method.item() != method):
            continue
        for layer, head, value in best(one.score, top):
            rank = _or_none(place.isel(chart=i).sel(layer=layer, head=head))
            row = {"method": one.method.item(), "measure": one.measure.item(), "rank": rank and int(rank)}
            row |= _standing(one, layer, head, value, unit(found))
            rows.append(row | {"chance": _or_none(one.chance.sel(layer=layer, head=head))})
    return rows


def heads_in_words(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`heads` for people: what is at chance has no rank, and methods without a chance level no such column."""
    known = any(row["chance"] is not None for row in rows)
    return [
        {k: v for k, v in row.items() if k != "at_chance" and (k != "chance" or known)}
        | {"rank": no_rank(row["method"]) if row["at_chance"] else row["rank"]}
        for row in rows
    ]


def compared(found: xr.Dataset) -> list[dict[str, Any]]:
    """A row per chart that two atlases share."""
    by_head = {"spearman": "spearman", "p": "spearman_p", "top 5 % shared": "overlap", "p of it": "overlap_p"}
    by_depth = {"depth in A": "depth_a", "in B": "depth_b", "r over depth": "depth_r"}
    names = (by_head if found.head_by_head else {}) | by_depth
    return [
        {"chart": str(chart)} | {title: _or_none(found[name][i]) for title, name in names.items()}
        for i, chart in enumerate(found.chart.values)
    ]


def standings(card: Card) -> list[dict[str, Any]]:
    """Where a head stands in every chart of an atlas, but those in which it scores 0. rank: None at chance."""
    return [
        {
            "chart": s.chart,
            "value": s.value,
            "low": _or_none(s.low),
            "high": _or_none(s.high),
            "rank": s.rank,
            "of": s.of,
            "chance": _or_none(s.chance),
        }
        for s in card.standings
        if s.value != 0
    ]


def standings_in_words(card: Card) -> list[dict[str, Any]]:
    """`standings` for people."""
    said = {s.chart: no_rank(s.method) for s in card.standings if s.rank is None}
    return [row | {"rank": said.get(row["chart"], row["rank"])} for row in standings(card)]


def removals(card: Card) -> list[dict[str, Any]]:
    """The removed sets of top heads that a head is one of."""
    return [
        {"subject": r.subject, "top heads by": r.why, "removed": r.heads, "of": r.measure}
        | {"change": r.change, "random heads": r.random, "p": _or_none(r.p)}
        for r in card.removed
    ]
