"""What the public calls share: how results are stamped, and how seeds are named."""

from collections.abc import Iterable, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

from headatlas.errors import BadArgument
from headatlas.headmap.provenance import describe_run, flat
from headatlas.models.lm import LM
from headatlas.tasks.prompts import Task

Tasks = str | Path | Task | Iterable[Any]


def seed_numbers(seeds: int | Sequence[int]) -> list[int]:
    given: Any = range(int(seeds)) if isinstance(seeds, Integral) else seeds
    listed = [int(s) if isinstance(s, Integral) else -1 for s in given]
    if not listed or min(listed) < 0 or max(listed) >= 2**63 or len(set(listed)) < len(listed):
        raise BadArgument(f"seeds is {seeds!r}, expected a number above 0, or different numbers that are 0 or more")
    return listed


def stamp_of(lm: LM, data: str) -> dict[str, Any]:
    """What a file says about where it came from; no time of day, so that the same work gives the same file."""
    versions = {k: v for k, v in flat(describe_run()).items() if k != "time"}
    return {"model": lm.name, "fingerprint": lm.fingerprint(), "data": data} | versions
