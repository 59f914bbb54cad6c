"""Turn what `compare` returns into rows for the terminal and for JSON."""

import math
from typing import Any

import numpy as np
import xarray as xr

from headatlas.comparison.compare import DEPTH
from headatlas.comparison.repeats import plural

COLUMNS = (
    *("a", "b", "atlas_a", "atlas_b", "same", "unit", "n", "top", "spearman", "p", "p_corrected"),
    *("shared", "p_shared", "shared_by_chance", "auroc_ab", "auroc_ba", "depth_r"),
)
Rows = list[dict[str, Any]]


def pair_rows(comparison: xr.Dataset) -> Rows:
    """Return a row per pair of maps with all its numbers, the highest correlation first; None for a missing number."""
    columns = {name: comparison[name].values.tolist() for name in COLUMNS}
    depth = dict(zip(comparison.chart.values.tolist(), comparison.depth.values.tolist(), strict=True))
    for side in ("a", "b"):
        columns[f"depth_{side}"] = [depth[chart] for chart in columns[side]]
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    # Pairs without a correlation (NaN) come last.
    rows.sort(key=lambda row: -row["spearman"] if row["spearman"] == row["spearman"] else math.inf)
    rows = [{name: _or_none(value) for name, value in row.items()} for row in rows]
    return [row | {name: None if row[name] is None else int(row[name]) for name in ("n", "top")} for row in rows]


def between_atlases(rows: Rows) -> Rows:
    """Select the rows of `pair_rows` with a correlation; with several atlases, only pairs between two of them."""
    correlated = [row for row in rows if row["spearman"] is not None]
    return [row for row in correlated if row["atlas_a"] != row["atlas_b"]] or correlated


def same_maps_in_words(rows: Rows) -> Rows:
    """Put the rows of `pair_rows` for maps that two atlases both have into words."""
    lines = []
    for row in rows:
        name = row["a"].removeprefix(f"{row['atlas_a']}/")
        line = {"map": name, "A": row["atlas_a"], "B": row["atlas_b"]}
        if any(other["spearman"] is not None for other in rows):
            line |= _numbers_in_words(row)
        lines.append(line | {"depth in A": row["depth_a"], "in B": row["depth_b"], "r over depth": row["depth_r"]})
    return lines


def pairs_in_words(rows: Rows) -> Rows:
    """Format rows of `pair_rows` for a table."""
    return [
        {"A": row["a"], "B": row["b"], "per": row["unit"]}
        | _numbers_in_words(row)
        | {"AUROC A→B": _round(row["auroc_ab"]), "B→A": _round(row["auroc_ba"])}
        for row in rows
    ]


def _numbers_in_words(row: dict[str, Any]) -> dict[str, Any]:
    correlated = row["spearman"] is not None
    return {
        "spearman": _round(row["spearman"]),
        "p, corrected": row["p_corrected"],
        "top shared": f"{row['shared']:.3g} of {row['top']}" if correlated else None,
        "by chance": f"{row['shared_by_chance']:.2g}" if correlated else None,
    }


def repeat_rows(comparison: xr.Dataset) -> Rows:
    """Return a row per map that was compared with itself, the least stable first."""
    names = ("chart", "atlas", "repeats", "spearman", "spearman_whole", "shared", "top")
    columns = [comparison[name].values.tolist() for name in names]
    rows = [dict(zip(names, map(_or_none, values), strict=True)) for values in zip(*columns, strict=True)]
    return sorted(rows, key=lambda row: math.inf if row["spearman"] is None else row["spearman"])


def repeats_in_words(rows: Rows, over: str) -> Rows:
    """Put the rows of `repeat_rows` into words."""
    return [
        {
            "map": row["chart"],
            "atlas": row["atlas"],
            plural(over): row["repeats"],
            f"spearman between {plural(over)}": _round(row["spearman"]),
            "of the whole map": _round(row["spearman_whole"]),
            "top shared": None if row["shared"] is None else f"{row['shared']:.3g} of {row['top']:.0f}",
        }
        for row in rows
    ]


def only_by_depth(rows: Rows) -> bool:
    """Return whether all pairs could be compared by relative depth only."""
    return all(row["unit"] == DEPTH for row in rows)


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value
