"""How long work reports its progress, and where it leaves its finished parts."""

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
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


shown: ContextVar[Progress] = ContextVar("shown", default=silent)
"""The `Progress` of work that is passed none, such as converting a model while it is loaded. The command sets it."""


@contextmanager
def doing(progress: Progress, label: str) -> Iterator[None]:
    """One step that may take long, shown by its label."""
    for _ in progress([label], label):
        yield
