"""What a gate map says, and how far to believe it, as rows for the terminal."""

from typing import Any

import xarray as xr

from headatlas.methods._tables import list_best, number
from headatlas.methods.method import Tables


def gate_tables(result: xr.Dataset, top: int = 4) -> Tables:
    tables = {
        "Tasks, done by the whole model and under the gates": [
            _task_row(result.sel(task=t)) for t in result.task.values.tolist()
        ],
        "Heads by role (share of heads with a score of 0.5 or more, in every seed and in any)": [
            _role_row(result.sel(task=task, role=role), top)
            for task in result.task.values.tolist()
            for role in result.role.values.tolist()
        ],
    }
    if "effect" in result:
        tables["Heads switched off against on, on held-out prompts"] = [
            _switched_row(result.sel(task=task, role=role, n_removed=n))
            for task in result.task.values.tolist()
            for role in result.role.values.tolist()
            for n in result.n_removed.values.tolist()
        ]
    return tables


def gate_sentences(result: xr.Dataset) -> list[str]:
    """How well the model does each task at all; nothing of gates from elsewhere, which do not say."""
    if not {"whole_accuracy", "guess_accuracy"} <= set(result):
        return []
    return [
        f"gate: the whole model gets {float(one.whole_accuracy):.0%} of {task} right;"
        f" the best guess {float(one.guess_accuracy):.0%}"
        for task in result.task.values.tolist()
        for one in [result.sel(task=task)]
    ]


def _task_row(one: xr.Dataset) -> dict[str, Any]:
    row = {"task": one.task.item(), "accuracy": number(one.whole_accuracy.item())}
    row |= {"best guess": number(one.guess_accuracy.item()), "-log P": number(-one.baseline.item())}
    return row | {f"-log P {fit}": number(one.nll.sel(fit=fit).mean().item()) for fit in one.fit.values.tolist()}


def _role_row(one: xr.Dataset, top: int) -> dict[str, Any]:
    return {
        "task": one.task.item(),
        "role": one.role.item(),
        "always": f"{one.share.sel(share_over='always').item():.1%}",
        "any": f"{one.share.sel(share_over='any').item():.1%}",
        "most so in every seed": list_best(one.summary.sel(over="always"), top) or "-",
    }


def _switched_row(one: xr.Dataset) -> dict[str, Any]:
    return {
        "task": one.task.item(),
        "role": one.role.item(),
        "heads": one.n_removed.item(),
        "log P off - on": number(one.effect.item()),
        "random heads": number(one.random_effect.mean().item()),
        "p": number(one.p.item()),
        "p, corrected": number(one.p_corrected.item()),
    }
