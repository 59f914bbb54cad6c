"""The result of `streaming` as rows for the terminal and for JSON, and in sentences."""

import xarray as xr

from headatlas.methods._tables import best, head_name, number
from headatlas.methods.method import Tables

LITTLE = 0.2  # a model that gets fewer scored tokens right can lose little
SHUT = 0.5


def streaming_tables(result: xr.Dataset, top: int = 5) -> Tables:
    """A row per task: the KV heads that need full attention most; and what the test on other texts says."""
    rows, tested = [], []
    for name in result.task.values.tolist():
        one = result.sel(task=name)
        need = (one.loss if "loss" in one else one.gate).rename(kv_head="head")
        most = [f"{head_name(layer, head, 'KV')} {value:.2f}" for layer, head, value in best(need, top)]
        row = {"task": name, "right": number(one.whole_accuracy.item()), "log P": number(one.baseline.item())}
        if "gate" in one:
            row |= {"gates below 0.5": f"{int((need < SHUT).sum())} of {int(need.notnull().sum())}"}
            row |= {"distance at the end": f"{one.distance[-1].item():.3f}"}
        rows.append(row | {"need it most": " ".join(most) or "-"})
        if "effect" in one:
            tested.append(_tested(name, one))
    said = "log P per token lost when it alone streams" if "loss" in result else "α of each, fitted together"
    tables = {f"KV heads (L12.G1: layer 12, KV head 1) that need full attention: {said}": rows}
    if tested:
        tables["On other texts: change of log P per token when KV heads stream (p: random ones lose as little)"] = (
            tested
        )
    return tables


def _tested(name: str, one: xr.Dataset) -> dict[str, str | int]:
    return {
        "task": name,
        "KV heads": int(one.n_removed),
        "lower half": number(one.effect.item()),
        "random": number(one.random_effect.mean().item()),
        "upper half": number(one.rest_effect.item()),
        "all": number(one.all_effect.item()),
        "p": number(one.p.item()),
    }


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
