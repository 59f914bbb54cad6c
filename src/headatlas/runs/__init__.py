"""What is to be done, and doing it: job, plan, estimate, execute; `run` and the public call of every method."""
