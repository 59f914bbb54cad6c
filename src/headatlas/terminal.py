"""Progress for people: on a terminal a bar with the time left, a few plain lines elsewhere."""

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any

from headatlas.progress import Watch, duration_in_words

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

    from headatlas.runs.timeline import Timeline

SILENT = 2.0  # seconds after which a plain line says what is being done
EVERY = 15.0  # seconds until the next one; then twice as many, and so on


def bar(items: Sequence[Any], label: str) -> Iterable[Any]:
    """A `Progress` for people."""
    return _bar(items, label) if sys.stderr.isatty() else _lines(items, label)


@cache
def _console() -> "Console":
    """One for all: what is shown at the same time must share a console."""
    from rich.console import Console

    return Console(stderr=True)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _bar(items: Sequence[Any], label: str) -> Iterator[Any]:
    from rich.markup import escape
    from rich.progress import track

    if len(items) == 1:  # a bar would tell nothing
        with _console().status(escape(label)):
            yield from items
    else:
        yield from track(items, description=escape(label), console=_console(), transient=True)


def _lines(items: Sequence[Any], label: str) -> Iterator[Any]:
    start = time.monotonic()
    due = start + EVERY
    late = Timer(SILENT, _say, [f"{label} …"])
    late.daemon = True
    late.start()
    try:
        for i, item in enumerate(items):
            yield item
            now = time.monotonic()
            if now >= due and i + 1 < len(items):
                due, left = now + 2 * (now - start), (now - start) / (i + 1) * (len(items) - i - 1)
                _say(f"{label}: {i + 1} of {len(items)}, about {duration_in_words(left)} left")
    finally:
        late.cancel()


class RunDisplay(Watch):
    """The progress of a whole run: which method of how many, which part of it, and the time left for all of them.

    It is a `Progress` as well, for what the parts report. On a terminal it takes two lines; elsewhere it prints a line
    when a method begins and when it ends, and a few in between if that takes long.
    """

    def __init__(self) -> None:
        self.timeline: Timeline | None = None
        self.live: Live | None = None
        self.part: tuple[str, int, int] = ("", 0, 0)  # label, done, of
        self.due = self.since = 0.0
        self.page: Path | None = None

    def __call__(self, items: Sequence[Any], label: str) -> Iterable[Any]:
        return bar(items, label) if self.timeline is None else self._follow(items, label)

    def _follow(self, items: Sequence[Any], label: str) -> Iterator[Any]:
        before = self.part
        for i, item in enumerate(items):
            self.part = label, i, len(items)
            self._say_sometimes()
            yield item
        self.part = before

    def on_begin(self, timeline: "Timeline") -> None:
        if not timeline.seconds:
            return
        self.timeline = timeline
        if sys.stderr.isatty():
            from rich.live import Live

            self.live = Live(get_renderable=self._rendered, console=_console(), refresh_per_second=4, transient=True)
            self.live.start()

    def on_job_begin(self, job: str) -> None:
        assert self.timeline is not None
        self.since = time.monotonic()
        self.due = self.since + 2 * EVERY
        if self.live is None:
            _say(f"{self._place(job)}, about {in_words(self.timeline.left(job))}; {self._left()}")

    def on_job_end(self, job: str, error: Exception | None) -> None:
        assert self.timeline is not None
        took = self.timeline.seconds_of(job)
        _say(f"{job} could not be done: {error}" if error else f"{job} took {took:.0f} s")

    def on_page_drawn(self, page: Path) -> None:
        if self.page is None:
            _say(f"first results: {page} (open it now; it fills up as methods finish)")
        self.page = page

    def on_end(self) -> None:
        if self.live is not None:
            self.live.stop()
        self.timeline = self.live = None

    def _say_sometimes(self) -> None:
        now = time.monotonic()
        if self.live is None and self.timeline is not None and self.timeline.begun and now >= self.due:
            self.due = now + 2 * (now - self.since)
            label, done, of = self.part
            _say(f"{self._place(list(self.timeline.begun)[-1])}: {label}, {done} of {of}; {self._left()}")

    def _place(self, job: str) -> str:
        assert self.timeline is not None
        return f"method {list(self.timeline.seconds).index(job) + 1} of {len(self.timeline.seconds)}: {job}"

    def _left(self) -> str:
        assert self.timeline is not None
        return f"about {in_words(self.timeline.left())} left in all"

    def _rendered(self) -> "RenderableType":
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        grid = Table.grid(padding=(0, 1), expand=True)
        grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        grid.add_column(width=24)
        grid.add_column(no_wrap=True)
        if self.timeline is None:
            return grid
        place = self._place(list(self.timeline.begun)[-1]) if self.timeline.begun else "starting"
        grid.add_row(place, ProgressBar(1, self.timeline.share, width=24), self._left())
        label, done, parts = self.part
        grid.add_row(f"  {label}", ProgressBar(parts or 1, done, width=24), f"{done} of {parts}" if parts > 1 else "")
        return grid
