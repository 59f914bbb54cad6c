"""The result of `dissociate` as rows for the terminal and for JSON, and in sentences."""

from typing import Any

import numpy as np
import xarray as xr

from headatlas.methods._tables import list_best, number
from headatlas.methods.method import Tables


def dissociation_tables(result: xr.Dataset, top: int = 4) -> Tables:
    """Each function's heads, what their removal does to it and to the others, and how their number was chosen."""
    functions = result.function.values.tolist()
    shut: list[dict[str, Any]] = [
        {
            "function": f,
            "always": int((result.always.sel(function=f) >= 0.5).sum()),
            "any": int((result["any"].sel(function=f) >= 0.5).sum()),
            "most so": list_best(result.score.sel(function=f).mean("seed"), top),
        }
        for f in functions
    ]
    shut_title = "Heads that are shut (1 - gate of 0.5 or more) in every seed and in any"
    if "effect" not in result:
        return {shut_title: shut}
    tables = {
        "Heads removed for good: change of log P per answer token, on test questions (p: random heads do as much)": [
            _removed(result.sel(function=f)) for f in functions
        ],
        shut_title: shut,
    }
    if "other_size_curve" in result:
        title = "Change of the function / mean size of the others' changes, by number of heads (validation questions)"
        tables[title] = [{"function": f} | _by_number(result.sel(function=f, split="validation")) for f in functions]
    removed = [f for f in functions if int(result.n_removed.sel(function=f))]
    if removed:
        tables["Whose heads are removed × what is asked"] = [
            {"heads of": f} | {g: number(_change(result.sel(function=f), f, g)) for g in functions} for f in removed
        ]
    return tables


def verdicts(result: xr.Dataset) -> list[str]:
    """A line for each function: whether it has heads of its own."""
    lines = []
    for function in result.function.values.tolist() if {"verdict", "proven", "other_effect"} <= set(result) else ():
        one = result.sel(function=function)
        size = float(abs(one.other_effect).mean())
        others = f"; without them the others change by ±{size:.2f} on average" * bool(one.proven)
        lines.append(f"dissociate: {function}: {one.verdict.item()}{others}")
    return lines


def pair(effect: xr.DataArray, other_size: xr.DataArray) -> str:
    """The change of a function / the mean size of the others' changes, which is what a verdict compares."""
    return "-" if np.isnan(effect.item()) else f"{effect.item():.2f} / ±{other_size.item():.2f}"


def _removed(one: xr.Dataset) -> dict[str, Any]:
    return {
        "function": one.function.item(),
        "log P": number(one.baseline.item()),
        "heads": int(one.n_removed) or "-",
        "itself": number(one.effect.item()),
        "others, mean size": number(abs(one.other_effect).mean().item()),
        "worst other": number(one.other_effect.min().item()),
        "random heads": number(one.random_effect.mean().item()),
        "p, corrected": number(one.p_corrected.item()),
        "": one.verdict.item(),
    }


def _by_number(one: xr.Dataset) -> dict[str, str]:
    steps = one.step.values.tolist()
    return {str(n): pair(one.effect_curve.sel(step=n), one.other_size_curve.sel(step=n)) for n in steps}


def _change(one: xr.Dataset, function: str, other: str) -> float:
    return float(one.effect if function == other else one.other_effect.sel(other=other))
