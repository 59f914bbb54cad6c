"""Seconds of a piece of work, on whatever device it runs."""

import time
from collections.abc import Callable

import torch


def timed(work: Callable[[], object]) -> float:
    synchronise = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    synchronise()
    start = time.perf_counter()
    work()
    synchronise()
    return time.perf_counter() - start
