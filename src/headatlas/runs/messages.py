"""What a worker is sent, wherever it lives (this process, another one, a Ray cluster), and its plan: plain data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headatlas.methods.method import Method
from headatlas.models.lm import LM
from headatlas.progress import Done
from headatlas.runs.job import Job, Jobs


@dataclass(frozen=True)
class ModelSource:
    """Which model a worker loads, and how. spread: over all GPUs it sees."""

    model: LM | str
    device: str = "auto"
    dtype: str = "auto"
    spread: bool = False


@dataclass(frozen=True)
class PlanRequest:
    """Methods and the options of each."""

    methods: Sequence[tuple[Method, Mapping[str, Any]]]


@dataclass(frozen=True)
class Planned:
    """A model, described, and what is to be done with it."""

    model: Mapping[str, Any]
    title: str
    jobs: Jobs


@dataclass(frozen=True)
class TimeRequest:
    """How long will these jobs take?"""

    jobs: Sequence[Job]


@dataclass(frozen=True)
class Step:
    """A part of a job, or its result: a module-level function, plain arguments, and the arrays of earlier parts."""

    job: str
    do: Callable[..., Any]
    arguments: tuple[Any, ...]
    leaves: tuple[str, ...]  # none: what `do` returns is the result
    done: Done
    stamp: Mapping[str, Any] = field(default_factory=dict)
