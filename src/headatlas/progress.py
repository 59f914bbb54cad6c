"""How long work tells where it is, and where it leaves what it has finished."""

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

Done = MutableMapping[str, "tuple[np.ndarray, ...]"]
"""Finished parts of a longer work by name: a dict, or one that lives on disk, so that interrupted work goes on where it was."""


class Progress(Protocol):
    """Wraps a sequence and hands its items on."""

    def __call__(self, items: Sequence[Any], label: str) -> Iterable[Any]: ...


def silent(items: Sequence[Any], label: str) -> Iterable[Any]:
    return items


shown: ContextVar[Progress] = ContextVar("shown", default=silent)
"""How work that is handed no `Progress`, such as converting a model that is being loaded, tells where it is: silently, unless the
command sets it."""


@contextmanager
def doing(progress: Progress, label: str) -> Iterator[None]:
    """One step that may take long, and is told by its label."""
    for _ in progress([label], label):
        yield
