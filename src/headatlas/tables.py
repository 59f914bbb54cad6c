"""Results as rows of plain values, for the terminal and for JSON."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from headatlas.errors import BadArgument, did_you_mean
from headatlas.headmap.card import Card
from headatlas.headmap.curves import removal
from headatlas.headmap.overview import overview
from headatlas.headmap.overview import ranks as ranks_of
from headatlas.tasks.questions import HIGHER, LOWER


def head_name(layer: int, head: int) -> str:
    return f"L{layer}.H{head}"


def top_heads(score: xr.DataArray, n: int) -> list[tuple[str, float]]:
    """The n best heads of a map [layer, head], best first; NaN never counts."""
    values = np.nan_to_num(score.values, nan=-np.inf)
    order = np.argsort(-values, axis=None, kind="stable")[:n]
    found = [(int(a), int(b)) for a, b in zip(*np.unravel_index(order, values.shape), strict=True)]
    return [(head_name(a, b), float(values[a, b])) for a, b in found if values[a, b] > 0]


def plan(planned: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What `run` is about to do: a row per method."""
    return [
        {"method": name, "state": getattr(job, "state", "cannot be done"), "what": getattr(job, "says", str(job))}
        for name, job in planned.items()
    ]


def warnings(maps: Mapping[str, xr.Dataset]) -> list[str]:
    """What a reader of the tables must know before believing them."""
    lines = []
    found = maps.get("probe", xr.Dataset())
    if "clears_control" in found:
        clear = int(found.clears_control.any("function").sum())
        of = int(found.importance.isel(function=0).count())
        lines.append(f"probe: {clear or 'none'} of {of} heads clear what shuffled labels give")
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
    return lines


def relations(maps: xr.Dataset, n: int = 3) -> list[dict[str, Any]]:
    """A row per relation: its pairs, its best heads, and the best score that shuffled or random weights reach."""
    rows = []
    for name in maps.relation.values.tolist():
        one = maps.sel(relation=name)
        multi = bool(one.left_out.item()) and one.pairs_multi.item() > 0
        best = top_heads(one.score_multi if multi else one.score, n)
        row: dict[str, Any] = {
            "category": one.category.item(),
            "relation": name,
            "pairs": f"{one.pairs_multi.item()} multi" if multi else str(one.pairs.item()),
            "best heads": " ".join(f"{h} {v:.2f}" for h, v in best) or one.left_out.item() or "-",
        }
        if one.sizes["baseline"]:
            row["chance"] = _number(one.baseline_score.max().item())
        rows.append(row)
    return rows


def checks(maps: xr.Dataset) -> list[dict[str, Any]]:
    """A row per relation that was checked: correlation with real runs, and accuracy with the most heads removed."""
    rows = []
    for name in maps.relation.values.tolist():
        one, row = maps.sel(relation=name), {"relation": name}
        if "dynamic_correlation" in maps:
            row["r in context"] = _number(one.dynamic_correlation.sel(context="with").item())
            row["r alone"] = _number(one.dynamic_correlation.sel(context="without").item())
        if "removal_top" in maps:
            row |= _removal(one)
        if len(row) > 1:
            rows.append(row)
    return rows


def _removal(one: xr.Dataset) -> dict[str, str]:
    """Accuracy of the whole model, and at the last step without the top heads, without random ones, and of another relation."""
    accuracy = one.sel(measure="accuracy")
    steps = accuracy.removed.values[~np.isnan(accuracy.removal_top.values)]
    row = {"accuracy": _number(accuracy.whole_model.item()), "removed": "-", "top": "-", "random": "-", "other": "-"}
    if len(steps):
        last = accuracy.sel(removed=steps[-1])
        row |= {"removed": str(steps[-1]), "top": _number(last.removal_top.item())}
        row |= {"random": _number(last.removal_random.mean().item()), "other": _number(last.removal_other.item())}
    return row


def _number(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.2f}"


def categories(maps: xr.Dataset) -> list[dict[str, Any]]:
    """How many heads belong to each category, to several, and to none."""
    rows = [
        {
            "category": name,
            "heads": int(maps.member.isel(category=i).sum()),
            "from": "multi-token pairs" if maps.member_from_multi.values[i] else "single-token pairs",
        }
        for i, name in enumerate(maps.category_name.values.tolist())
    ]
    several = maps.member.sum("category")
    rows += [{"category": f"{n} categories", "heads": int((several == n).sum()), "from": ""} for n in (2, 3, 4)]
    return [*rows, {"category": "Unclassified", "heads": int((several == 0).sum()), "from": ""}]


def operations(found: xr.Dataset) -> list[dict[str, Any]]:
    """Salient operations, a row per token."""
    return [
        {
            "token": repr(token),
            "amplified": f"{gain:.2f}",
            "strongest": " ".join(map(repr, strongest)),
            "suppressed": " ".join(map(repr, weakest)),
        }
        for token, gain, strongest, weakest in zip(
            found.token.values, found.amplification.values, found.strongest.values, found.suppressed.values, strict=True
        )
    ]


def gates(found: xr.Dataset) -> dict[str, list[dict[str, Any]]]:
    """What a gate map says, and how far to believe it: tables by title."""
    return {
        "Tasks, done by the whole model and under the gates": [
            _task(found.sel(task=t)) for t in found.task.values.tolist()
        ],
        "Heads by role (share of heads with a score of 0.5 or more, in every seed and in any)": _roles(found),
        "Heads switched off against on, on held-out prompts": _switching(found),
    }


def _task(one: xr.Dataset) -> dict[str, Any]:
    row = {"task": one.task.item(), "accuracy": _number(one.whole_accuracy.item())}
    row |= {"best guess": _number(one.guess_accuracy.item()), "-log P": _number(one.whole_nll.item())}
    return row | {f"-log P {fit}": _number(one.nll.sel(fit=fit).mean().item()) for fit in one.fit.values.tolist()}


def _roles(found: xr.Dataset, n: int = 4) -> list[dict[str, Any]]:
    rows = []
    for task in found.task.values.tolist():
        for role in found.role.values.tolist():
            one = found.sel(task=task, role=role)
            best = top_heads(one.summary.sel(over="always"), n)
            share = one.share
            rows.append(
                {
                    "task": task,
                    "role": role,
                    "always": f"{share.sel(share_over='always').item():.1%}",
                    "any": f"{share.sel(share_over='any').item():.1%}",
                    "most so in every seed": " ".join(f"{h} {v:.2f}" for h, v in best) or "-",
                }
            )
    return rows


def _switching(found: xr.Dataset) -> list[dict[str, Any]]:
    rows = []
    for task in found.task.values.tolist():
        for role in found.role.values.tolist():
            for heads in found.switched.values.tolist():
                one = found.sel(task=task, role=role, switched=heads)
                row = {"task": task, "role": role, "heads": heads, "log P off - on": _number(one.switch_off.item())}
                row |= {
                    "random heads": _number(one.switch_off_random.mean().item()),
                    "p": _number(one.switch_off_p.item()),
                }
                rows.append(row)
    return rows


def contrast(found: xr.Dataset) -> dict[str, list[dict[str, Any]]]:
    """What contrastive gating found: both tasks before and after, and the heads that were lost."""
    mean = found.mean("seed")
    rows = [
        {"task": f"{side} {found.attrs[side]}"}
        | {f"accuracy {g}": _number(mean.accuracy.sel(side=side, gates=g).item()) for g in found.gates.values.tolist()}
        | {f"-log P {g}": _number(mean.nll.sel(side=side, gates=g).item()) for g in found.gates.values.tolist()}
        for side in ("keep", "lose")
    ]
    lost = found.lost.min("seed")
    best = [{"head": h, "lost in every seed": _number(v)} for h, v in top_heads(lost, 10)]
    share = {"head": "all heads, share lost", "lost in every seed": f"{float((lost >= 0.5).sum() / lost.count()):.1%}"}
    return {"Kept and lost": rows, "Heads the lost task needs and the kept one can spare": [*best, share]}


def effects(found: xr.Dataset, n: int = 5) -> list[dict[str, Any]]:
    """A row per task: what the whole model does, and the heads that help and hurt it most."""
    rows = []
    for name in found.task.values.tolist():
        one = found.sel(task=name)
        helps, hurts = top_heads(one.effect, n), top_heads(-one.effect, n)
        rows.append(
            {
                "task": name,
                "accuracy": _number(one.whole_accuracy.item()),
                "log P": _number(one.baseline.item()),
                "most needed": " ".join(f"{h} {v:.2f}" for h, v in helps) or "-",
                "most in the way": " ".join(f"{h} {-v:.2f}" for h, v in hurts) or "-",
            }
        )
    return rows


def patterns(found: xr.Dataset, n: int = 5) -> list[dict[str, Any]]:
    """The heads that look most where each pattern looks."""
    return [
        {"pattern": name, "heads": " ".join(f"{h} {v:.2f}" for h, v in top_heads(found.score.sel(pattern=name), n))}
        for name in found.pattern.values.tolist()
    ]


def probes(found: xr.Dataset) -> dict[str, list[dict[str, Any]]]:
    """What a probe reads, what the wording alone gives away, each function's heads, and what their removal does."""
    wording = {f"words of the {w}": found.bag_of_words.sel(wording=w).item() for w in found.wording.values.tolist()}
    accuracy = {"probe": found.accuracy.item()} | wording
    accuracy |= {"shuffled labels": found.control_accuracy.item(), "commonest class": found.majority_accuracy.item()}
    parts = {
        "Test accuracy, and what is reached without the model": [
            {"reads": name, "accuracy": f"{value:.1%}"} for name, value in accuracy.items()
        ],
        "Functions and their heads (± 95 % interval; * clears shuffled labels; r: with the map of all other questions)": [
            _function(found.sel(function=name)) for name in found.function.values.tolist()
        ],
    }
    if "removal_top" in found:
        first = found.measure.values[0]
        parts[f"Heads removed while answering: change of {first} (p: random heads of the same layers do as much)"] = [
            row for f in found.function.values.tolist() for row in _removed(found.sel(function=f, measure=first))
        ]
        parts[f"Change of {first}: whose {found.masked_heads.item()} top heads are removed × what is asked"] = [
            {"heads of": f} | {g: _number(v) for g, v in _change(found, f, first)}
            for f in found.function.values.tolist()
        ]
        if found.sizes["order"]:
            parts[f"Change of {first} without the heads of lower- and of higher-order functions"] = [
                _order(found.sel(order=o, measure=first)) for o in found.order.values.tolist()
            ]
        parts[f"Change of {first} when the top heads are pushed along their direction, α · σ"] = [
            {"function": f}
            | {
                f"{a:+g}": _number(found.intervention.sel(function=f, alpha=a, measure=first).item())
                for a in found.alpha.values
            }
            for f in found.function.values.tolist()
        ]
    return parts


def _function(one: xr.Dataset, n: int = 4) -> dict[str, Any]:
    best = []
    for name, value in top_heads(one.importance, n):
        layer, head = (int(part[1:]) for part in name.split("."))
        here = one.sel(layer=layer, head=head)
        mark = "*" * bool(here.clears_control)
        best.append(f"{name}{mark} {value:.4f} ± {(here.high - here.low).item() / 2:.4f}")
    return {
        "function": one.function.item(),
        "questions": int(one.questions.sum()),
        "recall": f"{one.accuracy_per_function.item():.0%}",
        "before elbow": int(one.before_elbow.sum()),
        "clear": int(one.clears_control.sum()),
        "selected": int(one.selected.sum()),
        "r": _number(float(xr.corr(one.signed, one.signed_others))),
        "most important": ", ".join(best),
    }


def _removed(one: xr.Dataset) -> list[dict[str, Any]]:
    rows = []
    for m in one.removed.values.tolist():
        at = one.sel(removed=m)
        row = {"asked": one.function.item(), "whole": _number(one.whole.item()), "heads": m}
        row |= {"top": _number((at.removal_top - one.whole).item())}
        row |= {"random": _number((at.removal_random - one.whole).mean().item())}
        row |= {"lowest": _number((at.removal_lowest - one.whole).item()), "p": _number(at.removal_p.item())}
        rows.append(row)
    return rows


def _change(found: xr.Dataset, masked: str, measure: str) -> list[tuple[str, float]]:
    row = found.specialisation.sel(masked=masked, measure=measure)
    return [(f, row.sel(function=f).item()) for f in found.function.values.tolist()]


def _order(one: xr.Dataset) -> dict[str, Any]:
    row = {"without heads of": f"{one.order.item()} order"}
    for name, of in (("lower", LOWER), ("higher", HIGHER)):
        asked = [f for f in one.function.values.tolist() if f in of]
        row[f"{name}-order questions"] = _number(one.hierarchy.sel(function=asked).mean().item())
        row[f"random heads, {name}"] = _number(one.hierarchy_random.sel(function=asked).mean().item())
    return row


def evidence(maps: Mapping[str, xr.Dataset], n: int = 3) -> list[dict[str, Any]]:
    """The short table of an atlas: for every function, task and relation its top heads, and what removing them did.

    Of relations only those that a head reaches the threshold of; of gates, what heads facilitate; no patterns.
    """
    charts, curves = overview(maps), removal(maps)
    rows = []
    for i in range(charts.sizes["chart"]):
        one = charts.isel(chart=i)
        method, subject, measure = one.method.item(), one.subject.item(), one.measure.item()
        least = float(maps["maps"].attrs.get("threshold", 0.15)) if method == "maps" else 0.0
        shown = {
            "probe": "importance",
            "dissociate": "importance",
            "gate": "facilitation",
            "maps": "score",
            "ablate": "effect",
        }
        best = top_heads(one.score, n)
        if shown.get(method) != measure or not best or best[0][1] < least:
            continue
        row = {"method": method, "subject": subject, "top heads": ", ".join(_with_interval(one, h, v) for h, v in best)}
        proof = _proof(curves, method, subject, measure)
        if method == "maps" and proof["random"] == "-" and maps["maps"].sizes.get("baseline"):
            proof["random"] = f"chance {float(maps['maps'].baseline_score.sel(relation=subject).max()):.2f}"
        rows.append(row | proof)
    return rows


def _with_interval(one: xr.Dataset, name: str, value: float) -> str:
    layer, head = (int(part[1:]) for part in name.split("."))
    at = one.sel(layer=layer, head=head)
    if np.isnan(at.low):
        return f"{name} {value:.3g}"
    return f"{name} {value:.3g} ({at.low.item():.3g} to {at.high.item():.3g})"


def _proof(curves: xr.Dataset, method: str, subject: str, measure: str) -> dict[str, str]:
    """What removing the fewest top heads that were removed did."""
    blank = {"removed": "-", "change": "-", "random": "-", "p": "-"}
    if not curves.sizes["curve"]:
        return blank
    why = {"importance": "importance", "score": "importance"}.get(measure, measure)
    of = (curves.method == method) & (curves.subject == subject) & (curves.why == why)
    for i in np.flatnonzero(of.values):
        one = curves.isel(curve=i)
        steps = one.removed.values[(one.removed.values > 0) & one.top.notnull().values]
        at, whole = one.sel(removed=steps[0]), one.top.sel(removed=0)
        change, random = float(at.top - whole), float(at.random - whole)
        said = one.measure.item().removeprefix("change of ")
        return {
            "removed": f"top {steps[0]}",
            "change": f"{said} {change:+.2f}",
            "random": f"{random:+.2f}",
            "p": _number(at.p.item()),
        }
    return blank


def heads(maps: Mapping[str, xr.Dataset], subject: str, top: int, method: str | None = None) -> list[dict[str, Any]]:
    """The top heads of a function, relation, task or pattern in every chart about it; plain numbers, None where there is none."""
    charts = overview(maps)
    known = list(dict.fromkeys(charts.subject.values.tolist()))
    about = [s for s in known if s.lower() == subject.lower()]
    if not about:
        choices = ", ".join(known) or "none, for the atlas is empty"
        raise BadArgument(f"function is {subject!r}, expected one of {choices}.{did_you_mean(subject, known)}")
    methods = list(dict.fromkeys(charts.method.values[np.isin(charts.subject.values, about)].tolist()))
    if method is not None and method not in methods:
        raise BadArgument(f"method is {method!r}, expected one of those with {about[0]!r}: {', '.join(methods)}")
    place = ranks_of(charts.score)
    rows = []
    for i in range(charts.sizes["chart"]):
        one = charts.isel(chart=i)
        if one.subject.item() not in about or (method is not None and one.method.item() != method):
            continue
        for name, value in top_heads(one.score, top):
            layer, head = (int(part[1:]) for part in name.split("."))
            at, rank = one.sel(layer=layer, head=head), place.isel(chart=i).sel(layer=layer, head=head)
            row = {
                "method": one.method.item(),
                "measure": one.measure.item(),
                "rank": int(rank),
                "head": name,
                "value": value,
            }
            row |= {n: None if np.isnan(at[n]) else float(at[n]) for n in ("low", "high")}
            if "clears_control" in (found := maps[one.method.item()]):
                row["clears"] = bool(found.clears_control.sel(function=one.subject.item(), layer=layer, head=head))
            rows.append(row)
    return rows


def compared(found: xr.Dataset) -> list[dict[str, Any]]:
    """A row per chart that two atlases share."""
    rows = []
    for i in range(found.sizes["chart"]):
        one = found.isel(chart=i)
        row = {"chart": one.chart.item()}
        if found.head_by_head:
            row |= {"spearman": _number(one.spearman.item()), "p": f"{one.spearman_p.item():.4f}"}
            row |= {"top 5 % shared": _number(one.overlap.item()), "p of it": f"{one.overlap_p.item():.4f}"}
        row |= {"depth in A": _number(one.depth_a.item()), "in B": _number(one.depth_b.item())}
        rows.append(row | {"r over depth": _number(one.depth_r.item())})
    return rows


def standings(card: Card) -> list[dict[str, Any]]:
    """Where a head stands in every chart of an atlas, but those in which it scores 0."""
    return [
        {"chart": s.chart, "value": round(s.value, 4), "rank": s.rank, "of": s.of}
        | ({"low": round(s.low, 4), "high": round(s.high, 4)} if not np.isnan(s.low) else {"low": None, "high": None})
        for s in card.standings
        if s.value != 0
    ]


def removals(card: Card) -> list[dict[str, Any]]:
    """The removed sets of top heads that a head is one of."""
    return [
        {"subject": r.subject, "top heads by": r.why, "removed": r.heads, f"change of {r.measure}": round(r.change, 3)}
        | {"random heads": round(r.random, 3), "p": None if np.isnan(r.p) else round(r.p, 3)}
        for r in card.removed
    ]
