"""From a plan to tasks and results: `run`, the public call of every method, and the estimate of a run."""
