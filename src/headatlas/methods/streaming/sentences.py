"""What a reader of a map of `streaming` must know, in sentences."""

import xarray as xr

LITTLE = 0.2  # a model that gets fewer scored tokens right can lose little
SHUT = 0.5


def verdicts(result: xr.Dataset) -> list[str]:
    """A line for each task: how well half of the KV heads can stream; or why the map says little."""
    lines = []
    for name in result.task.values.tolist():
        one = result.sel(task=name)
        if float(one.whole_accuracy) < LITTLE:
            right = f"{float(one.whole_accuracy):.0%} of the scored tokens"
            lines.append(f"{name}: the whole model gets {right} right: there is little that streaming could lose")
        if "effect" in one:
            half, random, every = (float(v) for v in (one.effect, one.random_effect.mean(), one.all_effect))
            told = f"random ones {random:+.2f}, p {float(one.p):.2f}; all {every:+.2f}"
            lines.append(
                f"{name}: with the {int(one.n_removed)} KV heads that need it least streaming, log P per token of other"
                f" texts changes by {half:+.2f} ({told})"
            )
    return lines
