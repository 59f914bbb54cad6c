"""Which scores chance explains, from the measures that a method declares."""

import numpy as np
import xarray as xr

from headatlas.methods import measures_of, variables_shown_as
from headatlas.methods.method import Measure

AT_CHANCE = "at chance"
NO_HEAD_ABOVE = "no head above chance"


def _measure_of(result: xr.Dataset, variable: str) -> Measure:
    """Return the measure with the name of a variable. Other variables use the `above` flag of the first measure."""
    measures = measures_of(str(result.attrs.get("method")))
    undeclared = Measure(variable, "", above=measures[0].above if measures else "")
    return next((m for m in measures if m.name == variable), undeclared)


def chance(result: xr.Dataset, measure: str) -> xr.DataArray | None:
    """Return the highest score that chance explains: [subject], or [subject, layer, head] where heads differ.

    None if the measure has no chance level; NaN for subjects without one.
    """
    name = _measure_of(result, measure).chance
    if name not in result or measure not in result or not set(result[name].dims) <= set(result[measure].dims):
        return None
    level = result[name]
    return level if bool(level.notnull().any()) else None


def at_chance(result: xr.Dataset, measure: str) -> xr.DataArray | None:
    """Return which heads score no more than chance explains: bool, over the dimensions of the measure.

    A method may declare a variable with the heads, or the whole maps, that are above chance. Otherwise, scores are
    compared with the chance level. None if there is neither.
    """
    if measure not in result:
        return None
    score = result[measure]
    level = chance(result, measure)
    above = _measure_of(result, measure).above
    # maps by key-value group have a flag for groups
    if f"above_chance_{measure}" in result:
        flag = ~result[f"above_chance_{measure}"].astype(bool)
    elif above in result:
        flag = ~_above_chance(result, above)
    elif level is not None:
        flag = abs(score) <= level
    else:
        return None
    if not set(flag.dims) <= set(score.dims):
        return None
    return (flag & score.notnull()).transpose(*score.dims)


def _above_chance(result: xr.Dataset, above: str) -> xr.DataArray:
    """Return which heads are above chance: bool, over the dimensions of the flag, or over those of the tested heads."""
    flag = result[above].astype(bool)
    tested_heads = result.get("selected", xr.DataArray(True))
    # a flag on whole maps is the outcome of a test, which holds only for the heads that were removed
    if {"layer", "head"} & set(flag.dims) or set(tested_heads.dims) != {*flag.dims, "layer", "head"}:
        return flag
    return flag & tested_heads.astype(bool)


def none_above(result: xr.Dataset, measure: str) -> xr.DataArray | None:
    """Return which subjects have scores, but no head above chance: bool [subject]."""
    flag = at_chance(result, measure)
    if flag is None:
        return None
    heads = ("layer", "head")
    return (flag | result[measure].isnull()).all(heads) & result[measure].notnull().any(heads)


def above_chance_text(score: np.ndarray, level: np.ndarray, at_chance: np.ndarray) -> str:
    """Describe how many heads of a map [layer, head] are above chance; '' without a chance level.

    '12 of 270 heads above chance', or 'not above chance: best 0.026, chance 0.058'.
    """
    scored = np.isfinite(score)
    if not np.isfinite(level[scored]).any():
        return ""
    above = int((scored & ~at_chance).sum())
    if above:
        return f"{above} of {int(scored.sum())} heads above chance"
    best = int(np.nanargmax(score))
    return f"not above chance: best {score.flat[best]:.2g}, chance {level.flat[best]:.2g}"


def scale_level(level: xr.DataArray | None) -> float:
    """Return the chance level that a colour scale must exceed: the median over heads and maps; 0 without any."""
    return 0.0 if level is None else float(level.median().fillna(0.0))


def stored_members(result: xr.Dataset) -> xr.DataArray | None:
    """Return which heads belong to which category, as stored in the file: bool [category, layer, head], or None."""
    names = variables_shown_as("categories", str(result.attrs.get("method")))
    if not names or names[0] not in result:
        return None
    return result[names[0]].astype(bool)


def members_above_chance(result: xr.Dataset, member: xr.DataArray) -> xr.DataArray:
    """Return the `stored_members` of a result without the heads that are members only by scores at chance.

    Files keep the published rule: a score that reaches the threshold. Categories taken from multi-token pairs have no
    chance level and stay unchanged, as do results that lack the category of each relation.
    """
    # maps by key-value group have a flag for groups
    if f"above_chance_{member.name}" in result:
        return result[f"above_chance_{member.name}"]
    if not {"category_name", "category"} <= set(result.coords) or "threshold" not in result.attrs:
        return member
    category = result["category"]
    declared = measures_of(str(result.attrs.get("method")))
    measures = [m.name for m in declared if (m.over,) == category.dims and m.name in result]
    flags = {m: at_chance(result, m) for m in measures}
    if all(flag is None for flag in flags.values()):
        return member
    reached = xr.zeros_like(result[measures[0]], dtype=bool)
    for measure, flag in flags.items():
        high = result[measure] >= float(result.attrs["threshold"])
        reached = reached | (high if flag is None else high & ~flag)
    relation = str(category.dims[0])
    above_chance = [
        reached.isel({relation: np.flatnonzero(category.values == name)}).any(relation)
        for name in result.category_name.values
    ]
    by_chance = member & ~xr.concat(above_chance, "category").transpose(*member.dims)
    if "member_from_multi" in result:
        by_chance = by_chance & ~result.member_from_multi.astype(bool)
    return member & ~by_chance
