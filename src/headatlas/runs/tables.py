"""The plan and the estimate of a run, as rows of tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headatlas.models.memory import GIB
from headatlas.runs.plan import Plan, Plans

if TYPE_CHECKING:
    from headatlas.runs.estimate import Estimate


def plan_rows(plans: Plans, folder: Path) -> list[dict[str, Any]]:
    """Return what `run` is about to do, a row per method."""
    return [
        {"method": name, "state": plan.state(folder), "what": plan.work.summary}
        if isinstance(plan, Plan)
        else {"method": name, "state": "cannot be done", "what": str(plan)}
        for name, plan in plans.items()
    ]


def estimate_rows(estimate: Estimate) -> list[dict[str, Any]]:
    """Return how long a run would take, a row per method."""
    rows = []
    for name, plan in estimate.planned.plans.items():
        if isinstance(plan, Plan):
            seconds = estimate.tasks[name].values()
            row = {"tasks": len(seconds), "time": _time(sum(seconds)), "longest task": _time(max(seconds))}
        else:
            row = {"tasks": 0, "time": "-", "longest task": str(plan)}
        rows.append({"method": name} | row)
    return rows


def estimate_in_words(estimate: Estimate) -> list[str]:
    """Return lines about the run as a whole: time, memory, and how they were estimated."""
    workers = f"{estimate.workers} worker{'s' * (estimate.workers != 1)}"
    memory = f"{estimate.memory.weights / GIB:.1f} GiB of weights"
    if estimate.tokens:
        activations = estimate.tokens * estimate.memory.per_token_with_gradients / GIB
        memory += f", {activations:.1f} GiB for {estimate.tokens} tokens at once"
    return [
        f"in total: {_time(estimate.work)} of work; {_time(estimate.seconds)} with {workers}, and then the figures",
        f"memory per worker: {memory}",
        "timed on one part of each kind (docs/how-to/cluster.md)",
    ]


def tests_in_words(plans: Mapping[str, Plan], preset: str) -> str:
    """Return a line about the tests of the maps: at most how many, and with how many prompts and draws."""
    from headatlas.runs.map_tests import PRESETS, count_tests

    settings = PRESETS[preset]
    return (
        f"tests: at most {count_tests(plans, preset)}, each with {settings['prompts']} prompts and up to"
        f" {settings['draws']} draws of random heads; their time is not estimated"
    )


def _time(seconds: float) -> str:
    minutes = seconds / 60
    hours = seconds / 3600
    return f"{seconds:.0f} s" if seconds < 120 else f"{minutes:.0f} min" if minutes < 120 else f"{hours:.1f} h"
