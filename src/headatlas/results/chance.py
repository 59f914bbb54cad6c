"""Which scores chance explains: the one place that knows the chance level of every method that measures one."""

import numpy as np
import xarray as xr

NONE_ABOVE = "no head above chance"
LEVELS = {"score": "chance", "suppression": "chance_suppression", "importance": "control_importance"}
"""By measure: the variable with the highest score that chance explains, for each subject or each of its heads."""


def chance(found: xr.Dataset, measure: str) -> xr.DataArray | None:
    """The highest score that chance explains: over subjects, or over (subject, layer, head) where heads differ (probe).

    None where the method has no chance level, or none of this measure; NaN for subjects without one.
    """
    name = LEVELS.get(measure)
    if name not in found or measure not in found or not set(found[name].dims) <= set(found[measure].dims):
        return None
    level = found[name]
    return level if bool(level.notnull().any()) else None


def at_chance(found: xr.Dataset, measure: str) -> xr.DataArray | None:
    """Which heads score no more than chance explains: bool, over the dimensions of the measure. None: nothing tells.

    maps: the score is not above the level (docs/maps.md has the rule). probe: the interval does not clear what shuffled labels
    give. dissociate: all heads of a function whose heads were not proven to be its own.
    """
    if measure not in found:
        return None
    score, level = found[measure], chance(found, measure)
    if f"above_chance_{measure}" in found:  # groups of heads
        flag = ~found[f"above_chance_{measure}"].astype(bool)
    elif measure in ("importance", "signed") and "clears_control" in found:
        flag = ~found.clears_control.astype(bool)
    elif "proven" in found:
        flag = ~found.proven.astype(bool)
    elif level is not None:
        flag = abs(score) <= level
    else:
        return None
    if not set(flag.dims) <= set(score.dims):
        return None
    return (flag & score.notnull()).transpose(*score.dims)


def none_above(found: xr.Dataset, measure: str) -> xr.DataArray | None:
    """Which subjects have scores, but no head above chance: bool over subjects."""
    flag = at_chance(found, measure)
    if flag is None:
        return None
    heads = ("layer", "head")
    return (flag | found[measure].isnull()).all(heads) & found[measure].notnull().any(heads)


def no_rank(method: str) -> str:
    """What stands in place of a rank for a head at chance."""
    return "not proven" if method == "dissociate" else "at chance"


def none_in_words(method: str) -> str:
    """What is said of a map without a head above chance."""
    return "not proven" if method == "dissociate" else NONE_ABOVE


def level_in_words(level: xr.DataArray | float) -> str:
    """'chance 0.05', or 'chance 0.01 to 0.04' where heads differ; nothing where it is not known."""
    values = np.asarray(level, dtype=float)
    values = values[np.isfinite(values)]
    if not len(values):
        return ""
    low, high = (f"{v:.2g}" for v in (values.min(), values.max()))
    return f"chance {low}" if low == high else f"chance {low} to {high}"


def highest_level(found: xr.Dataset, measure: str) -> float:
    """The highest chance level that any head is above: how far colours must reach. 0 where there is none."""
    level, flag = chance(found, measure), at_chance(found, measure)
    if level is None or flag is None:
        return 0.0
    return float(level.where(~flag & found[measure].notnull()).max().fillna(0.0))


def above_chance(found: xr.Dataset, measure: str) -> xr.DataArray:
    """The measure with 0 for heads at chance, for colours to begin above it."""
    flag = at_chance(found, measure)
    return found[measure] if flag is None else found[measure].where(~flag, 0.0)


def members(found: xr.Dataset) -> xr.DataArray:
    """`member` of maps, without the heads that are members only by scores at chance.

    The file keeps the published rule (a score or suppression that reaches the threshold). Categories taken from multi-token pairs
    have no chance level and are left as they are, as are datasets that do not say which relation is of which category.
    """
    if "above_chance_member" in found:  # groups of heads
        return found.above_chance_member
    member = found.member.astype(bool)
    flags = {m: at_chance(found, m) for m in ("score", "suppression")}
    known = "threshold" in found.attrs and "category_name" in found.coords and "category" in found.coords
    if not known or found["category"].dims != ("relation",) or all(f is None for f in flags.values()):
        return member
    reached = xr.zeros_like(found.score, dtype=bool)
    for measure, flag in flags.items():
        if measure in found:
            high = found[measure] >= float(found.attrs["threshold"])
            reached = reached | (high if flag is None else high & ~flag)
    of = found["category"].values
    kept = [reached.isel(relation=np.flatnonzero(of == name)).any("relation") for name in found.category_name.values]
    by_chance = member & ~xr.concat(kept, "category").transpose(*member.dims)
    if "member_from_multi" in found:
        by_chance = by_chance & ~found.member_from_multi.astype(bool)
    return member & ~by_chance
