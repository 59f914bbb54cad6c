"""How far a run is, and how long it will still take: what was estimated, scaled by the pace so far."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headatlas.progress import Watch

PRIOR = 5.0  # seconds for which the estimate counts as if it had been right


@dataclass
class Timeline:
    """expected: seconds of every item of work, by job and item. Where a job has no estimates, nothing is foretold."""

    expected: Mapping[str, Mapping[str, float]]
    workers: int = 1
    watch: Watch = field(default_factory=Watch)
    clock: Callable[[], float] = time.monotonic
    running: dict[str, float] = field(default_factory=dict)  # since when
    ended: dict[str, float] = field(default_factory=dict)  # seconds that each item took
    begun: list[str] = field(default_factory=list)  # jobs
    over: set[str] = field(default_factory=set)  # jobs

    def begin(self, job: str, item: str) -> None:
        self.running[item] = self.clock()
        if job not in self.begun:
            self.begun.append(job)
            self.watch.job_begins(job)

    def end(self, item: str, seconds: float) -> None:
        self.running.pop(item, None)
        self.ended[item] = seconds

    def finish(self, job: str, error: Exception | None) -> None:
        """A job is over: its result is written, or there is none."""
        self.over.add(job)
        self.watch.job_ends(job, error)

    @property
    def pending(self) -> list[str]:
        """Jobs that are not over, in their order."""
        return [job for job in self.expected if job not in self.over]

    def seconds_of(self, job: str) -> float:
        """What a job took so far."""
        return sum(self.ended.get(item, 0.0) for item in self.expected[job])

    @property
    def pace(self) -> float:
        """Seconds that an expected second took."""
        known = {item: seconds for items in self.expected.values() for item, seconds in items.items() if seconds > 0}
        done = [(self.ended[item], seconds) for item, seconds in known.items() if item in self.ended]
        return (PRIOR + sum(took for took, _ in done)) / (PRIOR + sum(seconds for _, seconds in done))

    @property
    def share(self) -> float:
        """How much of all is done, 0 to 1: by time, or by number of jobs where no time is expected."""
        left, total = self.left(), self.pace * sum(sum(items.values()) for items in self.expected.values())
        if left is None or not total:
            return len(self.over) / max(1, len(self.expected))
        return 1 - left * self.workers / total

    def left(self, *jobs: str) -> float | None:
        """Seconds until these jobs, or all of them, are over; None where it cannot be told."""
        items = [self.expected[job] for job in jobs or self.expected if job not in self.over]
        if not all(any(each.values()) for each in items):
            return None
        now, pace = self.clock(), self.pace
        waiting = {item: seconds * pace for each in items for item, seconds in each.items() if item not in self.ended}
        spent = sum(min(now - self.running[i], seconds) for i, seconds in waiting.items() if i in self.running)
        return (sum(waiting.values()) - spent) / self.workers
