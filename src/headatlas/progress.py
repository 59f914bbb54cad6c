"""How long-running work reports its progress, and where it stores its finished parts."""

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

FinishedParts = MutableMapping[str, "tuple[np.ndarray, ...]"]
"""Arrays of finished parts by name: a dict, or a mapping on disk from which interrupted work resumes."""


class Progress(Protocol):
    """Yields the items of a sequence, and shows under a label how many are done."""

    def __call__(self, items: Sequence[Any], label: str) -> Iterable[Any]: ...


def silent(items: Sequence[Any], label: str) -> Iterable[Any]:
    """Show nothing: a `Progress` for programs."""
    return items


def duration_in_words(seconds: float) -> str:
    """Round an estimated time to what can be read at a glance: '25 s', '4 min', '2 h'."""
    if seconds < 100:
        return f"{max(5, round(seconds / 5) * 5)} s"
    return f"{seconds / 60:.0f} min" if seconds < 120 * 60 else f"{seconds / 3600:.0f} h"


class Watch:
    """Receives the events of a run. This one ignores them; `terminal.RunDisplay` shows them."""

    def on_plan(self, plan: Any) -> None:
        """The run is planned. plan: a `RunPlan`."""

    def on_begin(self, timeline: Any) -> None:
        """Work begins. timeline: a `Timeline`, which gives the progress at any time."""

    def on_job_begin(self, job: str) -> None:
        """The first part of a job begins."""

    def on_job_end(self, job: str, error: Exception | None) -> None:
        """A job ends: its result is written, or `error` is why there is none."""

    def on_page_drawn(self, page: Path) -> None:
        """The figures and the page are up to date with the finished methods."""

    def on_end(self) -> None:
        """The run ends, or is interrupted."""


default_progress: ContextVar[Progress] = ContextVar("default_progress", default=silent)
"""The `Progress` of work that is passed none, such as converting a model while loading it. The command sets it."""


@contextmanager
def show_step(progress: Progress, label: str) -> Iterator[None]:
    """Show a label while one step that may take long runs."""
    for _ in progress([label], label):
        yield
