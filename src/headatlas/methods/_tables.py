"""Rows of plain values for the terminal: what the tables of several methods share."""

import numpy as np
import xarray as xr


def best(score: xr.DataArray, n: int) -> list[tuple[int, int, float]]:
    """The n best heads of a map [layer, head] as (layer, head, value), best first; only what is above 0."""
    values = np.nan_to_num(score.values, nan=-np.inf)
    order = np.argsort(-values, axis=None, kind="stable")[:n]
    places = [(int(a), int(b)) for a, b in zip(*np.unravel_index(order, values.shape), strict=True)]
    return [(a, b, float(values[a, b])) for a, b in places if values[a, b] > 0]


def head_name(layer: int, head: int, unit: str = "Head") -> str:
    """L12.H5; of a key-value group, L12.G1."""
    return f"L{layer}.{'H' if unit == 'Head' else 'G'}{head}"


def number(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.2f}"
