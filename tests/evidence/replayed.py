"""Replay draws one by one: the p-value that the removal test must report."""

import numpy as np

ROUNDING = 1e-12  # sums of the same heads in another order


def p_of(effect: float, random_effect: np.ndarray) -> float:
    """random_effect [draw]: NaN where drawing had ended."""
    as_much = [number for number, draw_effect in enumerate(random_effect, 1) if draw_effect <= effect + ROUNDING]
    return 5 / as_much[4] if len(as_much) >= 5 else (1 + len(as_much)) / (1 + len(random_effect))
