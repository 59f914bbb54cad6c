"""A map as rows for the terminal: relations and their heads, the checks, heads by category."""

from typing import Any

import numpy as np
import xarray as xr

from headatlas.methods._chance import NONE_ABOVE, at_chance, members
from headatlas.methods._tables import list_best, number
from headatlas.methods.method import Tables


def map_tables(maps: xr.Dataset) -> Tables:
    return {
        "Relations and their heads": relations(maps),
        "Checked in real runs": checks(maps),
        "Heads by category": categories(maps),
    }


def relations(maps: xr.Dataset, top: int = 3) -> list[dict[str, Any]]:
    """A row per relation: its pairs, its best heads above chance, and the highest score that chance explains."""
    flags = at_chance(maps, "score")
    rows = []
    for name in maps.relation.values.tolist():
        one = maps.sel(relation=name)
        multi = bool(one.left_out.item()) and one.pairs_multi.item() > 0
        score = one.score_multi if multi else one.score
        above = score if multi or flags is None else score.where(~flags.sel(relation=name))
        nothing = f"{NONE_ABOVE} (best {list_best(score, 1, '{} {:.2g}') or '0'})"
        row: dict[str, Any] = {
            "category": one.category.item(),
            "relation": name,
            "pairs": f"{one.pairs_multi.item()} multi" if multi else str(one.pairs.item()),
            "best heads": list_best(above, top) or one.left_out.item() or (nothing if flags is not None else "-"),
        }
        if flags is not None:
            row["chance"] = "-" if np.isnan(one.chance.item()) else f"{one.chance.item():.2g}"
        rows.append(row)
    return rows


def checks(maps: xr.Dataset) -> list[dict[str, Any]]:
    """A row per relation that was checked: correlation with real runs, and what the most heads removed change."""
    rows = []
    for name in maps.relation.values.tolist():
        one, row = maps.sel(relation=name), {"relation": name}
        if "dynamic_correlation" in maps:
            row["r in context"] = number(one.dynamic_correlation.sel(context="with").item())
            row["r alone"] = number(one.dynamic_correlation.sel(context="without").item())
        if "effect" in maps:
            row |= _removal(one)
        if len(row) > 1:
            rows.append(row)
    return rows


def _removal(one: xr.Dataset) -> dict[str, str]:
    """Accuracy of the whole model, and its change with the most heads removed; of the other relation too."""
    accuracy = one.sel(measure="accuracy")
    row = dict.fromkeys(("removed", "change", "random heads", "other relation", "p of log P", "corrected"), "-")
    steps = accuracy.n_removed.values[~np.isnan(accuracy.effect.values)]
    if len(steps):
        last = accuracy.sel(n_removed=steps[-1])
        effects = [last.effect, last.random_effect.mean(), last.other_effect, last.p, last.p_corrected]
        row = dict(zip(row, [str(steps[-1]), *(number(e.item()) for e in effects)], strict=True))
    return {"accuracy": number(accuracy.baseline.item())} | row


def categories(maps: xr.Dataset) -> list[dict[str, Any]]:
    """How many heads belong to each category, to several, and to none: as published, and by scores above chance."""
    names, kinds = maps.category_name.values.tolist(), range(2, 5)

    def groups(member: xr.DataArray) -> list[xr.DataArray]:
        several = member.sum("category")
        return [*(member.isel(category=i) for i in range(len(names))), *(several == n for n in kinds), several == 0]

    titles = [*names, *(f"{n} categories" for n in kinds), "Unclassified"]
    origins = ["multi-token pairs" if multi else "single-token pairs" for multi in maps.member_from_multi.values]
    origins += [""] * (len(titles) - len(origins))
    return [
        {"category": title, "heads": int(heads.sum()), "above chance": int(above.sum()), "from": origin}
        for title, heads, above, origin in zip(titles, groups(maps.member), groups(members(maps)), origins, strict=True)
    ]
