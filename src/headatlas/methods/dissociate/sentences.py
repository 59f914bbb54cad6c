"""What a reader of a map of `dissociate` must know, in sentences."""

import xarray as xr


def verdicts(result: xr.Dataset) -> list[str]:
    """A line for each function: whether it has heads of its own."""
    lines = []
    for function in result.function.values.tolist() if {"verdict", "proven", "other_effect"} <= set(result) else ():
        one = result.sel(function=function)
        size = float(abs(one.other_effect).mean())
        others = f"; without them the others change by ±{size:.2f} on average" * bool(one.proven)
        lines.append(f"dissociate: {function}: {one.verdict.item()}{others}")
    return lines
