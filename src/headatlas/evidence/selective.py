"""Heads of one function, put to the test: removed for good, what does that do to the function, and what to the others?

Everything is the change of mean log P per answer token; below 0 is worse. A map is *selective* for a function where removing its
heads costs the function much and the others little. How many of a map's heads are removed is chosen on validation questions, by
the trade-off the heads were fitted to; what is reported is measured on test questions that nothing was fitted or chosen with.
Random heads come from the same layers, as many from each: removal hurts more in early layers than in late ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headatlas.methods.dissociate.fits import answered
from headatlas.models.lm import LM
from headatlas.progress import Done, Progress, silent
from headatlas.tasks.labelled import Labelled
from headatlas.evidence.evidence import against_chance, corrected
from headatlas.evidence.removal import Heads, draw_like, top_heads

WEIGHT = 3.0  # a function's own loss must be so many times the others'
SURE = 0.05  # p-values below this count
PROVEN = "heads of its own"
AT_LEAST = 20  # draws of random heads


@dataclass(frozen=True)
class Trial:
    """What removing sets of heads is measured with."""

    lm: LM
    data: Labelled
    whole: Tensor  # mean log P per answer token of the whole model [example]
    tokens: int | None = None

    def changes(self, split: str, sets: Sequence[Heads], function: int | None = None) -> np.ndarray:
        """How every example of a split (and function) fares with each set of heads removed: [set, example]."""
        examples = self.data.of(split, function)
        gates = torch.ones(len(sets), self.lm.n_layers, self.lm.n_heads)
        for gate, heads in zip(gates, sets, strict=True):
            for layer, head in heads:
                gate[layer, head] = 0
        log_p = answered(self.lm, self.data, examples, gates, self.tokens)
        return (log_p - self.whole[examples]).double().numpy()

    def effects(self, split: str, sets: Sequence[Heads]) -> np.ndarray:
        """Mean change of each function: [set, function]."""
        change, function = self.changes(split, sets), self.data.function[self.data.of(split)]
        return np.stack([change[:, function == f].mean(1) for f in range(len(self.data.names))], axis=1)


def choose(effect: np.ndarray, function: int, always: bool = False) -> int:
    """Which of the sets is worth most; −1 where none is worth anything, unless one is `always` wanted. effect: [set, function],
    on validation questions."""
    if not len(effect):
        return -1
    # changes of the others by their size: one function's gain does not make up for another's loss
    worth = -effect[:, function] - WEIGHT * np.abs(np.delete(effect, function, axis=1)).mean(1)
    best = int(np.argmax(worth))
    return best if always or worth[best] > 0 else -1


def put_to_the_test(
    trial: Trial,
    scores: np.ndarray,
    steps: Sequence[int],
    *,
    draws: int,
    always: bool = False,
    seed: int = 0,
    done: Done | None = None,
    label: str = "removing heads",
    progress: Progress = silent,
) -> xr.Dataset:
    """scores [function, layer, head]: the number of heads of each function chosen on validation, and its effects on test.

    Only heads above 0 are candidates. always: choose the best number of heads even where it is worth nothing. Random heads are
    drawn up to `draws` times, and at least 20 times; what was not drawn is NaN. Finished functions are put into `done`.
    """
    done = {} if done is None else done
    names = list(trial.data.names)
    found = []
    options: dict[str, Any] = {"draws": draws, "always": always, "seed": seed, "done": done, "label": label}
    for function in progress(range(len(names)), label):
        parts = try_function(trial, function, scores[function], steps, **options)
        found.append(_labelled(function, scores.shape[1:], steps, *parts))
    coords = {"function": names, "other": names, "draw": range(draws)}
    coords |= {"split": ["validation", "test"], "removed": list(steps)}
    result = xr.concat(found, "function").assign_coords(coords)
    p = result.p.values.copy()
    tested = np.isfinite(p)
    p[tested] = corrected(p[tested])
    result = result.assign(p_corrected=("function", p))
    said = [verdict(result.isel(function=f)) for f in range(len(names))]
    return result.assign(verdict=("function", said), proven=("function", [v == PROVEN for v in said]))


def try_function(
    trial: Trial,
    function: int,
    score: np.ndarray,
    steps: Sequence[int],
    *,
    draws: int,
    done: Done,
    always: bool = False,
    seed: int = 0,
    label: str = "removing heads",
) -> tuple[np.ndarray, ...]:
    """What `put_to_the_test` needs of one function, left in `done`: the heads chosen [head, 2], changes under random heads on
    test [draw] and their p, changes on validation and on test [step, function]. score: [layer, head]."""
    name = f"{label}: {trial.data.names[function]}"
    if name in done:
        return done[name]
    generator = np.random.default_rng([seed, function])
    there = int((np.nan_to_num(score, nan=-np.inf) > 0).sum())
    sets = [top_heads(score, m) for m in steps if m <= there]
    curves = np.full((2, len(steps), len(trial.data.names)), np.nan)
    if sets:
        curves[0, : len(sets)] = trial.effects("validation", sets)
        curves[1, : len(sets)] = trial.effects("test", sets)
    best = choose(curves[0, : len(sets)], function, always)
    heads = sets[best] if best >= 0 else []
    by_chance, p = np.full(draws, np.nan), np.nan
    if heads:

        def lost(some: int) -> np.ndarray:
            random = [draw_like(heads, score.shape[1], generator) for _ in range(some)]
            return -trial.changes("test", random, function).mean(1)

        found, p = against_chance(-curves[1, best, function], lost, draws, AT_LEAST)
        by_chance[: len(found)] = -found
    done[name] = np.array(heads, int).reshape(-1, 2), by_chance, np.array(p), *curves
    return done[name]


def _labelled(
    function: int,
    shape: tuple[int, ...],
    steps: Sequence[int],
    heads: np.ndarray,
    by_chance: np.ndarray,
    p: np.ndarray,
    validation: np.ndarray,
    test: np.ndarray,
) -> xr.Dataset:
    selected = np.zeros(shape, dtype=bool)
    selected[tuple(heads.T)] = True
    rest = test[list(steps).index(len(heads))].copy() if len(heads) else np.full(test.shape[1], np.nan)
    own, rest[function] = rest[function], np.nan
    return xr.Dataset(
        {
            "selected": (("layer", "head"), selected),
            "heads": len(heads),
            "own_effect": own,
            "other_effect": ("other", rest),
            "random_effect": ("draw", by_chance),
            "p": p.item(),
            "own_curve": (("split", "removed"), np.stack([validation, test])[:, :, function]),
            "other_curve": (("split", "removed"), np.delete([validation, test], function, axis=2).mean(2)),
        }
    )


def verdict(one: xr.Dataset) -> str:
    """What the test says of one function's heads, in words."""
    own, other, p = float(one.own_effect), float(abs(one.other_effect).mean()), float(one.p_corrected)
    if not int(one.heads):
        return f"none found: no set of heads costs it {WEIGHT:g} times what it costs the others"
    if not -own >= WEIGHT * other:
        return f"none proven: {_said(own)} on new questions, the others ±{other:.2f}"
    if not p < SURE:
        return f"none proven: {_said(own)} on new questions, not surely more than random heads (p = {p:.2f}, corrected)"
    return PROVEN


def _said(effect: float) -> str:
    return f"{effect:+.2f}".replace("-", "−")
