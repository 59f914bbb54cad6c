"""Describe a dataset of head maps: its method and model, the unit of its columns, the subjects of its maps."""

from collections.abc import Hashable
from typing import Any

import xarray as xr

from headatlas.errors import BadArgument
from headatlas.methods import measures_of, title_of
from headatlas.methods._chance import at_chance, members_above_chance, stored_members

MAP = ("layer", "head")


def describe_result(result: xr.Dataset) -> str:
    """Name the method, the model and the size: 'Probe · smollm2 · 30 layers × 9 heads'."""
    column = "head" if unit_of(result) == "Head" else "KV group"
    counts = [(result.sizes["layer"], "layer"), (result.sizes["head"], column)]
    shape = " × ".join(f"{n} {word}{'s' * (n != 1)}" for n, word in counts)
    method = str(result.attrs.get("method", ""))
    model = str(result.attrs.get("model", ""))
    return " · ".join(part for part in (title_of(method), model, shape) if part)


def unit_of(result: xr.Dataset) -> str:
    """Return what the dimension `head` counts: 'Head' for query heads, 'KV group' after `by_kv_group`."""
    return str(result.attrs.get("unit", "Head"))


def subject_of(result: xr.Dataset) -> str:
    """Return the dimension of the subjects of a result's maps: function, relation, task, pattern, …"""
    measures = measures_of(str(result.attrs.get("method", "")))
    subject = next((m.over for m in measures if m.name in result and m.over in result[m.name].dims), None)
    if subject is None:
        variables = ", ".join(map(str, result.data_vars)) or "none"
        raise BadArgument(f"result has no map of a measure that its method declares; its variables: {variables}")
    return subject


def subject_dim(score: xr.DataArray) -> Hashable:
    """Return the dimension of the subjects of one variable's maps."""
    return next(d for d in score.dims if d not in MAP)


def by_kv_group(result: xr.Dataset, n_kv_heads: int | None = None) -> xr.Dataset:
    """Sum the maps per key-value group, the unit that cache compressors and pruners work on.

    Each measure is summed over the heads of a group, seed by seed if there are seeds. A measure that has one value for
    the whole group (`Measure.shared`, or a table whose attribute `per` is 'KV group') keeps that value. A group is a
    member of a category, selected or above chance if any of its heads is. Intervals, and measurements on sets of heads,
    are left out.

    Args:
        result: head maps of one method.
        n_kv_heads: groups per layer (default: the attribute `n_kv_heads` of the dataset).
    """
    n_heads = result.sizes["head"]
    groups: Any = result.attrs.get("n_kv_heads") if n_kv_heads is None else n_kv_heads
    if groups is None:
        raise BadArgument("these maps do not record n_kv_heads: give it")
    if not 0 < groups <= n_heads or n_heads % groups:
        raise BadArgument(f"n_kv_heads is {groups}, which does not divide the {n_heads} heads")
    size = n_heads // int(groups)
    measures = [m for m in measures_of(str(result.attrs.get("method"))) if m.name in result]
    names = [m.name for m in measures]
    above_chance = {f"above_chance_{n}": ~flag for n in sorted(names) if (flag := at_chance(result, n)) is not None}
    member = stored_members(result)
    if member is not None:
        above_chance[f"above_chance_{member.name}"] = members_above_chance(result, member)
    marked = result.assign(above_chance)
    flags = [str(n) for n, v in marked.data_vars.items() if "head" in v.dims and v.dtype == bool]
    parts = marked[[*names, *flags]].coarsen(head=size).construct(head=("head", "group_member"))
    summed = parts.map(lambda v: v.any("group_member") if v.dtype == bool else v.sum("group_member", skipna=False))
    per_group = result.attrs.get("per") == "KV group"
    summed = summed.assign({m.name: parts[m.name].isel(group_member=0) for m in measures if m.shared or per_group})
    summed = summed.assign_coords(head=range(int(groups)))
    summed = summed.assign_attrs(result.attrs | {"unit": "KV group", "group_size": size})
    # Texts and outcomes of tests are about a subject, not about its heads.
    subject_dims = {(m.over,) for m in measures}
    texts = [n for n, v in result.data_vars.items() if v.dims in subject_dims and v.dtype.kind in "bOU"]
    of_tests = [n for n in result.data_vars if str(n).startswith("tested_") and n not in flags]
    summed = summed.assign({n: result[n] for n in [*texts, *of_tests]})
    if measures and {"always", "any"} <= set(result) and "seed" in summed[names[0]].dims:
        summed = summed.assign(always=summed[names[0]].min("seed"), any=summed[names[0]].max("seed"))
    # A threshold is for single heads, which the sums no longer show.
    if measures and "threshold" in result.attrs:
        summed = summed.assign(best_head=result[names[0]].max(MAP))
    return summed
