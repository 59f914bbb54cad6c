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
    return [
        {"method": name, "jobs": None, "time": None, "longest_job": each}
        if isinstance(each, str)
        else {"method": name, "jobs": len(each), "time": _time(sum(each)), "longest_job": _time(max(each))}
        for name, each in expected.jobs.items()
    ]


def estimate_in_words(expected: Estimate) -> list[str]:
    """What it takes all together."""
    who = f"{expected.workers} worker{'s' * (expected.workers != 1)}"
    memory, at_once = expected.memory, expected.at_once
    return [
        f"all together: {_time(expected.work)} of work; {_time(expected.seconds)} with {who}, and then the figures",
        f"memory of a worker: {memory.weights / GIB:.1f} GiB of weights, {at_once * memory.a_learned / GIB:.1f} GiB for"
        f" {at_once} tokens at once",
        "estimated from copies with few layers; expect it within a factor of two (docs/how-to/cluster.md)",
    ]


def _time(seconds: float) -> str:
    minutes, hours = seconds / 60, seconds / 3600
    return f"{seconds:.0f} s" if seconds < 120 else f"{minutes:.0f} min" if minutes < 120 else f"{hours:.1f} h"
