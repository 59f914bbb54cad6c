"""What removing heads did, in one form for every method: figures, tables and the page show it as proof."""

from collections.abc import Iterator, Mapping

import numpy as np
import xarray as xr

from headatlas.methods import measures_of, variables_shown_as

NAMES = ("method", "subject", "measure", "why")


def stack_removal_curves(maps: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Quality with the top heads removed, beside random and lowest ones. Of datasets with `effect` over `n_removed`.

    Over (curve, removed), NaN where nothing was measured: `top`, `lowest`; `random` (the mean of the draws),
    `random_low` and `random_high` (the middle 90 % of them); `p`, how often random heads do as much, corrected for the
    number of tests where the dataset has that.
    `removed` starts at 0, the full model.
    Coordinates of `curve`: `method`, `subject`, `measure`, `why` (what the top heads are the top of).
    An effect without a `measure` dimension is shown as it is: the change of log P.
    """
    rows = [row for method, result in maps.items() for row in _rows(method, result)]
    if not rows:
        variables = ("top", "lowest", "random", "random_low", "random_high", "p")
        return xr.Dataset(dict.fromkeys(variables, (("curve", "removed"), np.empty((0, 0)))))
    return xr.concat(rows, "curve", coords=list(NAMES), join="outer")


def has_curves(result: xr.Dataset) -> bool:
    """Whether it has all that `stack_removal_curves` reads; a dataset of the user's own may have half of it."""
    if not {"effect", "random_effect"} <= set(result) or "n_removed" not in result.effect.dims:
        return False
    named = all(d in result.coords for d in result.effect.dims)
    return named and ("measure" not in result.dims or "baseline" in result) and bool(result.effect.notnull().any())


def ranking_measure(method: str, why: str) -> str:
    """The measure that heads were ranked by for a curve: the role it is of, or the method's first."""
    names = [m.name for m in measures_of(method)]
    return why if why in names or not names else names[0]


def removed_counts(curve: xr.Dataset) -> list[int]:
    """The numbers of top heads that were removed for one curve."""
    return [int(n) for n in curve.removed.values[curve.top.notnull().values] if n > 0]


def change_at(curve: xr.Dataset, removed: int) -> tuple[str, float, float, float]:
    """After so many heads: the measure, its change without the top heads, its change without random heads, and p."""
    at, baseline = curve.sel(removed=removed), float(curve.top.sel(removed=0))
    measure = curve.measure.item().removeprefix("change of ")
    return measure, float(at.top) - baseline, float(at.random) - baseline, float(at.p)


def change_matrix(result: xr.Dataset) -> tuple[list[str], list[str], np.ndarray, str] | None:
    """Whose heads were removed (rows), functions tested (columns), their change, the measure; None: not measured."""
    name, *_ = variables_shown_as("changes", str(result.attrs.get("method"))) or ("",)
    if name in result and "measure" in result[name].dims:
        measure = _measure(result)
        change = result[name].sel(measure=measure)
        subject, masked = change.dims
        change = change.transpose(masked, subject)
        rows, columns = ([str(v) for v in change[d].values] for d in change.dims)
        return rows, columns, change.values.astype(np.float64), _in_words(measure)
    if not {"effect", "other_effect"} <= set(result) or result.effect.ndim != 1:
        return None
    (dim,) = result.effect.dims
    if set(result.other_effect.dims) != {dim, "other"} or not bool(result.effect.notnull().any()):
        return None
    change = result.other_effect.transpose(dim, "other").astype(np.float64)
    values = np.where(np.eye(len(change), dtype=bool), result.effect.values[:, None], change.values)
    removed = np.flatnonzero(result.effect.notnull())
    names = [str(v) for v in change[dim].values]
    return [names[i] for i in removed], names, values[removed], "log P per token"


def n_heads_removed(result: xr.Dataset) -> int:
    """Return how many heads were removed for `change_matrix`; 0 where a result has no one number."""
    _, *names = variables_shown_as("changes", str(result.attrs.get("method"))) or ("",)
    return next((int(result[name]) for name in names if name in result), 0)


def _measure(result: xr.Dataset) -> str:
    return "log_p" if "log_p" in result.measure.values else str(result.measure.values[0])


def _in_words(measure: str) -> str:
    return "log P" if measure == "log_p" else measure


def _rows(method: str, result: xr.Dataset) -> Iterator[xr.Dataset]:
    if not has_curves(result):
        return
    named, baseline = "change of log P", xr.DataArray(0.0)
    if "measure" in result.effect.dims:
        named, result = _in_words(_measure(result)), result.sel(measure=_measure(result))
        baseline = result.baseline
    dim = next(d for d in result.effect.dims if d not in ("n_removed", "role"))
    for subject in result[dim].values.tolist():
        for role in result.role.values.tolist() if "role" in result.effect.dims else [None]:
            place = {dim: subject} | ({} if role is None else {"role": role})
            one = result.sel(place)
            if one.effect.notnull().any():
                names = dict(zip(NAMES, (method, subject, named, role or "importance"), strict=True))
                yield _curve(one, float(baseline.sel({dim: subject}) if baseline.ndim else baseline), names)


def _curve(one: xr.Dataset, baseline: float, names: dict[str, str]) -> xr.Dataset:
    one = one.isel(n_removed=np.flatnonzero(one.n_removed.values > 0))
    steps = one.n_removed.values
    nothing = np.full(len(steps), np.nan)
    draws = baseline + one.random_effect.transpose("n_removed", "draw").values
    drawn = ~np.isnan(draws).all(1)
    middle = {n: nothing.copy() for n in ("random", "random_low", "random_high")}
    middle["random"][drawn] = np.nanmean(draws[drawn], 1)
    for name, q in (("random_low", 0.05), ("random_high", 0.95)):
        middle[name][drawn] = np.nanquantile(draws[drawn], q, axis=1)
    lowest = baseline + one.lowest_effect.values if "lowest_effect" in one else nothing
    parts = {"top": baseline + one.effect.values, "lowest": lowest} | middle
    begun = {n: ("removed", np.r_[np.nan if np.isnan(v).all() else baseline, v]) for n, v in parts.items()}
    p = next((one[name].values for name in ("p_corrected", "p") if name in one), nothing)
    begun["p"] = ("removed", np.r_[np.nan, p])
    return xr.Dataset(begun, coords={"removed": np.r_[0, steps], **names})
