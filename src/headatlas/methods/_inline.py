"""Run a method inside another one, in memory."""

from typing import Any

import xarray as xr

from headatlas.methods import get_method
from headatlas.methods.method import Work
from headatlas.models.lm import LM
from headatlas.progress import FinishedParts, Progress, silent


def result_of(name: str, lm: LM, options: dict[str, Any], progress: Progress = silent) -> xr.Dataset:
    """Return the result of a method with these options."""
    result = get_method(name).function(lm, **options)
    return do_work(lm, result, progress) if isinstance(result, Work) else result


def do_work(lm: LM, work: Work, progress: Progress = silent) -> xr.Dataset:
    """Do all parts of some work, one after the other, and return the result."""
    done: FinishedParts = {}
    for part in work.parts:
        part.do(lm, **part.arguments, done=done, progress=progress)
    return work.combine(lm, **work.arguments, done=done, progress=progress)
