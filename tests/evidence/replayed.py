"""A p-value from the draws that were made, as they were made."""

from itertools import islice

import numpy as np

from headatlas.evidence.removal import AT_LEAST, p_sequential


def p_of(effect: float, random_effect: np.ndarray) -> float:
    draws = iter(random_effect)
    return p_sequential(effect, lambda n: np.array([*islice(draws, n)]), len(random_effect), AT_LEAST)[1]
