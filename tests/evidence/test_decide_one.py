"""The outcome of a test with one intervention."""

import pytest

from headatlas.evidence.decide import decide_one


@pytest.mark.parametrize(
    ("p", "low", "options", "outcome", "says"),
    [
        (0.01, 0.2, {"draws": 99}, "supported", "p 0.01, and the interval over prompts is clear of 0"),
        (0.01, -0.1, {"draws": 99}, "not supported", "p 0.01, but the interval over prompts holds 0"),
        (0.3, 0.2, {"draws": 99}, "not supported", "p 0.3"),
        (0.05, 0.2, {"draws": 19}, "undecided", "19 draws are too few for p below 0.05"),
        (0.3, 0.2, {"draws": 20}, "not supported", "p 0.3"),
        (0.3, 0.2, {"draws": 99, "n_sets": 6}, "undecided", "there are only 6 different sets of random heads"),
        (0.3, 0.2, {"draws": 99, "seen": 0.9}, "undecided", "these prompts show changes from 0.9 nats on"),
        (0.3, 0.2, {"draws": 99, "seen": float("nan")}, "undecided", "these prompts show changes from nan"),
    ],
)
def test_outcomes(p, low, options, outcome, says) -> None:
    decided, reason = decide_one(p, low, **options)
    assert decided == outcome
    assert says in reason
