"""Values in the tables of several methods."""

import numpy as np
import xarray as xr


def best(score: xr.DataArray, n: int) -> list[tuple[int, int, float]]:
    """Return at most n heads of a map [layer, head] as (layer, head, score), best first, with scores above 0."""
    values = np.nan_to_num(score.values, nan=-np.inf)
    order = np.argsort(-values, axis=None, kind="stable")[:n]
    heads = zip(*(index.tolist() for index in np.unravel_index(order, values.shape)), strict=True)
    return [(layer, head, float(values[layer, head])) for layer, head in heads if values[layer, head] > 0]


def head_name(layer: int, head: int, unit: str = "Head") -> str:
    """Name a head (L12.H5) or a key-value group (L12.G1)."""
    return f"L{layer}.{'H' if unit == 'Head' else 'G'}{head}"


def number(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.2f}"
