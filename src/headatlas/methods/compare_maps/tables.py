"""The result of `compare_maps` as rows for the terminal and for JSON."""

from typing import Any

import xarray as xr

from headatlas.evidence.selective import SURE, WEIGHT
from headatlas.methods._tables import number
from headatlas.methods.dissociate.tables import pair
from headatlas.methods.method import Tables


def comparison_tables(result: xr.Dataset, at: int = 16) -> Tables:
    """How every map fares: over all functions, and function by function. at: a number of heads shown for all maps."""
    maps = [result.isel(ranking=i) for i in range(result.sizes["ranking"])]
    return {
        "Maps compared: change of log P per answer token on test questions, means over functions": [
            _overall(one, at) for one in maps
        ],
        "Function by function, itself / mean size of the others (* proven: 3 times that, and more than random heads)": [
            {"map": one["ranking"].item()} | _by_function(one) for one in maps
        ],
    }


def _overall(one: xr.Dataset, at: int) -> dict[str, Any]:
    of = f"of {one.sizes['function']}"
    other_size = abs(one.other_effect).mean("other")
    enough = -one.effect >= WEIGHT * other_size
    row = {
        "map": one["ranking"].item(),
        "heads": f"{one.n_removed.median().item():.0f}",
        "itself": number(one.effect.mean().item()),
        "others, mean size": number(other_size.mean().item()),
        "selectivity": number(one.selectivity.mean().item()),
        "3 x the others": f"{int(enough.sum())} {of}",
        "more than random": f"{int((one.p_corrected < SURE).sum())} {of}",
        "both": f"{int(one.proven.sum())} {of}",
    }
    if at in one.step.values and "other_size_curve" in one:
        fixed = one.sel(step=at, split="test")
        row[f"itself / others at {at} heads"] = pair(fixed.effect_curve.mean(), fixed.other_size_curve.mean())
    return row


def _by_function(one: xr.Dataset) -> dict[str, str]:
    other_size = abs(one.other_effect).mean("other")
    return {
        str(f): pair(one.effect.isel(function=k), other_size.isel(function=k)) + " *" * bool(one.proven[k])
        for k, f in enumerate(one["function"].values.tolist())
    }
