"""Progress for people: on a terminal a bar with the time left, plain lines elsewhere."""

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from threading import Timer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

SILENT = 2.0  # seconds after which a plain line says what is being done
EVERY = 10.0  # seconds between plain lines after that


def bar(items: Sequence[Any], label: str) -> Iterable[Any]:
    """A `Progress` for people."""
    return _bar(items, label) if sys.stderr.isatty() else _lines(items, label)


@cache
def _console() -> "Console":
    """One for all: what is shown at the same time must share a console."""
    from rich.console import Console

    return Console(stderr=True)


def _bar(items: Sequence[Any], label: str) -> Iterator[Any]:
    from rich.markup import escape
    from rich.progress import track

    if len(items) == 1:  # a bar would tell nothing
        with _console().status(escape(label)):
            yield from items
    else:
        yield from track(items, description=escape(label), console=_console(), transient=True)


def _lines(items: Sequence[Any], label: str) -> Iterator[Any]:
    start = told = time.monotonic()
    late = Timer(SILENT, print, [f"{label} …"], {"file": sys.stderr, "flush": True})
    late.daemon = True
    late.start()
    try:
        for i, item in enumerate(items):
            yield item
            now = time.monotonic()
            if now - told >= EVERY and i + 1 < len(items):
                told, left = now, (now - start) / (i + 1) * (len(items) - i - 1)
                print(f"{label}: {i + 1} of {len(items)}, about {left:.0f} s left", file=sys.stderr)
    finally:
        late.cancel()
