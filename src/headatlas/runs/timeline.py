"""How far a run is, and how long it will still take: the usual time of its methods, scaled by the pace so far."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headatlas.progress import Watch

# The pace starts as if this much work had taken its usual time, so that one short method cannot change it much.
PRIOR_SECONDS = 5.0


@dataclass
class Timeline:
    """Progress of a run, method by method.

    Args:
        seconds: usual time of each method, in the order of the run.
        tasks: number of tasks of each method.
        workers: number of tasks that run at the same time.
        watch: informed when a method begins or ends.
        clock: the time in seconds.
        start_times: when each method began.
        task_seconds: for each method, the time of every task that ended.
        finished: the methods that ended, with or without a result.
    """

    seconds: Mapping[str, float]
    tasks: Mapping[str, int] = field(default_factory=dict)
    workers: int = 1
    watch: Watch = field(default_factory=Watch)
    clock: Callable[[], float] = time.monotonic
    start_times: dict[str, float] = field(default_factory=dict)
    task_seconds: dict[str, list[float]] = field(default_factory=dict)
    finished: set[str] = field(default_factory=set)

    def begin(self, method: str) -> None:
        """Note that a task of a method begins."""
        if method not in self.start_times:
            self.start_times[method] = self.clock()
            self.watch.on_job_begin(method)

    def end(self, method: str, seconds: float) -> None:
        """Note that a task of a method has ended."""
        self.task_seconds.setdefault(method, []).append(seconds)

    def finish(self, method: str, error: Exception | None) -> None:
        """Note that a method has ended: its result is written, or it failed with an error."""
        self.finished.add(method)
        self.watch.on_job_end(method, error)

    @property
    def pending(self) -> list[str]:
        """The methods that have not ended, in the order of the run."""
        return [method for method in self.seconds if method not in self.finished]

    def seconds_of(self, method: str) -> float:
        """Return the seconds that a method's tasks took so far."""
        return sum(self.task_seconds.get(method, []))

    @property
    def pace(self) -> float:
        """Actual seconds per usual second, from the methods that have ended."""
        actual = sum(self.seconds_of(method) for method in self.finished)
        usual = sum(self.seconds[method] for method in self.finished)
        return (PRIOR_SECONDS + actual) / (PRIOR_SECONDS + usual)

    @property
    def share(self) -> float:
        """The finished share of the run's work, 0 to 1."""
        total = self.pace * sum(self.seconds.values())
        return 1 - self.remaining_seconds() * self.workers / total if total else 1.0

    def remaining_seconds(self, *methods: str) -> float:
        """Return the seconds until these methods (default: all) have ended."""
        pending = [method for method in methods or self.seconds if method not in self.finished]
        return sum(map(self._remaining_work, pending)) / self.workers

    def _remaining_work(self, method: str) -> float:
        """Return a method's remaining seconds of work, by its finished tasks or the time since it began."""
        usual = self.seconds[method] * self.pace
        if method not in self.start_times:
            return usual
        n_ended = len(self.task_seconds.get(method, []))
        by_tasks = usual * (1 - n_ended / self.tasks[method]) if method in self.tasks else usual
        by_clock = usual - (self.clock() - self.start_times[method])
        # the smaller: by_tasks stands still during a long task, by_clock does not see tasks that are quicker than usual
        return max(0.0, min(by_tasks, by_clock))
