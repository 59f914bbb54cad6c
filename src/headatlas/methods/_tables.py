"""Rows of plain values for the terminal: what the tables of several methods share."""

import numpy as np
import xarray as xr

from headatlas.methods.method import Method, Tables


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


def generic_tables(method: Method, result: xr.Dataset, n: int = 5) -> Tables:
    """What is printed of a method without tables of its own: of each measure, the top heads of every subject."""
    tables = {}
    for measure in method.measures:
        score = result[measure.name]
        score = score.mean([dim for dim in score.dims if dim not in (measure.over, "layer", "head")])
        maps = {str(s): score.sel({measure.over: s}).transpose("layer", "head") for s in score[measure.over].values}
        tables[f"{method.title}: {measure.name}"] = [
            {measure.over: subject, "top heads": list_best(heads, n, "{} {:.3g}", ", ") or "none"}
            for subject, heads in maps.items()
        ]
    return tables
