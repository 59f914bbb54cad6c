"""Heads of one function, tested: when they are removed, how do that function and the others change?

Everything is the change of mean log P per answer token; below 0 is worse. A map is *selective* for a function where
removing its heads costs the function much and the others little. How many of a map's heads are removed is chosen on
validation questions, by the trade-off the heads were fitted to. Reported effects are measured on test questions, which
were not used to fit or choose anything. Random heads come from the same layers, as many from each
(evidence/control.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from torch import Tensor

from headatlas.evidence.control import (
    DRAWS_PER_ROUND,
    Heads,
    cached_by_heads,
    compare_with_random,
    correct_p,
    gates_without,
    same_layers,
    top_heads,
)
from headatlas.models.lm import LM
from headatlas.tasks.labelled import LabelledExamples, log_p_per_token

WEIGHT = 3.0  # a function's own loss must be so many times the others'
SURE = 0.05  # p-values below this count
PROVEN = "heads of its own"


@dataclass(frozen=True)
class Trial:
    """What removing sets of heads is measured with."""

    lm: LM
    data: LabelledExamples
    baseline: Tensor  # mean log P per answer token of the model as it is [example]
    batch_tokens: int | None = None

    def changes(self, split: str, sets: Sequence[Heads], function: int | None = None) -> np.ndarray:
        """How every example of a split (and function) changes with each set of heads removed: [set, example]."""
        examples = self.data.indices_in(split, function)
        gates = gates_without(sets, (self.lm.n_layers, self.lm.n_heads))
        log_p = log_p_per_token(self.lm, self.data, examples, gates, self.batch_tokens)
        return (log_p - self.baseline[examples]).double().numpy()

    def effects(self, split: str, sets: Sequence[Heads]) -> np.ndarray:
        """Mean change of each function: [set, function]."""
        change, function = self.changes(split, sets), self.data.function[self.data.indices_in(split)]
        return np.stack([change[:, function == f].mean(1) for f in range(len(self.data.names))], axis=1)


def choose(effect: np.ndarray, function: int, always: bool = False) -> int:
    """Which of the sets is worth most; −1 where none is worth anything, unless `always`.

    effect: [set, function], on validation questions.
    """
    if not len(effect):
        return -1
    # changes of the others by their size: one function's gain does not make up for another's loss
    worth = -effect[:, function] - WEIGHT * np.abs(np.delete(effect, function, axis=1)).mean(1)
    best = int(np.argmax(worth))
    return best if always or worth[best] > 0 else -1


def remove_heads_of(
    trial: Trial,
    function: int,
    score: np.ndarray,
    steps: Sequence[int],
    *,
    draws: int,
    always: bool = False,
    seed: int = 0,
) -> tuple[np.ndarray, ...]:
    """Heads of one function, removed: how many is chosen on validation questions, their effects are on test ones.

    score [layer, head]: only heads above 0 are candidates, the highest first. steps: numbers of heads that are tried.
    always: choose the best of them even where it is worth nothing. Random heads are drawn up to `draws` times, and at
    least 20 times: no more where the others lose too much, which no p-value makes up for.

    Returns arrays for `removal_results`: the heads chosen [head, 2], effects of random heads on test questions [draw],
    NaN where not drawn, and their p; effects on validation and on test questions [step, function].
    """
    candidates = int((np.nan_to_num(score, nan=-np.inf) > 0).sum())
    sets = [top_heads(score, n) for n in steps if n <= candidates]
    curves = np.full((2, len(steps), len(trial.data.names)), np.nan)
    if sets:
        curves[0, : len(sets)] = trial.effects("validation", sets)
        curves[1, : len(sets)] = trial.effects("test", sets)
    best = choose(curves[0, : len(sets)], function, always)
    heads = sets[best] if best >= 0 else []
    random_effect = np.full(draws, np.nan)
    p = np.nan
    if heads:

        def own_change(sets: Sequence[Heads]) -> np.ndarray:
            return trial.changes("test", sets, function).mean(1)

        effect = curves[1, best]
        max_draws = draws if _own(effect[function], np.delete(effect, function)) else min(draws, DRAWS_PER_ROUND)
        draw = same_layers(score.shape[1], np.random.default_rng([seed, function]))
        control = compare_with_random(cached_by_heads(own_change), [heads], draw, draws=max_draws)
        random_effect[:max_draws] = control.random_effect[0]
        p = control.p[0]
    return np.array(heads, int).reshape(-1, 2), random_effect, np.array(p), *curves


def removal_results(
    names: Sequence[str], shape: tuple[int, int], steps: Sequence[int], removed: Sequence[tuple[np.ndarray, ...]]
) -> xr.Dataset:
    """The results of `remove_heads_of` for each function, with corrected p-values and a verdict on each.

    selected(function, layer, head), n_removed(function), effect(function), other_effect(function, other),
    random_effect(function, draw), p and p_corrected(function), effect_curve, other_curve and
    other_size_curve(function, split, step), verdict and proven(function).
    """
    functions = [_removed(f, shape, steps, *arrays) for f, arrays in enumerate(removed)]
    coords = {"function": list(names), "other": list(names), "draw": range(functions[0].sizes["draw"])}
    coords |= {"split": ["validation", "test"], "step": list(steps)}
    result = xr.concat(functions, "function").assign_coords(coords)
    result = result.assign(p_corrected=("function", correct_p(result.p.values)))
    verdicts = [verdict(result.isel(function=f)) for f in range(len(names))]
    return result.assign(verdict=("function", verdicts), proven=("function", [v == PROVEN for v in verdicts]))


def _removed(
    function: int,
    shape: tuple[int, int],
    steps: Sequence[int],
    heads: np.ndarray,
    random_effect: np.ndarray,
    p: np.ndarray,
    validation: np.ndarray,
    test: np.ndarray,
) -> xr.Dataset:
    selected = np.zeros(shape, dtype=bool)
    selected[tuple(heads.T)] = True
    others = test[list(steps).index(len(heads))].copy() if len(heads) else np.full(test.shape[1], np.nan)
    effect, others[function] = others[function], np.nan
    return xr.Dataset(
        {
            "selected": (("layer", "head"), selected),
            "n_removed": len(heads),
            "effect": effect,
            "other_effect": ("other", others),
            "random_effect": ("draw", random_effect),
            "p": p.item(),
            "effect_curve": (("split", "step"), np.stack([validation, test])[:, :, function]),
            "other_curve": (("split", "step"), np.delete([validation, test], function, axis=2).mean(2)),
            "other_size_curve": (("split", "step"), np.abs(np.delete([validation, test], function, axis=2)).mean(2)),
        }
    )


def verdict(one: xr.Dataset) -> str:
    """What the test says of one function's heads, in words."""
    effect, others, p = float(one.effect), one.other_effect.dropna("other").values, float(one.p_corrected)
    if not int(one.n_removed):
        return f"none found: no set of heads costs it {WEIGHT:g} times what it costs the others"
    if not _own(effect, others):
        return f"none proven: {_signed(effect)} on new questions, the others ±{np.abs(others).mean():.2f}"
    if not p < SURE:
        doubt = f"not surely more than random heads (p = {p:.2f}, corrected)"
        return f"none proven: {_signed(effect)} on new questions, {doubt}"
    return PROVEN


def _own(effect: float, others: np.ndarray) -> bool:
    """Whether removal costs the function enough more than the others. Their changes count by size, as in `choose`."""
    return bool(-effect >= WEIGHT * np.abs(others).mean())


def _signed(effect: float) -> str:
    return f"{effect:+.2f}".replace("-", "−")
