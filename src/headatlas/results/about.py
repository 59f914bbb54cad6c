"""What a dataset of head maps is about: its method and model in words, its unit, its parts."""

from collections.abc import Hashable
from typing import Any

import xarray as xr

from headatlas.errors import BadArgument
from headatlas.results.chance import at_chance, members
from headatlas.results.charts import MEASURES

NAMES = {
    "probe": "Probe",
    "dissociate": "Dissociate",
    "maps": "MAPS",
    "gate": "Causal head gating",
    "ablate": "Ablation",
    "taylor": "Gradients (Taylor)",
    "ig": "Integrated gradients",
    "pattern": "Attention patterns",
    "salient": "Salient operations",
    "compare_maps": "Maps compared",
}


def about(found: xr.Dataset) -> str:
    """Method, model and size: 'Probe · smollm2 · 30 layers × 9 heads'."""
    said = found.attrs
    units = "head" if unit(found) == "Head" else "KV group"
    counts = [(found.sizes["layer"], "layer"), (found.sizes["head"], units)]
    shape = " × ".join(f"{n} {word}{'s' * (n != 1)}" for n, word in counts)
    named = [NAMES.get(str(said.get("method", "")), str(said.get("method", ""))), str(said.get("model", "")), shape]
    return " · ".join(part for part in named if part)


def unit(found: xr.Dataset) -> str:
    """What the axis `head` counts: query heads, or key-value groups after `by_kv_group`."""
    return str(found.attrs.get("unit", "Head"))


def subject_dim(score: xr.DataArray) -> Hashable:
    """The dimension that names what maps are about: function, relation, task, …"""
    return next(d for d in score.dims if d not in ("layer", "head"))


def by_kv_group(found: xr.Dataset, n_kv_heads: int | None = None) -> xr.Dataset:
    """The same maps summed per key-value group, the unit that cache compressors and pruners work on.

    What the method says of heads is summed, seed by seed where there are seeds; a group is what any of its heads is (a member of a
    category, selected, above chance). Bootstrap intervals, and what was measured with sets of heads, are left out.
    n_kv_heads: how many groups; without it, what the dataset says of its model.
    """
    n_heads = found.sizes["head"]
    groups: Any = found.attrs.get("n_kv_heads") if n_kv_heads is None else n_kv_heads
    if groups is None:
        raise BadArgument("n_kv_heads is not known of these maps: give it")
    if not 0 < groups <= n_heads or n_heads % groups:
        raise BadArgument(f"n_kv_heads is {groups}, which does not divide the {n_heads} heads")
    size = n_heads // int(groups)
    measured = {name for name, _ in MEASURES.get(str(found.attrs.get("method")), ())}
    above = {f"above_chance_{m}": ~flag for m in sorted(measured) if (flag := at_chance(found, m)) is not None}
    if "member" in found:
        above["above_chance_member"] = members(found)
    found = found.assign(above)
    flags = {"member", "selected", "before_elbow", "clears_control", *above}
    kept = [str(n) for n, v in found.data_vars.items() if "head" in v.dims and str(n) in measured | flags]
    parts = found[kept].coarsen(head=size).construct(head=("head", "of_group"))
    summed = parts.map(lambda v: v.any("of_group") if v.dtype == bool else v.sum("of_group", skipna=False))
    summed = summed.assign_coords(head=range(int(groups)))
    summed = summed.assign_attrs(found.attrs | {"unit": "KV group", "group_size": size})
    summed = summed.assign({name: found[name] for name in ("verdict", "proven") if name in found})
    if {"facilitation", "always"} <= set(found):
        over = summed.facilitation
        summed = summed.assign(always=over.min("seed"), any=over.max("seed")) if "seed" in over.dims else summed
    if "score" in kept and "relation" in found.score.dims:
        summed = summed.assign(best_head=found.score.max(("layer", "head")))
    return summed
