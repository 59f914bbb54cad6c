"""The results of each method as rows for the terminal and for JSON."""

from typing import Any

import numpy as np
import xarray as xr

from headatlas.results.chance import NONE_ABOVE, at_chance, members
from headatlas.evidence.selective import SURE, WEIGHT


def best(score: xr.DataArray, n: int) -> list[tuple[int, int, float]]:
    """The n best heads of a map [layer, head] as (layer, head, value), best first; only what is above 0."""
    values = np.nan_to_num(score.values, nan=-np.inf)
    order = np.argsort(-values, axis=None, kind="stable")[:n]
    found = [(int(a), int(b)) for a, b in zip(*np.unravel_index(order, values.shape), strict=True)]
    return [(a, b, float(values[a, b])) for a, b in found if values[a, b] > 0]


def head_name(layer: int, head: int, unit: str = "Head") -> str:
    """L12.H5; of a key-value group, L12.G1."""
    return f"L{layer}.{'H' if unit == 'Head' else 'G'}{head}"


def top_heads(score: xr.DataArray, n: int) -> list[tuple[str, float]]:
    """`best` by name."""
    return [(head_name(a, b), value) for a, b, value in best(score, n)]


def relations(maps: xr.Dataset, n: int = 3) -> list[dict[str, Any]]:
    """A row per relation: its pairs, its best heads that are above chance, and the highest score that chance explains."""
    flags = at_chance(maps, "score")
    rows = []
    for name in maps.relation.values.tolist():
        one = maps.sel(relation=name)
        multi = bool(one.left_out.item()) and one.pairs_multi.item() > 0
        score = one.score_multi if multi else one.score
        above = score if multi or flags is None else score.where(~flags.sel(relation=name))
        found, best = top_heads(above, n), top_heads(score, 1)
        nothing = f"{NONE_ABOVE} (best {' '.join(f'{h} {v:.2g}' for h, v in best) or '0'})"
        row: dict[str, Any] = {
            "category": one.category.item(),
            "relation": name,
            "pairs": f"{one.pairs_multi.item()} multi" if multi else str(one.pairs.item()),
            "best heads": " ".join(f"{h} {v:.2f}" for h, v in found)
            or one.left_out.item()
            or (nothing if flags is not None else "-"),
        }
        if flags is not None:
            row["chance"] = _level(one.chance.item())
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


def _level(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.2g}"


def categories(maps: xr.Dataset) -> list[dict[str, Any]]:
    """How many heads belong to each category, to several, and to none: as published, and by scores above chance."""
    names, kinds = maps.category_name.values.tolist(), range(2, 5)

    def groups(member: xr.DataArray) -> list[xr.DataArray]:
        several = member.sum("category")
        return [*(member.isel(category=i) for i in range(len(names))), *(several == n for n in kinds), several == 0]

    titles = [*names, *(f"{n} categories" for n in kinds), "Unclassified"]
    origins = ["multi-token pairs" if multi else "single-token pairs" for multi in maps.member_from_multi.values]
    origins += [""] * (len(titles) - len(origins))
    return [
        {"category": title, "heads": int(heads.sum()), "above chance": int(above.sum()), "from": origin}
        for title, heads, above, origin in zip(titles, groups(maps.member), groups(members(maps)), origins, strict=True)
    ]


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
            always = top_heads(one.summary.sel(over="always"), n)
            share = one.share
            rows.append(
                {
                    "task": task,
                    "role": role,
                    "always": f"{share.sel(share_over='always').item():.1%}",
                    "any": f"{share.sel(share_over='any').item():.1%}",
                    "most so in every seed": " ".join(f"{h} {v:.2f}" for h, v in always) or "-",
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
        | {
            f"accuracy {g}": _number(mean.accuracy.sel(side=side, gates=g).item())
            for g in found["gates"].values.tolist()
        }
        | {f"-log P {g}": _number(mean.nll.sel(side=side, gates=g).item()) for g in found["gates"].values.tolist()}
        for side in ("keep", "lose")
    ]
    lost = found.lost.min("seed")
    most = [{"head": h, "lost in every seed": _number(v)} for h, v in top_heads(lost, 10)]
    share = {"head": "all heads, share lost", "lost in every seed": f"{float((lost >= 0.5).sum() / lost.count()):.1%}"}
    return {"Kept and lost": rows, "Heads the lost task needs and the kept one can spare": [*most, share]}


def dissociations(found: xr.Dataset, n: int = 4) -> dict[str, list[dict[str, Any]]]:
    """Each function's heads, what their removal does to it and to the others, and how their number was chosen."""
    functions = found.function.values.tolist()
    parts: dict[str, list[dict[str, Any]]] = {
        "Heads removed for good: change of log P per answer token, on test questions (p: random heads do as much)": [
            _dissociated(found.sel(function=f)) for f in functions
        ],
        "Heads that are shut (1 - gate of 0.5 or more) in every seed and in any": [
            {
                "function": f,
                "always": int((found.always.sel(function=f) >= 0.5).sum()),
                "any": int((found["any"].sel(function=f) >= 0.5).sum()),
                "most so": " ".join(f"{h} {v:.2f}" for h, v in top_heads(found.score.sel(function=f).mean("seed"), n)),
            }
            for f in functions
        ],
        "How many heads: change of the function / of the others on validation questions, by number of heads removed": [
            {"function": f}
            | {
                str(m): _pair(
                    *(found[c].sel(function=f, removed=m, split="validation") for c in ("own_curve", "other_curve"))
                )
                for m in found.removed.values.tolist()
            }
            for f in functions
        ],
    }
    removed = [f for f in functions if int(found.heads.sel(function=f))]
    if removed:
        parts["Whose heads are removed × what is asked"] = [
            {"heads of": f}
            | {
                g: _number((found.own_effect if f == g else found.other_effect.sel(other=g)).sel(function=f).item())
                for g in functions
            }
            for f in removed
        ]
    return parts


def maps_compared(found: xr.Dataset, at: int = 16) -> dict[str, list[dict[str, Any]]]:
    """How every map fares: over all functions, and each function by itself."""
    rows, each = [], []
    for i, name in enumerate(found["ranking"].values.tolist()):
        one = found.isel(ranking=i)
        own, other = one.own_effect, one.other_effect.mean("other")
        row = {
            "map": name,
            "heads": f"{one.heads.median().item():.0f}",
            "itself": _number(own.mean().item()),
            "others": _number(other.mean().item()),
            "selectivity": _number(one.selectivity.mean().item()),
            "3 x the others": f"{int((-own >= WEIGHT * abs(one.other_effect).mean('other')).sum())} of {one.sizes['function']}",
            "more than random": f"{int((one.p_corrected < SURE).sum())} of {one.sizes['function']}",
            "both": f"{int(one.proven.sum())} of {one.sizes['function']}",
        }
        if at in found.removed.values:
            fixed = one.sel(removed=at, split="test")
            row[f"itself / others at {at} heads"] = _pair(fixed.own_curve.mean(), fixed.other_curve.mean())
        rows.append(row)
        each.append(
            {"map": name}
            | {
                str(f): _pair(own.isel(function=k), other.isel(function=k)) + " *" * bool(one.proven[k])
                for k, f in enumerate(found["function"].values.tolist())
            }
        )
    return {
        "Maps compared: change of log P per answer token on test questions, means over functions": rows,
        "Function by function, itself / others (* proven: 3 times the others, and more than random heads)": each,
    }


def _dissociated(one: xr.Dataset) -> dict[str, Any]:
    return {
        "function": one.function.item(),
        "log P": _number(one.baseline.item()),
        "heads": int(one.heads) or "-",
        "itself": _number(one.own_effect.item()),
        "others": _number(one.other_effect.mean().item()),
        "worst other": _number(one.other_effect.min().item()),
        "random heads": _number(one.random_effect.mean().item()),
        "p, corrected": _number(one.p_corrected.item()),
        "": one.verdict.item(),
    }


def _pair(own: xr.DataArray, other: xr.DataArray) -> str:
    return "-" if np.isnan(own.item()) else f"{own.item():.2f} / {other.item():.2f}"


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
