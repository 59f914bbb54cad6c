"""Colour scales for head maps: one rule for figures and the page."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Range:
    """Where colours end and what is written beside them. signed: 0 is in the middle."""

    low: float
    high: float
    ticks: list[float]
    labels: list[str]
    signed: bool


def range_of(values: np.ndarray, chance: float = 0.0) -> Range:
    """A scale for maps [subject, layer, head] of any method.

    Importances that sum to 1 end at about 3 / number of heads, rounded; others near their 99.5th percentile. The scale
    reaches at least to `chance`, the highest score that chance explains. Values beyond its end are clipped: the last
    label then has a plus (for maps of both signs, the first has ≤).
    """
    finite = values[np.isfinite(values)]
    top = float(np.abs(finite).max(initial=0))
    if top == 0:
        return Range(0.0, 1.0, [0.0, 1.0], ["0", "1"], False)
    signed = bool((finite < 0).any())
    totals = np.nansum(np.where(np.isfinite(values), values, 0), axis=(-2, -1))
    if not signed and np.allclose(totals[totals > 0], 1, atol=0.02):
        end = min(1.0, 3 / int(np.isfinite(values).sum(axis=(-2, -1)).max()))
    else:
        end = float(np.quantile(np.abs(finite), 0.995)) or top
    end = max(end, chance)
    step = neat_step(end)
    steps = max(1, round(end / step), int(np.ceil(chance / step - 1e-9)))
    end = step * steps
    ticks = np.arange(-steps if signed else 0, steps + 1) * step
    digits = max(0, -int(np.floor(np.log10(step) + 1e-9)))
    labels = [f"{t:.{digits}f}".replace("-", "−") if abs(t) > step / 2 else f"{0:.{digits}f}" for t in ticks]
    if finite.max() > end * (1 + 1e-9):
        labels[-1] += "+"
    if signed and finite.min() < -end * (1 + 1e-9):
        labels[0] = f"≤ {labels[0]}"
    return Range(-end if signed else 0.0, end, [float(t) for t in ticks], labels, signed)


def neat_step(span: float, at_least: float = 3.5) -> float:
    """The largest of 1, 2, 5 · 10ⁿ that fits at least so many times into span."""
    power = 10.0 ** np.floor(np.log10(span))
    return float(max(m * p for p in (power, power / 10) for m in (1, 2, 5) if span / (m * p) >= at_least))
