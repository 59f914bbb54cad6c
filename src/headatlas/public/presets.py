"""The methods of an atlas and the presets of `run`, apart from what does the work, so that names can be checked at once."""

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

from headatlas.errors import BadArgument, brief, check_choice, check_count, check_names
from headatlas.tasks.names import BUILT_IN, FUNCTIONS

MOST_SEEDS, MOST_UPDATES, MOST_EXAMPLES = 1000, 1_000_000, 100_000  # more is a mistake, and would fill memory
METHODS = ("maps", "salient", "pattern", "taylor", "ig", "gate", "probe", "dissociate", "ablate")
PRESETS: dict[str, dict[str, dict[str, Any]]] = {  # the methods of each, and their settings
    "quick": {
        "maps": {},
        "salient": {},
        "pattern": {},
        "taylor": {"examples": 16},
        "gate": {"preset": "quick"},
        "probe": {"preset": "quick"},
        "dissociate": {"preset": "quick", "data": tuple(BUILT_IN)},  # short prompts: the eight functions want a GPU
    },
    "full": {
        "maps": {"dynamic": 64, "causal": 64},
        "salient": {},
        "pattern": {},
        "taylor": {},
        "ig": {},
        "gate": {"preset": "full"},
        "probe": {"preset": "full"},
        "dissociate": {"preset": "full"},
        "ablate": {},
    },
}


def check_run(
    preset: Any, methods: Sequence[str] | str | None, functions: Sequence[str] | str | None
) -> tuple[list[str], list[str] | None]:
    """The methods and the functions that `run` is asked for, once they are known to be such."""
    check_choice("preset", preset, PRESETS)
    names = list(PRESETS[preset]) if methods is None else check_names("methods", methods, METHODS)
    chosen = None if functions is None else check_names("functions", functions, FUNCTIONS)
    if chosen and not {"probe", "dissociate"} & set(names):
        raise BadArgument(
            f"functions is given, but the methods are {', '.join(names)}: functions are those of probe and dissociate"
        )
    return names, chosen


def seed_numbers(seeds: Any) -> list[int]:
    """How many, or which, as numbers."""
    if isinstance(seeds, Integral):
        return list(range(check_count("seeds", seeds, 1, MOST_SEEDS, "each is a fit of its own")))
    listed: list[Any] = list(seeds) if isinstance(seeds, Iterable) and not isinstance(seeds, str) else []
    whole = all(isinstance(seed, Integral) and 0 <= int(seed) < 2**63 for seed in listed)
    if not listed or not whole or len(set(listed)) < len(listed):
        raise BadArgument(
            f"seeds is {brief(seeds)}, expected a number above 0, or different numbers that are 0 or more"
        )
    check_count("the number of seeds", len(listed), 1, MOST_SEEDS, "each is a fit of its own")
    return [int(seed) for seed in listed]
