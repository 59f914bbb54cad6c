"""The test of a set of heads for a subject (docs/concepts/evidence.md): one test for every map, edit and list of heads.

1. *Ability.* On the test prompts, the lower 95 % bound of accuracy must exceed the best guess. An answer is right if
   its first token is the likeliest of those that the subject's answers begin with: its wording does not count.
2. *Fresh prompts.* No prompt was used to make, choose or tune the map (evidence/fresh_prompts.py).
3. *Content, not form.* log P of the answer, and log P of the answer among the subject's own answers (`choice`).
4. *Matched control.* Random sets of heads from the same layers, spread over key-value groups and influence alike.
5. *Over heads and over prompts.* p over draws, and a 95 % interval over prompts; both must clear.
6. *Three replacements.* The same sign with all three, and significant with two.
7. *Selective?* What the subject loses minus what the most affected other subject changes, against the same draws.

The outcome is one of four words: supported, not supported, undecided, no ability.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import xarray as xr

from headatlas.evidence.control import Control, Heads, compare_with_random
from headatlas.evidence.decide import CLAIMS, decide
from headatlas.evidence.fresh_prompts import PromptSet
from headatlas.evidence.inference import ALPHA, accuracy_low, detectable, difference_interval, interval
from headatlas.evidence.matching import MatchedSets, match
from headatlas.evidence.replacing import REPLACEMENTS, TEST_MEASURES, ModelSurvey, answers_replaced
from headatlas.models.lm import LM
from headatlas.progress import Progress, silent

PROMPTS = 48
DRAWS = 199
DRAWS_PER_ROUND = 30  # every round runs the prompts again
MAX_OTHERS = 4  # subjects that selectivity compares with, besides plain text
OTHER_PROMPTS = 12  # prompts of each of them
MIN_HEADS = 4
HEADS_SHARE = 0.03
CURVE_SHARES = (0.25, 0.5, 1.0, 2.0, 4.0)  # numbers of heads in the curve, in multiples of the number tested
NATS = "nats per token"
EFFECT = ("replacement", "measure")
HeadSet = tuple[tuple[int, int], ...]
"""A set of heads in a fixed order."""
TEST_VARIABLES: dict[str, tuple[tuple[str, ...], str, str, str]] = {
    "subject": ((), "subject", "", "What the prompts are about."),
    "claim": ((), "claim", "", "What was claimed of the heads: that the subject needs them, or is harmed by them."),
    "removal": ((), "removal", "", "Where heads were removed: from the prompt's last token on, or everywhere."),
    "missing": ((), "missing", "", "Why there are no prompts, or fewer than wanted; empty if there are enough."),
    "matched": ((), "matched", "", "What random heads share with the tested ones."),
    "selected": (("layer", "head"), "tested heads", "", "Whether a head is in the tested set."),
    "n_heads": ((), "heads", "heads", "Number of tested heads."),
    "prompts": ((), "prompts", "prompts", "Number of fresh prompts."),
    "guess": ((), "best guess", "share", "Accuracy of always giving the commonest answer."),
    "accuracy": (
        (),
        "accuracy",
        "share",
        "Share of prompts on which the right answer is the likeliest of the subject's.",
    ),
    "accuracy_low": ((), "accuracy, lower end", "share", "Lower end of the 95 % interval of the accuracy (Wilson)."),
    "baseline": (("measure",), "whole model", "", "The measures of the whole model, means over prompts."),
    "effect": (EFFECT, "change", "", "Change of each measure without the tested heads; below 0: worse."),
    "beyond_random": (EFFECT, "beyond random", "", "The change minus that of random heads, mean over prompts."),
    "low": (EFFECT, "lower end", "", "Lower end of the 95 % interval over prompts of the change beyond random heads."),
    "high": (EFFECT, "upper end", "", "Upper end of the 95 % interval over prompts of the change beyond random heads."),
    "random_effect": (
        ("replacement", "draw", "measure"),
        "random heads",
        "",
        "The change without each draw of random heads; below 0: worse.",
    ),
    "n_drawn": (("replacement",), "draws", "draws", "Number of draws of random heads."),
    "p_measure": (EFFECT, "p of a measure", "", "How often random heads change a measure as much."),
    "significant": (
        ("replacement",),
        "significant",
        "",
        "Whether p is below 0.05 and the interval clear of 0, for both log P and choice.",
    ),
    "matched_sets": ((), "different draws", "sets", "Number of different sets of random heads."),
    "detectable": ((), "detectable", NATS, "Change of log P that the test would have seen with 80 % probability."),
    "example_effect": (
        ("example", "replacement", "measure"),
        "change by prompt",
        "",
        "The change of each measure on each prompt; below 0: worse.",
    ),
    "example_random": (
        ("example", "replacement", "measure"),
        "random heads by prompt",
        "",
        "Mean change on each prompt without random heads; below 0: worse.",
    ),
    "cluster": (("example",), "cluster", "", "Main question or kind that a prompt belongs to."),
    "other_subject": (("other",), "other subject", "", "What the other prompts are about."),
    "other_effect": (("other", "measure"), "others", "", "Mean change of other subjects; below 0: worse."),
    "other_size": (("other",), "others, mean size", NATS, "Mean size of the changes of log P of other subjects."),
    "selectivity": ((), "selectivity", NATS, "Loss of the subject minus the size of the largest change of another."),
    "selectivity_low": ((), "selectivity, lower end", NATS, "Lower end of its 95 % interval over prompts of both."),
    "selectivity_high": ((), "selectivity, upper end", NATS, "Upper end of its 95 % interval over prompts of both."),
    "random_selectivity": (("draw",), "selectivity, random", NATS, "The same for each draw of random heads."),
    "p_selectivity": ((), "p of selectivity", "", "How often random heads are as selective."),
    "curve_heads": (("share",), "heads in the curve", "heads", "Numbers of top heads that were removed as well."),
    "curve_effect": (("share", "measure"), "curve", "", "Change without that many top heads; it decides nothing."),
}
"""The variables of a test: their dimensions, long name, units and description."""
TEXTS = ("subject", "claim", "removal", "missing", "matched", "other_subject")
FLAGS = ("selected", "significant")


@dataclass(frozen=True)
class Removal:
    """How heads are removed and measured in all tests of a call.

    everywhere: remove them at the prompt's tokens too, not from its last token on. tokens: run at once, at most.
    """

    lm: LM
    survey: ModelSurvey
    everywhere: bool = False
    tokens: int | None = None

    def change(self, prompts: PromptSet, sets: Sequence[Heads], replacement: str) -> np.ndarray:
        """Return the change from the whole model with each set removed: [set, example, measure]."""
        values = self.answers(prompts, [[], *sets], replacement)
        return values[1:] - values[0]

    def answers(self, prompts: PromptSet, sets: Sequence[Heads], replacement: str = "zero") -> np.ndarray:
        """Return the answers with each set removed: [set, example, measure]."""
        return answers_replaced(
            self.lm, prompts, sets, replacement, self.survey, everywhere=self.everywhere, tokens=self.tokens
        )


def number_of_heads(n_heads: int) -> int:
    """Return how many heads of a map are tested: 3 % of all, and at least 4."""
    return max(MIN_HEADS, round(HEADS_SHARE * n_heads))


def run_test(
    removal: Removal,
    heads: Heads,
    prompts: PromptSet,
    others: Sequence[PromptSet] = (),
    *,
    claim: str = "needed",
    ranking: Sequence[tuple[int, int]] = (),
    draws: int = DRAWS,
    seed: int = 0,
    progress: Progress = silent,
) -> xr.Dataset:
    """Test whether a subject needs heads, or is harmed by them.

    Args:
        removal: the model, and how heads are removed from it.
        heads: the tested heads.
        prompts: fresh prompts of the subject.
        others: prompts of other subjects, and plain texts, for selectivity.
        claim: 'needed' or 'harmful'.
        ranking: all heads of the map, best first, for the curve over numbers of heads.
        draws: random sets of heads, at most.
        seed: of the draws.
        progress: reports the replacements.

    Returns:
        One test: see `TEST_VARIABLES` for its variables. outcome and reason are preliminary until p is corrected for
        the number of tests (`decide`).
    """
    lm = removal.lm
    others = [other for other in others if len(other)]
    result = _empty(removal, heads, prompts, others, claim, draws)
    if not len(prompts):
        return result
    before = removal.answers(prompts, [[]])[0]
    result["accuracy"] = before[:, 2].mean()
    result["accuracy_low"] = accuracy_low(before[:, 2])
    result["baseline"] = "measure", before.mean(0)
    if not heads or not float(result.accuracy_low) > prompts.guess:
        return result
    sign = CLAIMS[claim]
    generator = np.random.default_rng([seed, 0])
    matched = match(heads, removal.survey.influence, lm.n_kv_heads, generator)
    result["matched_sets"] = matched.n_sets
    result["matched"] = matched.text
    _test_replacements(removal, heads, prompts, others, sign, matched, draws, seed, result, progress)
    if ranking:
        _curve(removal, ranking, prompts, result)
    return result


def _test_replacements(
    removal: Removal,
    heads: Heads,
    prompts: PromptSet,
    others: Sequence[PromptSet],
    sign: int,
    matched: MatchedSets,
    draws: int,
    seed: int,
    result: xr.Dataset,
    progress: Progress,
) -> None:
    """Fill in effects, draws and p of each replacement; the third is drawn for only where it decides."""
    n_tested = 2 if prompts.has_choice else 1
    significant = 0
    for r, replacement in enumerate(progress(REPLACEMENTS, f"testing heads of {prompts.subject}")):
        needed = r < 2 or significant == 1
        measure = _Measured(removal, prompts, others if replacement == "zero" else (), replacement, sign)
        control = compare_with_random(
            measure,
            [heads],
            partial(_draw, matched, np.random.default_rng([seed, 1 + r])),
            draws=draws if needed else 0,
            draws_per_round=DRAWS_PER_ROUND,
            n_tested=n_tested,
        )
        changes = measure.by_set[_key(heads)]  # [example, measure]
        result["effect"][r] = changes.mean(0)
        result["example_effect"][:, r] = changes
        if replacement == "zero":
            _note_others(measure, heads, control, result)
        if not needed:
            continue
        drawn = np.stack([measure.by_set[key] for key in measure.drawn])  # [draw, example, measure]
        result["random_effect"][r, : len(drawn)] = drawn.mean(1)
        result["example_random"][:, r] = drawn.mean(0)
        result["n_drawn"][r] = control.n_drawn[0]
        beyond = changes - drawn.mean(0)
        low, high = interval(beyond, prompts.cluster)
        result["beyond_random"][r] = beyond.mean(0)
        result["low"][r] = low
        result["high"][r] = high
        result["p_measure"][r, :n_tested] = control.p_of_measure[0]
        if replacement == "zero":
            result["detectable"] = detectable(beyond[:, 0], prompts.cluster)
        clears = (sign * np.where(sign < 0, high, low)[:n_tested] > 0).all()
        result["significant"][r] = bool(clears and control.p[0] < ALPHA)
        significant += int(result.significant[r])


def _draw(matched: MatchedSets, generator: np.random.Generator, _: Heads) -> Heads:
    return matched.draw(generator)


class _Measured:
    """The value of sets of heads: what they do to the subject, and how selectively. It keeps changes by example.

    The value is [set, (log_p, choice, selectivity)], signed so that lower is more extreme.
    """

    def __init__(
        self, removal: Removal, prompts: PromptSet, others: Sequence[PromptSet], replacement: str, sign: int
    ) -> None:
        self.removal = removal
        self.prompts = prompts
        self.others = others
        self.replacement = replacement
        self.sign = sign
        self.by_set: dict[HeadSet, np.ndarray] = {}  # changes [example, measure]
        self.others_by_set: dict[HeadSet, list[np.ndarray]] = {}  # of each other subject [example, measure]
        self.drawn: list[HeadSet] = []

    def __call__(self, sets: Sequence[Heads]) -> np.ndarray:
        first_call = not self.by_set
        keys = [_key(heads) for heads in sets]
        self.drawn += keys[1:] if first_call else keys
        # measured again in other company, a set would be rounded differently and a tie would be missed
        new = [key for key in dict.fromkeys(keys) if key not in self.by_set]
        if new:
            self._measure(new)
        return np.stack([self._value(key) for key in keys])

    def _measure(self, keys: list[HeadSet]) -> None:
        sets = [list(key) for key in keys]
        self.by_set.update(zip(keys, self.removal.change(self.prompts, sets, self.replacement), strict=True))
        by_other = [self.removal.change(other, sets, self.replacement) for other in self.others]
        for i, key in enumerate(keys):
            self.others_by_set[key] = [changes[i] for changes in by_other]

    def _value(self, key: HeadSet) -> np.ndarray:
        effect = self.by_set[key].mean(0)
        selectivity = self.sign * effect[0] - self.sizes(key).max() if self.others else np.nan
        return np.array([-self.sign * effect[0], -self.sign * effect[1], -selectivity])

    def sizes(self, key: HeadSet) -> np.ndarray:
        """Return the mean size of the changes of log P of each other subject [other]."""
        return np.array([np.abs(changes[:, 0]).mean() for changes in self.others_by_set[key]])


def _key(heads: Heads) -> HeadSet:
    return tuple(sorted(heads))


def _note_others(measure: _Measured, heads: Heads, control: Control[Heads], result: xr.Dataset) -> None:
    """Fill in what removal does to other subjects, and how selective it is."""
    if not measure.others:
        return
    key = _key(heads)
    changes = measure.others_by_set[key]
    sizes = measure.sizes(key)
    result["other_effect"][:] = np.array([change.mean(0) for change in changes])
    result["other_size"][:] = sizes
    result["selectivity"] = -control.effect[0, 2]
    random = -control.random_effect[0, :, 2]
    result["random_selectivity"][: len(random)] = random
    drawn = random[np.isfinite(random)]
    result["p_selectivity"] = (1 + (drawn >= float(result.selectivity)).sum()) / (1 + len(drawn))
    largest = int(sizes.argmax())
    low, high = difference_interval(
        measure.sign * measure.by_set[key][:, 0],
        measure.prompts.cluster,
        np.abs(changes[largest][:, 0]),
        measure.others[largest].cluster,
    )
    result["selectivity_low"] = low
    result["selectivity_high"] = high


def _curve(removal: Removal, ranking: Sequence[tuple[int, int]], prompts: PromptSet, result: xr.Dataset) -> None:
    """Fill in the change for other numbers of top heads, each head's output replaced by zero."""
    tested = int(result.n_heads)
    for i, share in enumerate(CURVE_SHARES):
        n = max(1, round(share * tested))
        if n <= len(ranking):
            result["curve_heads"][i] = n
            result["curve_effect"][i] = removal.change(prompts, [list(ranking[:n])], "zero")[0].mean(0)


def _empty(
    removal: Removal, heads: Heads, prompts: PromptSet, others: Sequence[PromptSet], claim: str, draws: int
) -> xr.Dataset:
    """Return a test in which nothing is measured yet: every number is NaN."""
    lm = removal.lm
    sizes = {
        "replacement": len(REPLACEMENTS),
        "measure": len(TEST_MEASURES),
        "draw": draws,
        "example": len(prompts),
        "other": len(others),
        "share": len(CURVE_SHARES),
        "layer": lm.n_layers,
        "head": lm.n_heads,
    }
    variables = {
        name: (dims, np.full([sizes[dim] for dim in dims], _nothing(name)))
        for name, (dims, *_) in TEST_VARIABLES.items()
    }
    result = xr.Dataset(variables, coords=_coordinates(lm.n_layers, lm.n_heads))
    for layer, head in heads:
        result["selected"][layer, head] = True
    known = {
        "subject": prompts.subject,
        "claim": claim,
        "removal": "everywhere" if removal.everywhere else "from the last token on",
        "missing": prompts.missing,
        "n_heads": float(len(heads)),
        "prompts": float(len(prompts)),
        "guess": prompts.guess,
    }
    result = result.assign(known)
    result["cluster"] = "example", np.array(prompts.cluster, float)
    result["other_subject"] = "other", np.array([other.subject for other in others], dtype=str)
    return result


def _nothing(name: str) -> object:
    """Return what stands where nothing is known."""
    if name in TEXTS:
        return ""
    return False if name in FLAGS else np.nan


def _coordinates(n_layers: int, n_heads: int) -> dict[str, object]:
    return {
        "replacement": list(REPLACEMENTS),
        "measure": list(TEST_MEASURES),
        "share": list(CURVE_SHARES),
        "layer": range(n_layers),
        "head": range(n_heads),
    }


# --- many tests


def to_arrays(test: xr.Dataset) -> tuple[np.ndarray, ...]:
    """Return the arrays of a test, as parts of a method's work are kept."""
    return tuple(np.asarray(test[name].values) for name in TEST_VARIABLES)


def stack_tests(tests: Mapping[str, tuple[np.ndarray, ...]]) -> xr.Dataset:
    """Return tests by name as one dataset over `test`, with p and outcomes corrected for their number.

    Tests with fewer prompts, draws or other subjects than others are filled up with NaN.
    """
    datasets = []
    for arrays in tests.values():
        variables = {n: (dims, a) for (n, (dims, *_)), a in zip(TEST_VARIABLES.items(), arrays, strict=True)}
        n_layers, n_heads = variables["selected"][1].shape
        datasets.append(xr.Dataset(variables, coords=_coordinates(n_layers, n_heads)))
    sizes = {dim: max(test.sizes[dim] for test in datasets) for dim in ("draw", "example", "other")}
    padded = [_padded(test, sizes) for test in datasets]
    result = xr.concat(padded, "test").assign_coords(test=list(tests))
    for name, (_, long_name, units, description) in TEST_VARIABLES.items():
        result[name].attrs = {"long_name": long_name, "units": units, "description": description}
    return decide(result)


def _padded(test: xr.Dataset, sizes: Mapping[str, int]) -> xr.Dataset:
    """Fill a test up to these sizes, with NaN and empty names."""
    names = test.other_subject.values.tolist()
    names += [""] * (sizes["other"] - len(names))
    widths = {dim: (0, size - test.sizes[dim]) for dim, size in sizes.items()}
    padded = test.drop_vars("other_subject").pad(widths)
    return padded.assign(other_subject=("other", np.array(names, dtype=str)))
