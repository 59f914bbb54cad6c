"""A method's result in memory, on a model that is loaded: for what asks several methods of one model."""

from collections.abc import Mapping
from typing import Any

import xarray as xr

from headatlas.methods import get_method
from headatlas.methods.method import Work
from headatlas.models.lm import LM
from headatlas.progress import Done, Progress, silent


def result_of(name: str, lm: LM, options: Mapping[str, Any], progress: Progress = silent) -> xr.Dataset:
    """All parts of a method's work, one after the other, and what they combine to. Nothing is written."""
    work = get_method(name).function(lm, **options)
    if not isinstance(work, Work):
        result: xr.Dataset = work
        return result
    done: Done = {}
    for part in work.parts:
        part.do(lm, *part.arguments, done=done, progress=progress)
    return work.combine(lm, *work.arguments, done=done, progress=progress)
