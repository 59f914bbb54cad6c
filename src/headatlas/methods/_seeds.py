"""Seeds of methods that fit parameters, and the limits of such fits."""

from collections.abc import Iterable
from numbers import Integral
from typing import Any

from headatlas.errors import BadArgument, brief, check_count

# larger numbers are mistakes, and would fill the memory
MAX_SEEDS = 1000
MAX_UPDATES = 1_000_000
MAX_EXAMPLES = 100_000


def seed_numbers(seeds: Any) -> list[int]:
    """Return seeds as a list, from a number of seeds or from the seeds themselves."""
    if isinstance(seeds, Integral):
        return list(range(check_count("seeds", seeds, 1, MAX_SEEDS, "each needs a separate fit")))
    numbers: list[Any] = list(seeds) if isinstance(seeds, Iterable) and not isinstance(seeds, str) else []
    valid = all(isinstance(seed, Integral) and 0 <= int(seed) < 2**63 for seed in numbers)
    if not numbers or not valid or len(set(numbers)) < len(numbers):
        raise BadArgument(
            f"seeds is {brief(seeds)}, expected a number above 0, or different numbers that are 0 or more"
        )
    check_count("the number of seeds", len(numbers), 1, MAX_SEEDS, "each needs a separate fit")
    return [int(seed) for seed in numbers]
