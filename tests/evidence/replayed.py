"""The p-value of draws, counted by hand: what the removal experiment must say of them."""

import numpy as np

ROUNDING = 1e-12  # sums of the same heads in another order


def p_of(effect: float, random_effect: np.ndarray) -> float:
    """random_effect [draw]: NaN where drawing had ended."""
    as_much = [number for number, drawn in enumerate(random_effect, 1) if drawn <= effect + ROUNDING]
    return 5 / as_much[4] if len(as_much) >= 5 else (1 + len(as_much)) / (1 + len(random_effect))
