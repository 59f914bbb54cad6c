"""Function vectors as rows for the terminal."""

from typing import Any

import xarray as xr

from headatlas.methods._tables import list_best, number
from headatlas.methods.method import Tables

TELLS = 0.02  # examples that raise P(right answer) by less than this do not tell the task


def vector_tables(result: xr.Dataset, top: int = 5) -> Tables:
    """Which heads carry each task; and what their sum does without examples."""
    each = [result.sel(task=name) for name in result.task.values.tolist()]
    carried = "Heads that carry a task told by examples (rise of P(right answer) with shuffled answers)"
    alone = f"Function vectors of {result.attrs['top']} heads, without examples: P(right answer), accuracy in brackets"
    return {carried: [_carriers(one, top) for one in each], alone: [_zero_shot(one) for one in each]}


def vector_sentences(result: xr.Dataset) -> list[str]:
    """Tasks that the model does not learn from examples, whose maps say little."""
    told = result.baseline.sel(measure="probability")
    rise = told.sel(prompt="few_shot") - told.sel(prompt="shuffled")
    return [
        f"right answers in the examples of {name} raise P(right answer) by {value:.2f} only: its map says little"
        for name, value in zip(result.task.values.tolist(), rise.values.tolist(), strict=True)
        if value < TELLS
    ]


def _carriers(one: xr.Dataset, top: int) -> dict[str, Any]:
    told = one.baseline.sel(measure="probability")
    return {
        "task": one.task.item(),
        "P few-shot": number(told.sel(prompt="few_shot").item()),
        "P shuffled": number(told.sel(prompt="shuffled").item()),
        "heads": list_best(one.effect, top, "{} {:.3f}") or "-",
    }


def _zero_shot(one: xr.Dataset) -> dict[str, Any]:
    before = one.baseline.sel(prompt="zero_shot")
    after, random = before + one.vector_effect, before + one.random_effect.mean("draw")
    return {
        "task": one.task.item(),
        "without": _both(before),
        "with the vector": _both(after),
        "after layer": one.added_at.item(),
        "random heads": _both(random),
        "p": number(one.p.item()),
        "p, corrected": number(one.p_corrected.item()),
        "few-shot": _both(one.baseline.sel(prompt="few_shot")),
    }


def _both(values: xr.DataArray) -> str:
    return f"{values.sel(measure='probability').item():.3f} ({values.sel(measure='accuracy').item():.0%})"
