"""How long work tells where it is: anything that wraps a sequence and hands its items on."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol


class Progress(Protocol):
    def __call__(self, items: Sequence[Any], label: str) -> Iterable[Any]: ...


def silent(items: Sequence[Any], label: str) -> Iterable[Any]:
    return items
