"""The effects of removing heads, in one form for all methods: figures, tables and the page read it."""

from collections.abc import Iterator, Mapping

import numpy as np
import xarray as xr

from headatlas.methods import measures_of, variables_shown_as

CURVE_COORDS = ("method", "subject", "measure", "ranked_by")
# The middle 90 % of the random draws.
RANDOM_LOW, RANDOM_HIGH = 0.05, 0.95


def stack_removal_curves(maps: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Stack the removal curves of results: a measure with the top, the lowest and random heads removed.

    Args:
        maps: results by method. Those without `effect` over `n_removed` are left out.

    Returns:
        Over (curve, removed), NaN if not measured: `top` and `lowest`; `random`, the mean over the random draws, with
        `random_low` and `random_high`, their middle 90 %; `p`, how often random heads do at least as much (corrected
        for the number of tests if the result has that). `removed` starts at 0, the whole model. An effect without a
        `measure` dimension is the change of log P.

        The coordinates of `curve` are `method`, `subject`, `measure` and `ranked_by`: the role that the top heads are
        the top of, or 'importance'.
    """
    rows = [row for method, result in maps.items() for row in _curves_of(method, result)]
    if not rows:
        variables = ("top", "lowest", "random", "random_low", "random_high", "p")
        return xr.Dataset(dict.fromkeys(variables, (("curve", "removed"), np.empty((0, 0)))))
    return xr.concat(rows, "curve", coords=list(CURVE_COORDS), join="outer")


def has_curves(result: xr.Dataset) -> bool:
    """Return whether a result has all that `stack_removal_curves` reads; a user's dataset may have a part of it."""
    if not {"effect", "random_effect"} <= set(result) or "n_removed" not in result.effect.dims:
        return False
    has_coords = all(d in result.coords for d in result.effect.dims)
    return has_coords and ("measure" not in result.dims or "baseline" in result) and bool(result.effect.notnull().any())


def ranking_measure(method: str, ranked_by: str) -> str:
    """Return the measure by which the heads of a curve were ranked: its role, or the method's first measure."""
    names = [m.name for m in measures_of(method)]
    return ranked_by if ranked_by in names or not names else names[0]


def removed_counts(curve: xr.Dataset) -> list[int]:
    """Return the numbers of top heads that were removed for one curve."""
    return [int(n) for n in curve.removed.values[curve.top.notnull().values] if n > 0]


def change_at(curve: xr.Dataset, removed: int) -> tuple[str, float, float, float]:
    """Return, for n removed heads, the measure, its change without the top heads and without random heads, and p."""
    point = curve.sel(removed=removed)
    baseline = float(curve.top.sel(removed=0))
    measure = curve.measure.item().removeprefix("change of ")
    return measure, float(point.top) - baseline, float(point.random) - baseline, float(point.p)


def change_matrix(result: xr.Dataset) -> tuple[list[str], list[str], np.ndarray, str] | None:
    """Return the change of every function (column) without the heads of each function (row), or None if not measured.

    Returns:
        Names of the rows, names of the columns, changes [row, column], and the measure that changes.
    """
    name, *_ = variables_shown_as("changes", str(result.attrs.get("method"))) or ("",)
    if name in result and "measure" in result[name].dims:
        measure = _main_measure(result)
        change = result[name].sel(measure=measure)
        tested, removed = change.dims
        change = change.transpose(removed, tested)
        rows, columns = ([str(v) for v in change[d].values] for d in change.dims)
        return rows, columns, change.values.astype(np.float64), _measure_in_words(measure)
    if not {"effect", "other_effect"} <= set(result) or result.effect.ndim != 1:
        return None
    (dim,) = result.effect.dims
    if set(result.other_effect.dims) != {dim, "other"} or not bool(result.effect.notnull().any()):
        return None
    change = result.other_effect.transpose(dim, "other").astype(np.float64)
    # `other_effect` has no diagonal: the effect on the function itself is `effect`.
    values = np.where(np.eye(len(change), dtype=bool), result.effect.values[:, None], change.values)
    measured = np.flatnonzero(result.effect.notnull())
    names = [str(v) for v in change[dim].values]
    return [names[i] for i in measured], names, values[measured], "log P per token"


def n_heads_removed(result: xr.Dataset) -> int:
    """Return the number of heads that were removed for `change_matrix`; 0 if it differs between functions."""
    _, *names = variables_shown_as("changes", str(result.attrs.get("method"))) or ("",)
    return next((int(result[name]) for name in names if name in result), 0)


def _main_measure(result: xr.Dataset) -> str:
    """Return the measure to show of a result that has several."""
    return "log_p" if "log_p" in result.measure.values else str(result.measure.values[0])


def _measure_in_words(measure: str) -> str:
    return "log P" if measure == "log_p" else measure


def _curves_of(method: str, result: xr.Dataset) -> Iterator[xr.Dataset]:
    """Yield the curves of one result: one for each subject and role."""
    if not has_curves(result):
        return
    measure = "change of log P"
    baselines = xr.DataArray(0.0)
    if "measure" in result.effect.dims:
        measure = _measure_in_words(_main_measure(result))
        result = result.sel(measure=_main_measure(result))
        baselines = result.baseline
    dim = next(d for d in result.effect.dims if d not in ("n_removed", "role"))
    for subject in result[dim].values.tolist():
        baseline = float(baselines.sel({dim: subject}) if baselines.ndim else baselines)
        for role in result.role.values.tolist() if "role" in result.effect.dims else [None]:
            test = result.sel({dim: subject} | ({} if role is None else {"role": role}))
            if test.effect.notnull().any():
                names = dict(zip(CURVE_COORDS, (method, subject, measure, role or "importance"), strict=True))
                yield _curve(test, baseline, names)


def _curve(test: xr.Dataset, baseline: float, names: dict[str, str]) -> xr.Dataset:
    """Make one curve [removed] from the effects of one test over `n_removed`."""
    test = test.isel(n_removed=np.flatnonzero(test.n_removed.values > 0))
    counts = test.n_removed.values
    missing = np.full(len(counts), np.nan)
    draws = baseline + test.random_effect.transpose("n_removed", "draw").values
    # Rows of NaN alone would make NumPy warn.
    has_draws = ~np.isnan(draws).all(1)
    values = {name: missing.copy() for name in ("random", "random_low", "random_high")}
    values["random"][has_draws] = np.nanmean(draws[has_draws], 1)
    values["random_low"][has_draws] = np.nanquantile(draws[has_draws], RANDOM_LOW, axis=1)
    values["random_high"][has_draws] = np.nanquantile(draws[has_draws], RANDOM_HIGH, axis=1)
    values["top"] = baseline + test.effect.values
    values["lowest"] = baseline + test.lowest_effect.values if "lowest_effect" in test else missing
    variables = {}
    for name in ("top", "lowest", "random", "random_low", "random_high"):
        start = np.nan if np.isnan(values[name]).all() else baseline
        variables[name] = ("removed", np.r_[start, values[name]])
    p = next((test[name].values for name in ("p_corrected", "p") if name in test), missing)
    variables["p"] = ("removed", np.r_[np.nan, p])
    return xr.Dataset(variables, coords={"removed": np.r_[0, counts], **names})
