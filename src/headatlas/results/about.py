"""What a dataset of head maps is about: its method and model in words, its unit, its parts."""

from collections.abc import Hashable
from typing import Any

import xarray as xr

from headatlas.errors import BadArgument
from headatlas.methods import measures_of, title_of
from headatlas.methods._chance import at_chance, members_above_chance, stored_members

MAP = ("layer", "head")


def describe_result(result: xr.Dataset) -> str:
    """Method, model and size: 'Probe · smollm2 · 30 layers × 9 heads'."""
    units = "head" if unit_of(result) == "Head" else "KV group"
    counts = [(result.sizes["layer"], "layer"), (result.sizes["head"], units)]
    shape = " × ".join(f"{n} {word}{'s' * (n != 1)}" for n, word in counts)
    method, model = (str(result.attrs.get(name, "")) for name in ("method", "model"))
    return " · ".join(part for part in (title_of(method), model, shape) if part)


def unit_of(result: xr.Dataset) -> str:
    """What the axis `head` counts: query heads, or key-value groups after `by_kv_group`."""
    return str(result.attrs.get("unit", "Head"))


def subject_of(result: xr.Dataset) -> str:
    """Return the dimension that names what the maps of a result are about: function, relation, task, pattern, …"""
    measures = measures_of(str(result.attrs.get("method", "")))
    subject = next((m.over for m in measures if m.name in result and m.over in result[m.name].dims), None)
    if subject is None:
        here = ", ".join(map(str, result.data_vars)) or "nothing"
        raise BadArgument(f"result has no map of a measure of its method over a subject; here are: {here}")
    return subject


def subject_dim(score: xr.DataArray) -> Hashable:
    """Return the dimension that names what the maps of one variable are about."""
    return next(d for d in score.dims if d not in MAP)


def by_kv_group(result: xr.Dataset, n_kv_heads: int | None = None) -> xr.Dataset:
    """The same maps summed per key-value group, the unit that cache compressors and pruners work on.

    Measures are summed, seed by seed where there are seeds, but for those that are a group's own and the same for all
    its heads (`Measure.shared`, or a table whose attribute `per` is 'KV group'). A group is what any of its heads is: a
    member of a category, selected, above chance. Intervals, and what was measured with sets of heads, are left out.
    n_kv_heads: how many groups; without it, what the dataset says of its model.
    """
    n_heads = result.sizes["head"]
    groups: Any = result.attrs.get("n_kv_heads") if n_kv_heads is None else n_kv_heads
    if groups is None:
        raise BadArgument("n_kv_heads is not known of these maps: give it")
    if not 0 < groups <= n_heads or n_heads % groups:
        raise BadArgument(f"n_kv_heads is {groups}, which does not divide the {n_heads} heads")
    size = n_heads // int(groups)
    measures = [m for m in measures_of(str(result.attrs.get("method"))) if m.name in result]
    names = [m.name for m in measures]
    above = {f"above_chance_{n}": ~flag for n in sorted(names) if (flag := at_chance(result, n)) is not None}
    member = stored_members(result)
    if member is not None:
        above[f"above_chance_{member.name}"] = members_above_chance(result, member)
    marked = result.assign(above)
    flags = [str(n) for n, v in marked.data_vars.items() if "head" in v.dims and v.dtype == bool]
    parts = marked[[*names, *flags]].coarsen(head=size).construct(head=("head", "of_group"))
    summed = parts.map(lambda v: v.any("of_group") if v.dtype == bool else v.sum("of_group", skipna=False))
    of_groups = result.attrs.get("per") == "KV group"
    summed = summed.assign({m.name: parts[m.name].isel(of_group=0) for m in measures if m.shared or of_groups})
    summed = summed.assign_coords(head=range(int(groups)))
    summed = summed.assign_attrs(result.attrs | {"unit": "KV group", "group_size": size})
    overs = {(m.over,) for m in measures}
    verdicts = [n for n, v in result.data_vars.items() if v.dims in overs and v.dtype.kind in "bOU"]
    summed = summed.assign({n: result[n] for n in verdicts})
    if measures and {"always", "any"} <= set(result) and "seed" in summed[names[0]].dims:
        summed = summed.assign(always=summed[names[0]].min("seed"), any=summed[names[0]].max("seed"))
    if measures and "threshold" in result.attrs:
        summed = summed.assign(best_head=result[names[0]].max(MAP))
    return summed
