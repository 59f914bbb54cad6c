"""What `probe` says, as rows for the terminal and for JSON."""

from typing import Any

import numpy as np
import xarray as xr

from headatlas.methods._tables import best, head_name, number
from headatlas.methods.method import Tables
from headatlas.tasks.questions import HIGHER, LOWER


def probe_tables(result: xr.Dataset) -> Tables:
    """What a probe reads, what the wording alone gives away, each function's heads, and what their removal does."""
    wording = {f"words of the {w}": result.bag_of_words.sel(wording=w).item() for w in result.wording.values.tolist()}
    accuracy = {"probe": result.accuracy.item()} | wording
    accuracy |= {"shuffled labels": result.control_accuracy.item(), "commonest class": result.majority_accuracy.item()}
    heads = (
        "Functions and their heads (± 95 % interval; * clears shuffled labels; r: with the map of all other questions)"
    )
    parts = {
        "Test accuracy, and what is reached without the model": [
            {"reads": name, "accuracy": f"{value:.1%}"} for name, value in accuracy.items()
        ],
        heads: [_function(result.sel(function=name)) for name in result.function.values.tolist()],
    }
    return parts | _proof(result.sel(measure=result.measure.values[0])) if "effect" in result else parts


def _function(one: xr.Dataset, top: int = 4) -> dict[str, Any]:
    heads = []
    for layer, head, value in best(one.importance, top):
        here = one.sel(layer=layer, head=head)
        mark = "*" * bool(here.clears_control)
        heads.append(f"{head_name(layer, head)}{mark} {value:.4f} ± {(here.high - here.low).item() / 2:.4f}")
    listed = ", ".join(heads)
    return {
        "function": one.function.item(),
        "questions": int(one.questions.sum()),
        "recall": f"{one.accuracy_per_function.item():.0%}",
        "before elbow": int(one.before_elbow.sum()),
        "clear": int(one.clears_control.sum()),
        "selected": int(one.selected.sum()),
        "r": number(float(xr.corr(one.signed, one.signed_others))),
        "most important": listed if one.clears_control.any() else f"no head above chance ({listed})",
    }


def _proof(result: xr.Dataset) -> Tables:
    """Of one measure."""
    functions, measure = result.function.values.tolist(), result.measure.item()
    parts = {
        f"Heads removed while answering: change of {measure} (p: random heads of the same layers do as much)": [
            _removed(result.sel(function=f, n_removed=n)) for f in functions for n in result.n_removed.values
        ],
        f"Change of {measure}: whose {result.masked_heads.item()} top heads are removed × what is asked": [
            {"heads of": f} | {g: number(result.specialisation.sel(masked=f, function=g).item()) for g in functions}
            for f in functions
        ],
    }
    if result.sizes["order"]:
        parts[f"Change of {measure} without the heads of lower- and of higher-order functions"] = [
            _order(result.sel(order=o)) for o in result.order.values.tolist()
        ]
    parts[f"Change of {measure} when the top heads are pushed along their direction, α · σ"] = [
        {"function": f}
        | {f"{a:+g}": number(result.intervention.sel(function=f, alpha=a).item()) for a in result.alpha.values}
        for f in functions
    ]
    return parts


def _removed(one: xr.Dataset) -> dict[str, Any]:
    return {
        "asked": one.function.item(),
        "whole": number(one.baseline.item()),
        "heads": one.n_removed.item(),
        "top": number(one.effect.item()),
        "random": number(one.random_effect.mean().item()),
        "lowest": number(one.lowest_effect.item()),
        "p": number(one.p.item()),
        "p, corrected": number(one.p_corrected.item()),
    }


def _order(one: xr.Dataset) -> dict[str, Any]:
    row = {"without heads of": f"{one.order.item()} order"}
    for name, of in (("lower", LOWER), ("higher", HIGHER)):
        functions = [f for f in one.function.values.tolist() if f in of]
        row[f"{name}-order questions"] = number(one.hierarchy.sel(function=functions).mean().item())
        row[f"random heads, {name}"] = number(one.hierarchy_random.sel(function=functions).mean().item())
    return row


def probe_sentences(result: xr.Dataset) -> list[str]:
    """What a reader of an atlas must know: how many heads are above chance, and how much words alone tell."""
    lines = []
    if "clears_control" in result:
        clear = int(result.clears_control.any("function").sum())
        of = int(result.importance.isel(function=0).count())
        none = "" if clear else "no function has a head above chance in this model: "
        lines.append(f"probe: {none}{clear or 'none'} of {of} heads clear what shuffled labels give")
    if {"accuracy", "bag_of_words"} <= set(result):
        words = result.bag_of_words
        which = words.wording.values[np.argmax(words.values)]
        lines.append(
            f"probe: reads the function right in {float(result.accuracy):.1%} of test questions;"
            f" words alone ({which}) in {float(words.max()):.1%}"
        )
    return lines
