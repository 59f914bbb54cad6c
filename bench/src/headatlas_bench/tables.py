"""The benchmark as rows for the terminal and for JSON."""

from typing import Any

import numpy as np
import xarray as xr

HARDER = ": "  # in the names of harder plantings, between the planting and what must come first


def benchmark(result: xr.Dataset) -> list[dict[str, Any]]:
    """A row per contender and kind of truth; what is known of the same method on a real model stands beside it.

    Harder plantings have a table of their own (`plantings`).
    """
    rows = []
    for name in result.contender.values.tolist():
        for over in result.over.values.tolist():
            if HARDER in over:
                continue
            one = result.sel(contender=name, over=over)
            if np.isnan(one.auroc_mean):
                continue
            cost = result.sel(contender=name, model=result.group == over)
            rows.append(
                {
                    "method": name,
                    "truth": over,
                    "AUROC": _digits(one.auroc_mean),
                    "95 %": f"{float(one.auroc_low):.3f} to {float(one.auroc_high):.3f}",
                    "average precision": _digits(one.average_precision_mean),
                    "seconds": round(float(cost.seconds.mean()), 1),
                    "forward": round(float(cost.forward.mean())),
                    "backward": round(float(cost.backward.mean())),
                }
                | _beside(result, name)
            )
    return rows


def plantings(result: xr.Dataset) -> list[dict[str, Any]]:
    """A row per planting, what must come first, and contender: AUROC with its interval, the share marked, the share the
    method counts as its map's own, and how far scores go with strengths."""
    rows = []
    for over in (o for o in result.over.values.tolist() if HARDER in o):
        for name in result.contender.values.tolist():
            one = result.sel(contender=name, over=over)
            if np.isnan(one.auroc_mean):
                continue
            planting, _, first = over.partition(HARDER)
            rows.append(
                {
                    "planting": planting,
                    "first": first,
                    "method": name,
                    "AUROC": _digits(one.auroc_mean),
                    "95 %": f"{float(one.auroc_low):.3f} to {float(one.auroc_high):.3f}",
                    "marked": _digits(one.marked_mean),
                    "own": _digits(one.own_mean),
                    "graded": _digits(one.graded_mean),
                }
            )
    return rows


def side_by_side(rows: list[dict[str, Any]], measure: str = "AUROC") -> list[dict[str, Any]]:
    """`plantings`, a row per method and a column per planting and what must come first."""
    methods = dict.fromkeys(row["method"] for row in rows)
    columns = dict.fromkeys((row["planting"], row["first"]) for row in rows)
    values = {(row["method"], row["planting"], row["first"]): row[measure] for row in rows}
    return [
        {"method": name} | {f"{planting}: {first}": values.get((name, planting, first)) for planting, first in columns}
        for name in methods
    ]


def real(result: xr.Dataset) -> list[dict[str, Any]]:
    """A row per map of the real model."""
    if "real" not in result.dims:
        return []
    rows = []
    for i in range(result.sizes["real"]):
        one = result.isel(real=i)
        rows.append(
            {
                "method": str(one.real_method.item()),
                "subject": str(one.real_subject.item()),
                "agreement": _digits(one.agreement),
                "stability": _digits(one.stability),
                "effect, top 5 % removed": _digits(one.effect),
                "random of the same layers": _digits(one.random_effect),
                "p": _digits(one.p),
                "p corrected": _digits(one.p_corrected),
                "follows, top 5 % transferred": _digits(one.follows),
                "random follows": _digits(one.random_follows),
                "disturbs": _digits(one.disturbs),
                "transfer p": _digits(one.transfer_p),
                "transfer p corrected": _digits(one.transfer_p_corrected),
            }
        )
    return rows


def _beside(result: xr.Dataset, name: str) -> dict[str, Any]:
    """Of a method's maps of the real model: mean agreement and stability, and how many pass the removal test."""
    if "real" not in result.dims:
        return {}
    own = result.isel(real=np.flatnonzero(result.real_method.values == name))
    n = own.sizes["real"]
    return {
        "agreement": _mean(own.agreement),
        "stability": _mean(own.stability),
        "removal p < 0.05": f"{int((own.p_corrected < 0.05).sum())} of {n}" if n else None,
    }


def _mean(values: xr.DataArray) -> float | None:
    return None if np.isnan(values).all() else round(float(values.mean()), 3)


def _digits(value: xr.DataArray) -> float | None:
    return None if np.isnan(value) else round(float(value), 3)
