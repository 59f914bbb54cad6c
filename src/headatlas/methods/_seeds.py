"""The seeds of a method that fits something, and the limits of such fits."""

from collections.abc import Iterable
from numbers import Integral
from typing import Any

from headatlas.errors import BadArgument, brief, check_count

MOST_SEEDS, MOST_UPDATES, MOST_EXAMPLES = 1000, 1_000_000, 100_000  # more is a mistake, and would fill memory


def seed_numbers(seeds: Any) -> list[int]:
    """How many, or which, as numbers."""
    if isinstance(seeds, Integral):
        return list(range(check_count("seeds", seeds, 1, MOST_SEEDS, "each is a fit of its own")))
    numbers: list[Any] = list(seeds) if isinstance(seeds, Iterable) and not isinstance(seeds, str) else []
    valid = all(isinstance(seed, Integral) and 0 <= int(seed) < 2**63 for seed in numbers)
    if not numbers or not valid or len(set(numbers)) < len(numbers):
        raise BadArgument(
            f"seeds is {brief(seeds)}, expected a number above 0, or different numbers that are 0 or more"
        )
    check_count("the number of seeds", len(numbers), 1, MOST_SEEDS, "each is a fit of its own")
    return [int(seed) for seed in numbers]
