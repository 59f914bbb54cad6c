"""What a run is about to do, and what it would take, as rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from headatlas.models.memory import GIB
from headatlas.runs.plan import Plan, Plans

if TYPE_CHECKING:
    from headatlas.runs.estimate import Estimate


def plan(plans: Plans, folder: Path) -> list[dict[str, Any]]:
    """What `run` is about to do: a row per method."""
    return [
        {"method": name, "state": plan.state(folder), "what": plan.work.summary}
        if isinstance(plan, Plan)
        else {"method": name, "state": "cannot be done", "what": str(plan)}
        for name, plan in plans.items()
    ]


def estimate(expected: Estimate) -> list[dict[str, Any]]:
    """What a run would take: a row per method."""
    rows = []
    for name, plan in expected.planned.plans.items():
        if isinstance(plan, Plan):
            seconds = expected.tasks[name].values()
            row = {"tasks": len(seconds), "time": _time(sum(seconds)), "longest task": _time(max(seconds))}
        else:
            row = {"tasks": 0, "time": "-", "longest task": str(plan)}
        rows.append({"method": name} | row)
    return rows


def estimate_in_words(expected: Estimate) -> list[str]:
    """What it takes all together."""
    who = f"{expected.workers} worker{'s' * (expected.workers != 1)}"
    memory = f"{expected.memory.weights / GIB:.1f} GiB of weights"
    if expected.tokens:
        running = expected.tokens * expected.memory.a_learned / GIB
        memory += f", {running:.1f} GiB for {expected.tokens} tokens at once"
    return [
        f"all together: {_time(expected.work)} of work; {_time(expected.seconds)} with {who}, and then the figures",
        f"memory of a worker: {memory}",
        "timed on one part of each kind (docs/how-to/cluster.md)",
    ]


def _time(seconds: float) -> str:
    minutes, hours = seconds / 60, seconds / 3600
    return f"{seconds:.0f} s" if seconds < 120 else f"{minutes:.0f} min" if minutes < 120 else f"{hours:.1f} h"
