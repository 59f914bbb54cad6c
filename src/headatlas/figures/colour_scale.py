"""Colour scales for head maps, the same for figures and the page."""

from dataclasses import dataclass

import numpy as np

# Share of a map's cells that may lie beyond the end of the scale.
MAX_CLIPPED = 0.05
# Heads at chance are coloured by this share of their score.
DIMMED = 0.5
# The scale ends at this multiple of the chance level or higher, so that noise stays dark.
MIN_CHANCE_MULTIPLE = 1.25


@dataclass(frozen=True)
class Range:
    """The ends of a colour scale and its tick labels. signed: whether 0 is in the middle."""

    low: float
    high: float
    ticks: list[float]
    labels: list[str]
    signed: bool


def range_of(values: np.ndarray, chance: float = 0.0, *, published: bool = False) -> Range:
    """Choose one colour scale for maps [subject, layer, head] of any method.

    The scale ends at the largest of: 3 / number of heads (for importances, which sum to 1), 1.25 × the chance level,
    the 99th percentile of the values' sizes, and the 95th percentile of each map, so that at most 5 % of a map is
    clipped.
    published: end at 3 / number of heads for importances, as in the published figure, however many cells are clipped.
    If values are clipped, the last tick label ends in + (and in maps with both signs, the first begins with ≤).
    """
    finite = values[np.isfinite(values)]
    top = float(np.abs(finite).max(initial=0))
    if top == 0:
        return Range(0.0, 1.0, [0.0, 1.0], ["0", "1"], False)
    signed = bool((finite < 0).any())
    end = _published_end(values) if published else 0.0
    if not end:
        per_map = [m[np.isfinite(m)] for m in np.abs(values).reshape(-1, *values.shape[-2:])]
        unclipped = max(np.quantile(m, 1 - MAX_CLIPPED, method="higher") for m in per_map if len(m))
        above_chance = MIN_CHANCE_MULTIPLE * chance
        end = max(_published_end(values), above_chance, float(np.quantile(np.abs(finite), 0.99)), unclipped)
    end = end or top
    step = neat_step(end)
    steps = max(1, int(np.ceil(end / step - 1e-9)))
    end = step * steps
    ticks = np.arange(-steps if signed else 0, steps + 1) * step
    digits = max(0, -int(np.floor(np.log10(step) + 1e-9)))
    labels = [f"{t:.{digits}f}".replace("-", "−") if abs(t) > step / 2 else f"{0:.{digits}f}" for t in ticks]
    if finite.max() > end * (1 + 1e-9):
        labels[-1] += "+"
    if signed and finite.min() < -end * (1 + 1e-9):
        labels[0] = f"≤ {labels[0]}"
    return Range(-end if signed else 0.0, end, [float(t) for t in ticks], labels, signed)


def _published_end(values: np.ndarray) -> float:
    """Return 3 / number of heads for maps that sum to 1, and 0 for others."""
    finite = np.isfinite(values)
    totals = np.where(finite, values, 0).sum((-2, -1))
    sums_to_one = (values[finite] >= 0).all() and np.allclose(totals[totals > 0], 1, atol=0.02)
    return min(1.0, 3 / int(finite.sum((-2, -1)).max())) if sums_to_one else 0.0


def neat_step(span: float, min_steps: float = 3.5) -> float:
    """Return the largest of 1, 2, 5 · 10ⁿ that fits at least `min_steps` times into span."""
    power = 10.0 ** np.floor(np.log10(span))
    return float(max(m * p for p in (power, power / 10) for m in (1, 2, 5) if span / (m * p) >= min_steps))
