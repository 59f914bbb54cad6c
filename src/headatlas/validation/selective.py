"""Heads of one function, put to the test: removed for good, what does that do to the function, and what to the others?

Everything is the change of mean log P per answer token; below 0 is worse. A map is *selective* for a function where removing its
heads costs the function much and the others little. How many of a map's heads are removed is chosen on validation questions, by
the trade-off the heads were fitted to; what is reported is measured on test questions that nothing was fitted or chosen with.
Random heads come from the same layers, as many from each: removal hurts more in early layers than in late ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headatlas.methods.dissociate import answered
from headatlas.models.lm import LM
from headatlas.progress import Progress, silent
from headatlas.tasks.labelled import Labelled
from headatlas.validation.evidence import corrected
from headatlas.validation.removal import Heads, draw_like, top_heads

WEIGHT = 3.0  # a function's own loss must be so many times the others'
SURE = 0.05  # p-values below this count
PROVEN = "heads of its own"


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


def others(effect: np.ndarray, function: int) -> np.ndarray:
    """Mean change of all functions but one: [set]."""
    return np.delete(effect, function, axis=1).mean(1)


def trade_off(own: np.ndarray, other: np.ndarray) -> np.ndarray:
    """What a set of heads is worth: what the function loses, less WEIGHT times what the others lose or gain."""
    return -own - WEIGHT * np.abs(other)


def choose(effect: np.ndarray, function: int) -> int:
    """Which of the sets is worth most; −1 where none is worth anything. effect: [set, function], on validation questions."""
    worth = trade_off(effect[:, function], others(effect, function))
    best = int(np.argmax(worth)) if len(worth) else -1
    return best if best >= 0 and worth[best] > 0 else -1


def put_to_the_test(
    trial: Trial,
    scores: np.ndarray,
    steps: Sequence[int],
    *,
    draws: int,
    at_least: float = 0.0,
    seed: int = 0,
    label: str = "removing heads",
    progress: Progress = silent,
) -> xr.Dataset:
    """scores [function, layer, head]: the number of heads of each function chosen on validation, and its effects on test.

    at_least: heads below this score are not candidates.
    """
    names, shape = list(trial.data.names), scores.shape[1:]
    found = []
    for function in progress(range(len(names)), label):
        score = scores[function]
        there = int((np.nan_to_num(score, nan=-np.inf) > at_least).sum())
        tried = [m for m in steps if m <= there] or ([there] if there else [])
        sets = [top_heads(score, m) for m in tried]
        curve = np.full((len(steps), len(names)), np.nan)
        if sets:
            curve[: len(sets)] = trial.effects("validation", sets)
        best = choose(curve[: len(sets)], function)
        heads = sets[best] if best >= 0 else []
        found.append(_tested(trial, function, heads, curve, draws, np.random.default_rng([seed, function]), shape))
    result = xr.concat(found, "function").assign_coords(
        function=names, other=names, removed=list(steps), draw=range(draws)
    )
    p = result.p.values.copy()
    tested = np.isfinite(p)
    p[tested] = corrected(p[tested])
    result = result.assign(p_corrected=("function", p))
    said = [verdict(result.isel(function=f)) for f in range(len(names))]
    return result.assign(verdict=("function", said), proven=("function", [v == PROVEN for v in said]))


def _tested(
    trial: Trial,
    function: int,
    heads: Heads,
    curve: np.ndarray,
    draws: int,
    generator: np.random.Generator,
    shape: tuple[int, ...],
) -> xr.Dataset:
    n = len(trial.data.names)
    selected = np.zeros(shape, dtype=bool)
    effect, by_chance, p = np.full(n, np.nan), np.full(draws, np.nan), np.nan
    if heads:
        selected[tuple(np.array(heads).T)] = True
        effect = trial.effects("test", [heads])[0]
        random = [draw_like(heads, shape[1], generator) for _ in range(draws)]
        by_chance = trial.changes("test", random, function).mean(1)
        p = (1 + (by_chance <= effect[function]).sum()) / (1 + draws)
    own, rest = effect[function], effect.copy()
    rest[function] = np.nan
    return xr.Dataset(
        {
            "selected": (("layer", "head"), selected),
            "heads": len(heads),
            "own_effect": own,
            "other_effect": ("other", rest),
            "random_effect": ("draw", by_chance),
            "p": p,
            "own_curve": ("removed", curve[:, function]),
            "other_curve": ("removed", np.delete(curve, function, axis=1).mean(1)),
        }
    )


def verdict(one: xr.Dataset) -> str:
    """What the test says of one function's heads, in words."""
    own, other, p = float(one.own_effect), float(one.other_effect.mean()), float(one.p_corrected)
    if not int(one.heads):
        return f"none found: no set of heads costs it {WEIGHT:g} times what it costs the others"
    if not -own >= WEIGHT * abs(other):
        return f"none proven: {_said(own)} on new questions, the others {_said(other)}"
    if not p < SURE:
        return f"none proven: {_said(own)} on new questions, but random heads do as much (p = {p:.2f})"
    return PROVEN


def _said(effect: float) -> str:
    return f"{effect:+.2f}".replace("-", "−")
