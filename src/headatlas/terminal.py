"""Show progress to people: a bar with the remaining time on a terminal, plain lines elsewhere."""

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

# A plain line names the work once it has taken this long.
FIRST_LINE_SECONDS = 2.0
# The next line follows after this long; the time between lines then doubles.
NEXT_LINE_SECONDS = 15.0


def bar(items: Sequence[Any], label: str) -> Iterable[Any]:
    """Show progress on standard error: a `Progress` for people."""
    return _track_with_bar(items, label) if sys.stderr.isatty() else _track_with_lines(items, label)


@cache
def _console() -> "Console":
    """Return the one console: bars that are shown at the same time must share it."""
    from rich.console import Console

    return Console(stderr=True)


def _print_line(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _track_with_bar(items: Sequence[Any], label: str) -> Iterator[Any]:
    from rich.markup import escape
    from rich.progress import track

    if len(items) == 1:
        # A bar of one item would jump from 0 to 100 %.
        with _console().status(escape(label)):
            yield from items
    else:
        yield from track(items, description=escape(label), console=_console(), transient=True)


def _track_with_lines(items: Sequence[Any], label: str) -> Iterator[Any]:
    start = time.monotonic()
    next_line = NEXT_LINE_SECONDS
    # A timer, because the first item may take longer than that.
    first_line = Timer(FIRST_LINE_SECONDS, _print_line, [f"{label} …"])
    first_line.daemon = True
    first_line.start()
    try:
        for i, item in enumerate(items):
            yield item
            elapsed = time.monotonic() - start
            if elapsed >= next_line and i + 1 < len(items):
                next_line = 3 * elapsed
                seconds_left = elapsed / (i + 1) * (len(items) - i - 1)
                _print_line(f"{label}: {i + 1} of {len(items)}, about {duration_in_words(seconds_left)} left")
    finally:
        first_line.cancel()


class RunDisplay(Watch):
    """Shows the progress of a run: the current method, its current part, and the remaining time.

    It is also a `Progress`, for what the parts report. On a terminal it takes two lines. Elsewhere it prints a line at
    the start and at the end of each method, and a few in between if the method takes long.
    """

    def __init__(self) -> None:
        self.timeline: Timeline | None = None
        self.live: Live | None = None
        # Label, finished items, all items.
        self.part: tuple[str, int, int] = ("", 0, 0)
        self.job_start = 0.0
        self.next_line = 0.0
        self.page: Path | None = None

    def __call__(self, items: Sequence[Any], label: str) -> Iterable[Any]:
        return bar(items, label) if self.timeline is None else self._track_part(items, label)

    def _track_part(self, items: Sequence[Any], label: str) -> Iterator[Any]:
        # Parts may be nested: the outer one is shown again afterwards.
        outer_part = self.part
        for i, item in enumerate(items):
            self.part = label, i, len(items)
            self._print_part_if_due()
            yield item
        self.part = outer_part

    def on_begin(self, timeline: "Timeline") -> None:
        if not timeline.seconds:
            return
        self.timeline = timeline
        if sys.stderr.isatty():
            from rich.live import Live

            self.live = Live(get_renderable=self._render, console=_console(), refresh_per_second=4, transient=True)
            self.live.start()

    def on_job_begin(self, job: str) -> None:
        assert self.timeline is not None
        self.job_start = time.monotonic()
        self.next_line = self.job_start + 2 * NEXT_LINE_SECONDS
        if self.live is None:
            expected = f"about {duration_in_words(self.timeline.remaining_seconds(job))}"
            _print_line(f"{self._method_in_words(job)}, {expected}; {self._time_left_in_words()}")

    def on_job_end(self, job: str, error: Exception | None) -> None:
        assert self.timeline is not None
        seconds = self.timeline.seconds_of(job)
        _print_line(f"{job} failed: {error}" if error else f"{job} took {seconds:.0f} s")

    def on_page_drawn(self, page: Path) -> None:
        if self.page is None:
            _print_line(f"first results: {page} (open it now; it fills up as methods finish)")
        self.page = page

    def on_end(self) -> None:
        if self.live is not None:
            self.live.stop()
        self.timeline = self.live = None

    def _print_part_if_due(self) -> None:
        if self.live is not None or self.timeline is None or not self.timeline.start_times:
            return
        time_now = time.monotonic()
        if time_now >= self.next_line:
            self.next_line = time_now + 2 * (time_now - self.job_start)
            method = self._method_in_words(list(self.timeline.start_times)[-1])
            label, n_done, n_items = self.part
            _print_line(f"{method}: {label}, {n_done} of {n_items}; {self._time_left_in_words()}")

    def _method_in_words(self, job: str) -> str:
        assert self.timeline is not None
        if len(self.timeline.seconds) == 1:
            return job
        return f"method {list(self.timeline.seconds).index(job) + 1} of {len(self.timeline.seconds)}: {job}"

    def _time_left_in_words(self) -> str:
        assert self.timeline is not None
        return f"about {duration_in_words(self.timeline.remaining_seconds())} left in total"

    def _render(self) -> "RenderableType":
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        grid = Table.grid(padding=(0, 1), expand=True)
        grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        grid.add_column(width=24)
        grid.add_column(no_wrap=True)
        if self.timeline is None:
            return grid
        method = self._method_in_words(list(self.timeline.start_times)[-1]) if self.timeline.start_times else "starting"
        grid.add_row(method, ProgressBar(1, self.timeline.share, width=24), self._time_left_in_words())
        label, n_done, n_items = self.part
        counter = f"{n_done} of {n_items}" if n_items > 1 else ""
        grid.add_row(f"  {label}", ProgressBar(n_items or 1, n_done, width=24), counter)
        return grid
