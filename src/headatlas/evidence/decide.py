"""The outcome of tests, from their numbers: one of four words, and the reason.

`supported`: everything holds. `not supported`: the test had the power to see it, and it is not there. `undecided`:
fewer prompts or draws than that takes. `no ability`: the model does not do the task well enough to ask.
"""

import numpy as np
import xarray as xr

from headatlas.evidence.control import correct_p
from headatlas.evidence.inference import ALPHA, IMPORTANT

SUPPORTED = "supported"
NOT_SUPPORTED = "not supported"
UNDECIDED = "undecided"
NO_ABILITY = "no ability"
OUTCOMES = (SUPPORTED, NOT_SUPPORTED, UNDECIDED, NO_ABILITY)
CLAIMS = {"needed": -1, "harmful": 1}
"""What may be claimed of heads, and the sign of the change of log P when they are removed."""
MIN_SIGNIFICANT = 2  # of three replacements
DECISIONS = {
    "p": ("p", "How often random heads do as much, by the second best of three replacements."),
    "p_corrected": ("p, corrected", "p corrected for the number of tests (Benjamini and Hochberg)."),
    "outcome": ("outcome", "supported, not supported, undecided or no ability."),
    "reason": ("reason", "Why the outcome is not 'supported', or what supports it."),
    "p_selectivity_corrected": ("p of selectivity, corrected", "The same for selectivity."),
    "selective": (
        "selective",
        "Whether the subject loses more than any other subject changes; empty if not tested.",
    ),
}


def decide(tests: xr.Dataset) -> xr.Dataset:
    """Add p, corrected p, outcomes and reasons to tests over `test`; corrections are over all tests that were done."""
    p = np.array([_p(tests.isel(test=i)) for i in range(tests.sizes["test"])])
    p_selectivity = tests.p_selectivity.values.astype(float)
    decided = tests.assign(
        p=("test", p),
        p_corrected=("test", correct_p(p)),
        p_selectivity_corrected=("test", correct_p(p_selectivity)),
    )
    outcomes = [_outcome(decided.isel(test=i), _least_corrected(decided, i)) for i in range(len(p))]
    decided["outcome"] = "test", np.array([outcome for outcome, _ in outcomes], dtype=str)
    decided["reason"] = "test", np.array([reason for _, reason in outcomes], dtype=str)
    selective = [_selective(decided.isel(test=i)) for i in range(len(p))]
    decided["selective"] = "test", np.array(selective, dtype=str)
    for name, (long_name, description) in DECISIONS.items():
        decided[name].attrs = {"long_name": long_name, "units": "", "description": description}
    return decided


def _p(test: xr.Dataset) -> float:
    """Return the second smallest p of the replacements, each the larger one of log P and choice; NaN if not tested."""
    by_replacement = np.sort(_largest(test.p_measure.values))
    if not np.isfinite(by_replacement).any():
        return np.nan
    return float(by_replacement[MIN_SIGNIFICANT - 1])


def _largest(p: np.ndarray) -> np.ndarray:
    """Return the largest p of each replacement, from [replacement, measure]; 1 where nothing was drawn."""
    known = np.where(np.isfinite(p), p, -np.inf).max(1)
    if not np.isfinite(p).any():
        return np.full(len(p), np.nan)
    return np.where(np.isfinite(known), known, 1.0)


def _least(test: xr.Dataset) -> float:
    """Return the smallest p that a test could have had, by its number of draws and of different sets."""
    return max(1 / (1 + float(test.n_drawn.max())), 1 / float(test.matched_sets))


def _least_corrected(tests: xr.Dataset, i: int) -> float:
    """Return the smallest corrected p that test i could have had; NaN if it was not done."""
    p = tests.p.values.copy()
    if not np.isfinite(p[i]):
        return np.nan
    p[i] = _least(tests.isel(test=i))
    return float(correct_p(p)[i])


def _outcome(test: xr.Dataset, least_corrected: float) -> tuple[str, str]:
    if not int(test.prompts):
        return UNDECIDED, str(test.missing.item())
    accuracy = float(test.accuracy)
    if not float(test.accuracy_low) > float(test.guess):
        return NO_ABILITY, (
            f"the model answers {accuracy:.0%} of {int(test.prompts)} prompts right (at least"
            f" {float(test.accuracy_low):.0%} with 95 % confidence), the best guess {float(test.guess):.0%}"
        )
    if not int(test.n_heads):
        return UNDECIDED, "there are no heads to test"
    sign = CLAIMS[str(test.claim.item())]
    effects = test.effect.sel(measure="log_p").values
    significant = test.significant.values.astype(bool)
    same_sign = bool((sign * effects > 0).all())
    names = [str(name) for name in test.replacement.values[significant]]
    corrected = float(test.p_corrected)
    if same_sign and significant.sum() >= MIN_SIGNIFICANT and corrected < ALPHA:
        return SUPPORTED, f"significant by {' and '.join(names)}, p {corrected:.2g}"
    reason = _why_not(test, sign, effects, significant, corrected)
    short = _too_small(test, significant, least_corrected)
    return (UNDECIDED, f"{reason}; {short}") if short else (NOT_SUPPORTED, reason)


def _why_not(test: xr.Dataset, sign: int, effects: np.ndarray, significant: np.ndarray, corrected: float) -> str:
    if not (sign * effects > 0).all():
        wrong = [str(name) for name in test.replacement.values[~(sign * effects > 0)]]
        return f"removal by {' and '.join(wrong)} does not change log P in the direction claimed"
    if significant.sum() < MIN_SIGNIFICANT:
        best = float(test.p)
        return f"significant with {int(significant.sum())} of {len(significant)} replacements, p {best:.2g}"
    return f"p {corrected:.2g} after correction for all tests"


def _too_small(test: xr.Dataset, significant: np.ndarray, least_corrected: float) -> str:
    """Say what a test lacks to decide; empty if it had the power, and draws enough."""
    # drawing ends early only after a round that is large enough for p below 0.05
    draws = int(test.n_drawn.max())
    if 1 / float(test.matched_sets) >= ALPHA:
        return f"there are only {int(test.matched_sets)} different sets of random heads"
    if _least(test) >= ALPHA:
        return f"{draws} draws are too few for p below {ALPHA}: it takes {round(1 / ALPHA)}"
    if significant.sum() >= MIN_SIGNIFICANT and least_corrected >= ALPHA:
        return f"{draws} draws of {test.matched_sets:.0f} sets are too few for p below {ALPHA} after correction"
    seen = float(test.detectable)
    if not np.isfinite(seen):
        return f"{int(test.prompts)} prompts show nothing about others"
    if seen > IMPORTANT:
        needed = int(np.ceil(int(test.prompts) * (seen / IMPORTANT) ** 2))
        return f"{int(test.prompts)} prompts show changes from {seen:.2g} nats on: {needed} would show {IMPORTANT:g}"
    return ""


def _selective(test: xr.Dataset) -> str:
    """Return the outcome of the test of selectivity; empty where it does not apply."""
    if str(test.outcome.item()) != SUPPORTED or not np.isfinite(float(test.selectivity)):
        return ""
    clears = float(test.selectivity_low) > 0 and float(test.p_selectivity_corrected) < ALPHA
    return SUPPORTED if clears else NOT_SUPPORTED


# --- tests with one intervention, such as an edit or outputs moved between prompts


def decide_one(p: float, low: float, draws: int, *, n_sets: float = np.inf, seen: float = 0.0) -> tuple[str, str]:
    """Return the outcome of a test with one intervention, and the reason.

    Args:
        p: how often random heads do as much, corrected if there are several tests.
        low: lower end of the 95 % interval over prompts of the effect beyond random heads; above 0 is as claimed.
        draws: number of random sets of heads.
        n_sets: number of different ones.
        seen: effect that the test would have seen with 80 % probability, in nats; 0 if it is in other units.
    """
    if p < ALPHA and low > 0:
        return SUPPORTED, f"p {p:.2g}, and the interval over prompts is clear of 0"
    reason = f"p {p:.2g}" if p >= ALPHA else f"p {p:.2g}, but the interval over prompts holds 0"
    if n_sets < 1 / ALPHA:
        return UNDECIDED, f"{reason}; there are only {n_sets:.0f} different sets of random heads"
    if 1 / (1 + draws) >= ALPHA:
        return UNDECIDED, f"{reason}; {draws} draws are too few for p below {ALPHA}"
    if not seen <= IMPORTANT:
        return UNDECIDED, f"{reason}; these prompts show changes from {seen:.2g} nats on"
    return NOT_SUPPORTED, reason


def with_outcomes(result: xr.Dataset, draws: int) -> xr.Dataset:
    """Add corrected p, outcome and reason to tests over `task`, from p, beyond_low and (in nats) detectable."""
    corrected = correct_p(result.p.values)
    seen = result.detectable.values if "detectable" in result else np.zeros(len(corrected))
    rows = zip(corrected, result.beyond_low.values, seen, strict=True)
    outcomes = [decide_one(p, low, draws, seen=visible) for p, low, visible in rows]
    return result.assign(
        p_corrected=("task", corrected),
        outcome=("task", np.array([outcome for outcome, _ in outcomes], dtype=str)),
        reason=("task", np.array([reason for _, reason in outcomes], dtype=str)),
    )
