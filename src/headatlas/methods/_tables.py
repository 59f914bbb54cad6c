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


def list_best(score: xr.DataArray, n: int, form: str = "{} {:.2f}", between: str = " ") -> str:
    """`best` in words: 'L3.H1 0.52 L0.H4 0.31'; nothing where no head is above 0."""
    return between.join(form.format(head_name(layer, head), value) for layer, head, value in best(score, n))


def number(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.2f}"
