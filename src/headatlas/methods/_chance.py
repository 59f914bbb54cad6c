"""Which scores chance explains, as the measure that a method declares says."""

import numpy as np
import xarray as xr

from headatlas.methods import measures_of, shown
from headatlas.methods.method import Measure

AT_CHANCE, NONE_ABOVE = "at chance", "no head above chance"


def _declared(result: xr.Dataset, variable: str) -> Measure:
    """The measure that a variable is. One that is none (another view of the map) is judged by the flag of the first."""
    measures = measures_of(str(result.attrs.get("method")))
    other = Measure(variable, "", above=measures[0].above if measures else "")
    return next((m for m in measures if m.name == variable), other)


def chance(result: xr.Dataset, measure: str) -> xr.DataArray | None:
    """The highest score that chance explains: over subjects, or over (subject, layer, head) where heads differ.

    None where the method has no chance level, or none of this measure; NaN for subjects without one.
    """
    name = _declared(result, measure).chance
    if name not in result or measure not in result or not set(result[name].dims) <= set(result[measure].dims):
        return None
    level = result[name]
    return level if bool(level.notnull().any()) else None


def at_chance(result: xr.Dataset, measure: str) -> xr.DataArray | None:
    """Which heads score no more than chance explains: bool, over the dimensions of the measure. None: nothing tells.

    A method may say which heads, or which whole maps, are above chance; else the score must be above the chance level.
    """
    if measure not in result:
        return None
    score, level, above = result[measure], chance(result, measure), _declared(result, measure).above
    if f"above_chance_{measure}" in result:  # groups of heads
        flag = ~result[f"above_chance_{measure}"].astype(bool)
    elif above in result:
        flag = ~_above(result, above)
    elif level is not None:
        flag = abs(score) <= level
    else:
        return None
    if not set(flag.dims) <= set(score.dims):
        return None
    return (flag & score.notnull()).transpose(*score.dims)


def _above(result: xr.Dataset, above: str) -> xr.DataArray:
    """Heads above chance. A flag on whole maps is the outcome of a test, so it holds for the heads that it removed."""
    flag = result[above].astype(bool)
    tested_heads = result.get("selected", xr.DataArray(True))
    if {"layer", "head"} & set(flag.dims) or set(tested_heads.dims) != {*flag.dims, "layer", "head"}:
        return flag
    return flag & tested_heads.astype(bool)


def none_above(result: xr.Dataset, measure: str) -> xr.DataArray | None:
    """Which subjects have scores, but no head above chance: bool over subjects."""
    flag = at_chance(result, measure)
    if flag is None:
        return None
    heads = ("layer", "head")
    return (flag | result[measure].isnull()).all(heads) & result[measure].notnull().any(heads)


def no_rank(method: str) -> str:
    """What stands in place of a rank for a head at chance."""
    measures = measures_of(method)
    return measures[0].unproven if measures else AT_CHANCE


def none_in_words(method: str) -> str:
    """What is said of a map without a head above chance."""
    return NONE_ABOVE if no_rank(method) == AT_CHANCE else no_rank(method)


def above_in_words(score: np.ndarray, level: np.ndarray, at_chance: np.ndarray) -> str:
    """How many heads of a map [layer, head] are above chance; '' without a chance level.

    '12 of 270 heads above chance', or 'not above chance: best 0.026, chance 0.058'.
    """
    known = np.isfinite(score)
    if not np.isfinite(level[known]).any():
        return ""
    above = int((known & ~at_chance).sum())
    if above:
        return f"{above} of {int(known.sum())} heads above chance"
    best = int(np.nanargmax(score))
    return f"not above chance: best {score.flat[best]:.2g}, chance {level.flat[best]:.2g}"


def scale_level(level: xr.DataArray | None) -> float:
    """The chance level that a colour scale must exceed: the median over heads and maps; 0 without any."""
    return 0.0 if level is None else float(level.median().fillna(0.0))


def membership(result: xr.Dataset) -> xr.DataArray | None:
    """Return which heads belong to which category, as the file says: bool [category, layer, head]; None without."""
    names = shown(str(result.attrs.get("method")), "categories")
    if not names or names[0] not in result:
        return None
    return result[names[0]].astype(bool)


def members(result: xr.Dataset, member: xr.DataArray) -> xr.DataArray:
    """Return the `membership` of a result without the heads that are members only by scores at chance.

    The file keeps the published rule (a score that reaches the threshold). Categories taken from multi-token pairs have
    no chance level and are left as they are, as are datasets that do not say which relation is of which category.
    """
    if f"above_chance_{member.name}" in result:  # groups of heads
        return result[f"above_chance_{member.name}"]
    if not {"category_name", "category"} <= set(result.coords) or "threshold" not in result.attrs:
        return member
    over, of = list(result["category"].dims), result["category"].values
    measures = [m.name for m in measures_of(str(result.attrs.get("method"))) if [m.over] == over and m.name in result]
    flags = {m: at_chance(result, m) for m in measures}
    if all(flag is None for flag in flags.values()):
        return member
    reached = xr.zeros_like(result[measures[0]], dtype=bool)
    for measure, flag in flags.items():
        high = result[measure] >= float(result.attrs["threshold"])
        reached = reached | (high if flag is None else high & ~flag)
    kept = [reached.isel({over[0]: np.flatnonzero(of == name)}).any(over) for name in result.category_name.values]
    by_chance = member & ~xr.concat(kept, "category").transpose(*member.dims)
    if "member_from_multi" in result:
        by_chance = by_chance & ~result.member_from_multi.astype(bool)
    return member & ~by_chance
