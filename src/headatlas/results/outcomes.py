"""The outcome of each map's test, as figures, tables and the page show it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr

from headatlas.evidence.decide import NO_ABILITY, SUPPORTED, UNDECIDED

NOT_TESTED = "not tested"


@dataclass(frozen=True)
class Outcome:
    """The outcome of the test of a map: what removing its top heads does, compared with matched random heads.

    Changes are of log P in nats per token, below 0: worse. NaN: not measured.

    Attributes:
        outcome: supported, not supported, undecided or no ability.
        reason: why.
        selective: whether the subject loses more than others change: supported, not supported, or empty.
        n_heads: number of tested heads.
        prompts: number of prompts.
        accuracy: share of prompts that the whole model answers right.
        accuracy_after: the same without the tested heads.
        guess: accuracy of the best guess.
        effect: change without the tested heads, their outputs replaced by zero.
        random: mean change without random heads.
        random_low, random_high: middle 90 % of the draws of random heads.
        beyond: change beyond that of random heads, by replacement.
        low, high: 95 % interval of `beyond` over prompts, by replacement.
        p: how often random heads do as much, corrected for the number of tests.
        curve: change without other numbers of top heads, by number.
        others: change of other subjects, by name.
        heads: whether a head was tested [layer, head].
    """

    outcome: str
    reason: str
    selective: str
    n_heads: int
    prompts: int
    accuracy: float
    accuracy_after: float
    guess: float
    effect: float
    random: float
    random_low: float
    random_high: float
    beyond: dict[str, float]
    low: dict[str, float]
    high: dict[str, float]
    p: float
    curve: dict[int, float]
    others: dict[str, float]
    heads: np.ndarray

    @property
    def supported(self) -> bool:
        return self.outcome == SUPPORTED

    @property
    def text(self) -> str:
        """Say it in a few words: 'supported, p 0.005, 8 heads', or 'no ability: 13 % right, guess 27 %'."""
        if self.outcome == NO_ABILITY:
            return f"{self.outcome}: {percent(self.accuracy)} right, guess {percent(self.guess)}"
        if self.outcome == UNDECIDED:
            # what is missing comes last
            return f"{self.outcome}: {self.reason.rpartition('; ')[2]}"
        return f"{self.outcome}, p {self.p:.2g}, {self.n_heads} head{'s' * (self.n_heads != 1)}"


def percent(share: float) -> str:
    """Write a share: '13 %', or '-' if it was not measured."""
    return "-" if np.isnan(share) else f"{100 * share:.0f} %"


def interval_in_words(outcome: Outcome) -> str:
    """Write the 95 % interval of the change beyond random heads: '-1.5 to -0.7', or '-' if it was not measured."""
    low, high = outcome.low["zero"], outcome.high["zero"]
    return "-" if np.isnan(low) else f"{low:+.2f} to {high:+.2f}"


def outcomes(result: xr.Dataset) -> dict[tuple[str, str], Outcome]:
    """Return the outcome of every tested map of a result, by measure and subject."""
    if "tested_outcome" not in result:
        return {}
    tested = {}
    _, over = result.tested_outcome.dims
    for i, measure in enumerate(result.tested_measure.values.tolist()):
        for j, subject in enumerate(result[over].values.tolist()):
            test = result.isel({"tested_measure": i, over: j})
            if test.tested_outcome.item():
                tested[str(measure), str(subject)] = _outcome(test)
    return tested


def all_outcomes(maps: Mapping[str, xr.Dataset]) -> Iterator[tuple[str, str, str, Outcome]]:
    """Yield the method, measure, subject and outcome of every tested map."""
    for method, result in maps.items():
        for (measure, subject), outcome in outcomes(result).items():
            yield method, measure, subject, outcome


def _outcome(test: xr.Dataset) -> Outcome:
    """Read the outcome of one map from the variables of `with_outcomes`."""
    replacements = [str(name) for name in test.tested_replacement.values]
    by_replacement = {
        name: dict(zip(replacements, test[f"tested_{name}"].values.tolist(), strict=True))
        for name in ("beyond_random", "low", "high")
    }
    curve = zip(test.tested_curve_heads.values.tolist(), test.tested_curve.values.tolist(), strict=True)
    others = zip(test.tested_other.values.tolist(), test.tested_others.values.tolist(), strict=True)
    heads = test.tested_heads.transpose("layer", "head").values.astype(bool)
    return Outcome(
        outcome=str(test.tested_outcome.item()),
        reason=str(test.tested_reason.item()),
        selective=str(test.tested_selective.item()),
        n_heads=int(test.tested_n_heads),
        prompts=int(test.tested_prompts),
        accuracy=float(test.tested_accuracy),
        accuracy_after=float(test.tested_accuracy_after),
        guess=float(test.tested_guess),
        effect=float(test.tested_effect),
        random=float(test.tested_random),
        random_low=float(test.tested_random_low),
        random_high=float(test.tested_random_high),
        beyond=by_replacement["beyond_random"],
        low=by_replacement["low"],
        high=by_replacement["high"],
        p=float(test.tested_p),
        curve={int(n): change for n, change in curve if np.isfinite(change)},
        others={str(name): change for name, change in others if np.isfinite(change)},
        heads=heads,
    )
