"""Tables of the benchmark, as rows for the terminal and for JSON."""

from typing import Any

import numpy as np
import xarray as xr

# In the names of harder plantings, between the planting and the heads that must come first.
HARDER_SEPARATOR = ": "


def benchmark(result: xr.Dataset) -> list[dict[str, Any]]:
    """Make a row per contender and kind of truth, with a summary of the same method's maps of the real model.

    Harder plantings are in a separate table (`plantings`).
    """
    rows = []
    for name in result.contender.values.tolist():
        for group in result.over.values.tolist():
            if HARDER_SEPARATOR in group:
                continue
            scores = result.sel(contender=name, over=group)
            if np.isnan(scores.auroc_mean):
                continue
            cost = result.sel(contender=name, model=result.group == group)
            rows.append(
                {
                    "method": name,
                    "truth": group,
                    "AUROC": _round(scores.auroc_mean),
                    "95 %": f"{float(scores.auroc_low):.3f} to {float(scores.auroc_high):.3f}",
                    "average precision": _round(scores.average_precision_mean),
                    "seconds": round(float(cost.seconds.mean()), 1),
                    "forward": round(float(cost.forward.mean())),
                    "backward": round(float(cost.backward.mean())),
                }
                | _real_model_summary(result, name)
            )
    return rows


def plantings(result: xr.Dataset) -> list[dict[str, Any]]:
    """Make a row per planting, heads that must come first, and contender.

    Columns: AUROC with its interval; the share marked; `own`, the share with a score above the method's threshold;
    `graded`, the correlation of scores with strengths.
    """
    rows = []
    for group in (name for name in result.over.values.tolist() if HARDER_SEPARATOR in name):
        for name in result.contender.values.tolist():
            scores = result.sel(contender=name, over=group)
            if np.isnan(scores.auroc_mean):
                continue
            planting, _, first = group.partition(HARDER_SEPARATOR)
            rows.append(
                {
                    "planting": planting,
                    "first": first,
                    "method": name,
                    "AUROC": _round(scores.auroc_mean),
                    "95 %": f"{float(scores.auroc_low):.3f} to {float(scores.auroc_high):.3f}",
                    "marked": _round(scores.marked_mean),
                    "own": _round(scores.own_mean),
                    "graded": _round(scores.graded_mean),
                }
            )
    return rows


def side_by_side(rows: list[dict[str, Any]], measure: str = "AUROC") -> list[dict[str, Any]]:
    """Reshape rows of `plantings`: a row per method, a column per planting and heads that must come first."""
    methods = dict.fromkeys(row["method"] for row in rows)
    columns = dict.fromkeys((row["planting"], row["first"]) for row in rows)
    values = {(row["method"], row["planting"], row["first"]): row[measure] for row in rows}
    return [
        {"method": name} | {f"{planting}: {first}": values.get((name, planting, first)) for planting, first in columns}
        for name in methods
    ]


def real_model_rows(result: xr.Dataset) -> list[dict[str, Any]]:
    """Make a row per map of the real model."""
    if "real" not in result.dims:
        return []
    rows = []
    for i in range(result.sizes["real"]):
        scores = result.isel(real=i)
        rows.append(
            {
                "method": str(scores.real_method.item()),
                "subject": str(scores.real_subject.item()),
                "agreement": _round(scores.agreement),
                "stability": _round(scores.stability),
                "effect, top 5 % removed": _round(scores.effect),
                "random of the same layers": _round(scores.random_effect),
                "p": _round(scores.p),
                "p corrected": _round(scores.p_corrected),
                "follows, top 5 % transferred": _round(scores.follows),
                "random follows": _round(scores.random_follows),
                "disturbs": _round(scores.disturbs),
                "transfer p": _round(scores.transfer_p),
                "transfer p corrected": _round(scores.transfer_p_corrected),
            }
        )
    return rows


def _real_model_summary(result: xr.Dataset, name: str) -> dict[str, Any]:
    """Summarise a method's maps of the real model: mean agreement and stability, and how many pass the removal test."""
    if "real" not in result.dims:
        return {}
    maps_of_method = result.isel(real=np.flatnonzero(result.real_method.values == name))
    n = maps_of_method.sizes["real"]
    return {
        "agreement": _mean(maps_of_method.agreement),
        "stability": _mean(maps_of_method.stability),
        "removal p < 0.05": f"{int((maps_of_method.p_corrected < 0.05).sum())} of {n}" if n else None,
    }


def _mean(values: xr.DataArray) -> float | None:
    return None if np.isnan(values).all() else round(float(values.mean()), 3)


def _round(value: xr.DataArray) -> float | None:
    return None if np.isnan(value) else round(float(value), 3)
