"""How long work reports its progress, and where it leaves its finished parts."""

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

Done = MutableMapping[str, "tuple[np.ndarray, ...]"]
"""Finished parts of a longer work by name. A dict, or a mapping on disk, so that interrupted work can go on."""


class Progress(Protocol):
    """Wraps a sequence and hands its items on."""

    def __call__(self, items: Sequence[Any], label: str) -> Iterable[Any]: ...


def silent(items: Sequence[Any], label: str) -> Iterable[Any]:
    return items


def duration_in_words(seconds: float) -> str:
    """A time that is only about right."""
    if seconds < 100:
        return f"{max(5, round(seconds / 5) * 5)} s"
    return f"{seconds / 60:.0f} min" if seconds < 120 * 60 else f"{seconds / 3600:.0f} h"


class Watch:
    """Told what a run does as it goes on. This one does nothing with it; `terminal.RunDisplay` shows it."""

    def on_plan(self, plan: Any) -> None:
        """A `Planned`: what is to be done."""

    def on_begin(self, timeline: Any) -> None:
        """Work begins; how far it is can be read from the `Timeline` at any time."""

    def on_job_begin(self, job: str) -> None:
        """Its first part does."""

    def on_job_end(self, job: str, error: Exception | None) -> None:
        """Its result is written, or there is none."""

    def on_page_drawn(self, page: Path) -> None:
        """Figures and page show what is done so far."""

    def on_end(self) -> None:
        """Nothing is left to do, or it was interrupted."""


default_progress: ContextVar[Progress] = ContextVar("default_progress", default=silent)
"""The `Progress` of work that is passed none, such as converting a model while it is loaded. The command sets it."""


@contextmanager
def doing(progress: Progress, label: str) -> Iterator[None]:
    """One step that may take long, shown by its label."""
    for _ in progress([label], label):
        yield
