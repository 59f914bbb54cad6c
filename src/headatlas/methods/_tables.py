"""Rows of plain values for the terminal: what the tables of several methods share."""

from typing import Any

import numpy as np
import xarray as xr

from headatlas.methods.method import Method


def best(score: xr.DataArray, n: int) -> list[tuple[int, int, float]]:
    """The n best heads of a map [layer, head] as (layer, head, value), best first; only what is above 0."""
    values = np.nan_to_num(score.values, nan=-np.inf)
    order = np.argsort(-values, axis=None, kind="stable")[:n]
    places = [(int(a), int(b)) for a, b in zip(*np.unravel_index(order, values.shape), strict=True)]
    return [(a, b, float(values[a, b])) for a, b in places if values[a, b] > 0]


def head_name(layer: int, head: int, unit: str = "Head") -> str:
    """L12.H5; of a key-value group, L12.G1."""
    return f"L{layer}.{'H' if unit == 'Head' else 'G'}{head}"


def top_heads(score: xr.DataArray, n: int) -> list[tuple[str, float]]:
    """`best` by name."""
    return [(head_name(a, b), value) for a, b, value in best(score, n)]


def generic_tables(method: Method, result: xr.Dataset, n: int = 5) -> dict[str, list[dict[str, Any]]]:
    """What is printed of a method without tables of its own: of each measure, the top heads of every subject."""
    tables = {}
    for measure in method.measures:
        score = result[measure.name]
        score = score.mean([dim for dim in score.dims if dim not in (measure.over, "layer", "head")])
        tables[f"{method.title}: {measure.name}"] = [
            {
                measure.over: str(subject),
                "top heads": ", ".join(f"{name} {value:.3g}" for name, value in heads) or "none",
            }
            for subject in score[measure.over].values
            for heads in [top_heads(score.sel({measure.over: subject}).transpose("layer", "head"), n)]
        ]
    return tables


def number(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.2f}"
