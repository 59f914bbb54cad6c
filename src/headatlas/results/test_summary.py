"""The tables and sentences of one test of heads, for the terminal."""

from typing import Any

import numpy as np
import xarray as xr

MEASURES = {"log_p": "log P", "choice": "choice", "right": "accuracy"}
"""Names of the measures of a test in tables."""


def outcome_sentence(test: xr.Dataset) -> str:
    """Say the outcome of a test and its reason."""
    return f"{test.outcome.item()}: {test.reason.item()}"


def effect_rows(test: xr.Dataset) -> list[dict[str, Any]]:
    """Return a row per replacement and measure: before, after, the change, and that of random heads with p.

    low and high: the 95 % interval over prompts of the change beyond random heads. Empty if nothing was measured.
    """
    rows = []
    for replacement in test.replacement.values.tolist():
        for measure in test.measure.values.tolist():
            cell = test.sel(replacement=replacement, measure=measure)
            if not np.isfinite(float(cell.effect)):
                continue
            before = float(cell.baseline)
            rows.append(
                {
                    "replacement": replacement,
                    "measure": MEASURES[measure],
                    "before": before,
                    "after": before + float(cell.effect),
                    "change": float(cell.effect),
                    "random": number(cell.random_effect.mean()),
                    "beyond_random": number(cell.beyond_random),
                    "low": number(cell.low),
                    "high": number(cell.high),
                    "p": number(cell.p_measure),
                }
            )
    return rows


def number(value: Any) -> float | None:
    """Return a number as JSON has it: None for NaN."""
    return float(value) if np.isfinite(float(value)) else None


def sentences(test: xr.Dataset) -> list[str]:
    """Say what was tested, what the test could have seen, how selective the heads are, and how draws were matched."""
    heads = f"{int(test.n_heads)} head{'s' * (int(test.n_heads) != 1)}"
    prompts = f"{int(test.prompts)} fresh prompts of {test.subject.item()}"
    lines = [f"{heads} removed {test.removal.item()}; claim: {test.claim.item()}; {prompts}"]
    if not np.isfinite(float(test.accuracy)):
        return lines
    if test.missing.item():
        lines.append(test.missing.item())
    lines.append(
        f"accuracy of the whole model {float(test.accuracy):.2f} (at least {float(test.accuracy_low):.2f} with 95 %"
        f" confidence; best guess {float(test.guess):.2f})"
    )
    if np.isfinite(float(test.detectable)):
        lines.append(f"{int(test.prompts)} prompts show changes from {float(test.detectable):.2g} nats on")
    lines += _selectivity(test)
    if test.matched.item():
        draws = ", ".join(f"{replacement} {n:.0f}" for replacement, n in _draws(test).items())
        lines.append(f"draws of random heads: {draws}; {test.matched.item()}")
    lines += _curve(test)
    return lines


def _draws(test: xr.Dataset) -> dict[str, float]:
    """Return the number of draws of each replacement that had any."""
    counts = zip(test.replacement.values.tolist(), test.n_drawn.values.tolist(), strict=True)
    return {replacement: n for replacement, n in counts if np.isfinite(n)}


def other_rows(test: xr.Dataset) -> list[dict[str, Any]]:
    """Return a row per other subject: its mean change of log P, and the mean size of the changes."""
    changes = test.other_effect.sel(measure="log_p").values.tolist()
    sizes = test.other_size.values.tolist()
    return [
        {"subject": name, "change": number(change), "size": number(size)}
        for name, change, size in zip(test.other_subject.values.tolist(), changes, sizes, strict=True)
        if name and np.isfinite(size)
    ]


def _selectivity(test: xr.Dataset) -> list[str]:
    others = [f"{row['subject']} {row['change']:+.2f}" for row in other_rows(test)]
    if not others:
        return []
    measured = (
        f"selectivity {float(test.selectivity):.2f} nats ({float(test.selectivity_low):.2f} to"
        f" {float(test.selectivity_high):.2f}), p {float(test.p_selectivity):.2g}"
    )
    # Selectivity has an outcome only if the heads are supported.
    outcome = f": {test.selective.item()}" if test.selective.item() else ""
    return [f"{measured}{outcome}; change of log P of others: {', '.join(others)}"]


def _curve(test: xr.Dataset) -> list[str]:
    """Say how log P changes without other numbers of top heads, which decides nothing."""
    counts = test.curve_heads.values
    changes = test.curve_effect.sel(measure="log_p").values
    measured = np.isfinite(changes)
    parts = [f"{n:.0f}: {change:+.2f}" for n, change in zip(counts[measured], changes[measured], strict=True)]
    return [f"change of log P without other numbers of top heads (not part of the test): {', '.join(parts)}"] * bool(
        parts
    )


def record(test: xr.Dataset) -> dict[str, Any]:
    """Return a test as plain values, for JSON."""
    heads = np.argwhere(test.selected.values)
    texts = ("outcome", "reason", "subject", "claim", "removal", "missing", "matched", "selective")
    counts = ("prompts", "n_heads")
    numbers = ("guess", "accuracy", "accuracy_low", "p", "detectable", "matched_sets")
    selectivity = ("selectivity", "selectivity_low", "selectivity_high", "p_selectivity")
    return {
        **{name: str(test[name].item()) for name in texts},
        "heads": [f"L{layer}.H{head}" for layer, head in heads.tolist()],
        **{name: int(test[name]) for name in counts},
        **{name: number(test[name]) for name in (*numbers, *selectivity)},
        "effects": effect_rows(test),
        "others": other_rows(test),
        "draws": {replacement: int(n) for replacement, n in _draws(test).items()},
    }
