"""What removing heads did, in one form for every method: what figures, tables and the page show as proof."""

from collections.abc import Iterator, Mapping

import numpy as np
import xarray as xr


def removal(maps: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Quality with the top heads removed, beside random and lowest ones: over (curve, removed), NaN where there is none.

    `top`, `lowest`; `random` (the mean of the draws), `random_low` and `random_high` (the middle 90 % of them); `p`, how often
    random heads do as much. `removed` starts at 0, the whole model. Coordinates of `curve`: `method`, `subject`, `measure`, `why`
    (what the top heads are the top of). For gates, which are switched off against on, quality is the change of log P.
    """
    rows = [row for method, found in maps.items() for row in _rows(method, found)]
    if not rows:
        names = ("top", "lowest", "random", "random_low", "random_high", "p")
        return xr.Dataset(dict.fromkeys(names, (("curve", "removed"), np.empty((0, 0)))))
    return xr.concat(rows, "curve", coords=["method", "subject", "measure", "why"], join="outer")


def changes(found: xr.Dataset) -> tuple[list[str], list[str], np.ndarray, str] | None:
    """Whose heads were removed, what was asked, how that changed [removed of, asked], and the measure; None: not measured."""
    if "specialisation" in found and "measure" in found.specialisation.dims:
        measure = "log_p" if "log_p" in found.measure.values else str(found.measure.values[0])
        change = found.specialisation.sel(measure=measure).transpose("masked", "function")
        of, asked = ([str(v) for v in change[d].values] for d in ("masked", "function"))
        return of, asked, change.values.astype(np.float64), "log P" if measure == "log_p" else measure
    if (
        {"own_effect", "other_effect"} <= set(found)
        and found.own_effect.dims == ("function",)
        and bool(found.own_effect.notnull().any())
    ):
        change = found.other_effect.transpose("function", "other").astype(np.float64)
        values = np.where(np.eye(len(change), dtype=bool), found.own_effect.values[:, None], change.values)
        there = np.flatnonzero(found.own_effect.notnull())
        names = [str(v) for v in change["function"].values]
        return [names[i] for i in there], names, values[there], "log P per token"
    return None


def _rows(method: str, found: xr.Dataset) -> Iterator[xr.Dataset]:
    if method == "gate" and "switch_off" in found:
        for task in found.task.values.tolist():
            for role in found.role.values.tolist():
                one = found.sel(task=task, role=role).rename(switched="removed")
                names = {"subject": task, "measure": "change of log P", "why": role}
                yield _curve(method, names, 0.0, one.switch_off, one.switch_off_random, None, one.switch_off_p)
    elif "removal_top" in found:
        dim = "function" if "function" in found.removal_top.dims else "relation"
        measure = "log_p" if "log_p" in found.measure.values else found.measure.values[0]
        for subject in found[dim].values.tolist():
            one = found.sel({dim: subject, "measure": measure})
            if one.removal_top.notnull().any():
                names = {"subject": subject, "measure": "log P" if measure == "log_p" else measure, "why": "importance"}
                whole = float(one["whole" if "whole" in one else "whole_model"])
                lowest, p = one.get("removal_lowest"), one.get("removal_p")
                yield _curve(method, names, whole, one.removal_top, one.removal_random, lowest, p)


def _curve(
    method: str,
    names: dict[str, str],
    whole: float,
    top: xr.DataArray,
    random: xr.DataArray,
    lowest: xr.DataArray | None,
    p: xr.DataArray | None,
) -> xr.Dataset:
    some = np.flatnonzero(top.removed.values > 0)
    top, random = top.isel(removed=some), random.isel(removed=some)
    lowest, p = (x if x is None else x.isel(removed=some) for x in (lowest, p))
    nothing = np.full(top.sizes["removed"], np.nan)
    draws = random.transpose("removed", "draw").values
    there = ~np.isnan(draws).all(1)
    middle = {n: nothing.copy() for n in ("random", "random_low", "random_high")}
    middle["random"][there] = np.nanmean(draws[there], 1)
    for name, q in (("random_low", 0.05), ("random_high", 0.95)):
        middle[name][there] = np.nanquantile(draws[there], q, axis=1)
    parts = {"top": top.values, "lowest": nothing if lowest is None else lowest.values} | middle
    begun = {n: ("removed", np.r_[np.nan if np.isnan(v).all() else whole, v]) for n, v in parts.items()}
    begun["p"] = ("removed", np.r_[np.nan, nothing if p is None else p.values])
    return xr.Dataset(begun, coords={"removed": np.r_[0, top.removed.values], "method": method, **names})
