"""Progress on a terminal: a bar with the time left; plain lines where there is no terminal."""

import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

EVERY = 10.0  # seconds between plain lines


def bar(items: Sequence[Any], label: str) -> Iterable[Any]:
    """A `Progress` for people."""
    if not sys.stderr.isatty():
        return _lines(items, label)
    from rich.console import Console
    from rich.progress import track

    return track(items, description=label, console=Console(stderr=True), transient=True)


def _lines(items: Sequence[Any], label: str) -> Iterable[Any]:
    start = told = time.monotonic()
    for i, item in enumerate(items):
        yield item
        now = time.monotonic()
        if now - told >= EVERY:
            told, left = now, (now - start) / (i + 1) * (len(items) - i - 1)
            print(f"{label}: {i + 1} of {len(items)}, about {left:.0f} s left", file=sys.stderr)
