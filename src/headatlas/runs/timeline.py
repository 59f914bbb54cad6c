"""How far a run is, and how long it will still take: what its methods usually take, scaled by the pace so far."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headatlas.progress import Watch

PRIOR = 5.0  # seconds for which the usual times count as if they had been right


@dataclass
class Timeline:
    """Follows the methods of a run.

    Args:
        seconds: what each usually takes, in the order of the run.
        tasks: how many tasks each has.
        workers: how many tasks are done at the same time.
    """

    seconds: Mapping[str, float]
    tasks: Mapping[str, int] = field(default_factory=dict)
    workers: int = 1
    watch: Watch = field(default_factory=Watch)
    clock: Callable[[], float] = time.monotonic
    begun: dict[str, float] = field(default_factory=dict)  # method: when
    took: dict[str, list[float]] = field(default_factory=dict)  # method: seconds of each task that ended
    over: set[str] = field(default_factory=set)

    def begin(self, method: str) -> None:
        """A task of a method begins."""
        if method not in self.begun:
            self.begun[method] = self.clock()
            self.watch.on_job_begin(method)

    def end(self, method: str, seconds: float) -> None:
        """A task of a method has ended."""
        self.took.setdefault(method, []).append(seconds)

    def finish(self, method: str, error: Exception | None) -> None:
        """A method is over: its result is written, or there is none."""
        self.over.add(method)
        self.watch.on_job_end(method, error)

    @property
    def pending(self) -> list[str]:
        """Methods that are not over, in their order."""
        return [method for method in self.seconds if method not in self.over]

    def seconds_of(self, method: str) -> float:
        """What a method took so far."""
        return sum(self.took.get(method, []))

    @property
    def pace(self) -> float:
        """Seconds that a usual second took, by the methods that are over."""
        took = sum(self.seconds_of(method) for method in self.over)
        return (PRIOR + took) / (PRIOR + sum(self.seconds[method] for method in self.over))

    @property
    def share(self) -> float:
        """How much of all is done, 0 to 1."""
        total = self.pace * sum(self.seconds.values())
        return 1 - self.left() * self.workers / total if total else 1.0

    def left(self, *methods: str) -> float:
        """Seconds until these methods, or all of them, are over."""
        pending = [method for method in methods or self.seconds if method not in self.over]
        return sum(map(self._left, pending)) / self.workers

    def _left(self, method: str) -> float:
        """Seconds of work that a method still is: by its tasks that ended, or by the time since it began."""
        usual = self.seconds[method] * self.pace
        if method not in self.begun:
            return usual
        ended = len(self.took.get(method, []))
        by_tasks = usual * (1 - ended / self.tasks[method]) if method in self.tasks else usual
        return max(0.0, min(by_tasks, usual - (self.clock() - self.begun[method])))
