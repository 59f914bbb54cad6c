"""The one experiment: measure something about a set of heads, and about random sets like it.

Every test is a call of `compare_with_random`: heads removed, switched off, moved between prompts, added as a vector,
edited, or switched on the live page. The arguments are what differs: the value, how a random counterpart is drawn,
which direction counts as extreme, and how many draws there may be.

Random heads come from the same layers, as many from each (`same_layers`): removal hurts more in early
layers, so draws from anywhere would bias the comparison. The tested heads may be drawn too: only then is p uniform
for a map that means nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
from scipy.stats import false_discovery_control

# Results are read without torch, and their outcomes need `top_heads`: what runs models is imported where it is used.
if TYPE_CHECKING:
    from torch import Tensor

    from headatlas.models.lm import LM
    from headatlas.models.tokens import TokenExample

Heads = list[tuple[int, int]]
"""Heads as (layer, head)."""
S = TypeVar("S")
"""What stands for a set of heads: `Heads`, gates, an edit."""
Value = Callable[[Sequence[S]], np.ndarray]
"""Sets → the value of each, [set] or [set, measure]; the test is about the first measures."""

DRAWS_PER_ROUND = 20
# Share of all heads that are the top heads of a map.
TOP_SHARE = 0.05
MAX_EXTREME = 5  # draws at least as extreme as the tested set; then the answer is plain
EXTREMITY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "lower": lambda effect: effect,
    "higher": lambda effect: -effect,
    "nearer zero": np.abs,
}
"""By direction, the number that is lower the more extreme an effect is."""


@dataclass(frozen=True)
class Control(Generic[S]):
    """What a control experiment has measured so far; a last axis for measures, if the value has several."""

    reference: np.ndarray  # [measure], of the unchanged model; 0 without a reference
    effect: np.ndarray  # [set, measure], less the reference
    random_effect: np.ndarray  # [set, draw, measure], less the reference; NaN where no more draws were needed
    n_drawn: np.ndarray  # [set], draws that were made
    p: np.ndarray  # [set], the largest of the tested measures
    p_of_measure: np.ndarray  # [set, tested measure]


def compare_with_random(
    value: Value[S],
    sets: Sequence[S],
    draw: Callable[[S], S],
    *,
    draws: int,
    direction: str = "lower",
    draws_per_round: int = DRAWS_PER_ROUND,
    stop_early: bool = True,
    reference: S | None = None,
    n_tested: int = 1,
) -> Control[S]:
    """Compare the value of each set with that of random sets.

    p is the share of random sets, the tested one included, whose effect is at least as extreme. Drawing for a set stops
    at `draws`, or once five draws are as extreme: that p is still valid (Besag and Clifford 1991). Of several measures
    all must be extreme: p is the largest of theirs.

    Args:
        value: measures sets. The first call has the reference, all sets and their first draws.
        sets: the sets of heads to test.
        draw: a random counterpart of a set.
        draws: the largest number of draws for each set.
        direction: 'lower', 'higher' or 'nearer zero'.
        draws_per_round: draws for each set in one call of `value`.
        stop_early: whether to stop a set's draws once its answer is plain.
        reference: a set whose value is subtracted from all others, such as the unchanged model.
        n_tested: how many of the measures are tested, the first ones.
    """
    *_, control = control_rounds(
        value,
        sets,
        draw,
        draws=draws,
        direction=direction,
        draws_per_round=draws_per_round,
        stop_early=stop_early,
        reference=reference,
        n_tested=n_tested,
    )
    return control


def control_rounds(
    value: Value[S],
    sets: Sequence[S],
    draw: Callable[[S], S],
    *,
    draws: int,
    direction: str = "lower",
    draws_per_round: int = DRAWS_PER_ROUND,
    stop_early: bool = True,
    reference: S | None = None,
    n_tested: int = 1,
) -> Iterator[Control[S]]:
    """Yield the state of `compare_with_random` after every round of draws."""
    unchanged = [] if reference is None else [reference]
    n = min(draws_per_round, draws)
    values = np.asarray(value([*unchanged, *sets, *(draw(s) for s in sets for _ in range(n))]))
    base = values[0] if unchanged else np.zeros(values.shape[1:])
    changes = values[len(unchanged) :] - base
    effect, drawn = changes[: len(sets)], changes[len(sets) :]
    random_effect = np.full((len(sets), draws, *base.shape), np.nan)
    p = np.ones((len(sets), n_tested))
    n_drawn = np.zeros(len(sets), int)
    undecided = list(range(len(sets)))
    done = 0
    while True:
        random_effect[undecided, done : done + n] = drawn.reshape(len(undecided), n, *base.shape)
        done += n
        n_drawn[undecided] = done
        extreme = {i: _as_extreme(effect[i], random_effect[i, :done], direction, n_tested) for i in undecided}
        for i in undecided:
            p[i] = [_p(of_measure, stop_early) for of_measure in extreme[i].T]
        yield Control(base, effect, random_effect.copy(), n_drawn.copy(), p.max(1), p.copy())
        # one measure that is not extreme decides the test
        undecided = [i for i in undecided if not stop_early or extreme[i].sum(0).max() < MAX_EXTREME]
        n = min(draws_per_round, draws - done)
        if not n or not undecided:
            return
        drawn = np.asarray(value([draw(sets[i]) for i in undecided for _ in range(n)])) - base


def _as_extreme(effect: np.ndarray, random_effect: np.ndarray, direction: str, n_tested: int) -> np.ndarray:
    """Return which draws are at least as extreme as the tested set: bool [draw, tested measure].

    A value that could not be measured counts as extreme, so that it never makes p small.

    Args:
        effect: of the tested set, [] or [measure].
        random_effect: [draw] or [draw, measure].
    """
    tested = np.reshape(effect, (1, -1))[:, :n_tested]
    drawn = np.reshape(random_effect, (len(random_effect), np.size(effect)))[:, :n_tested]
    less = EXTREMITY[direction](drawn) > EXTREMITY[direction](tested)
    return np.asarray(~less)


def _p(extreme: np.ndarray, stop_early: bool) -> float:
    """p from which draws, in their order, were at least as extreme."""
    places = np.flatnonzero(extreme)
    if stop_early and len(places) >= MAX_EXTREME:
        return MAX_EXTREME / float(places[MAX_EXTREME - 1] + 1)
    return (1 + len(places)) / (1 + len(extreme))


def cached_by_heads(value: Value[Heads]) -> Value[Heads]:
    """The same value, measured once for each set of heads.

    Measured again in other company, a set would be rounded differently, and a draw of the very heads that are tested
    would not count as one that is as extreme.
    """
    known: dict[tuple[tuple[int, int], ...], np.ndarray] = {}

    def cached(sets: Sequence[Heads]) -> np.ndarray:
        keys = [tuple(sorted(heads)) for heads in sets]
        new = [key for key in dict.fromkeys(keys) if key not in known]
        if new:
            known.update(zip(new, np.asarray(value([list(key) for key in new])), strict=True))
        return np.array([known[key] for key in keys])

    return cached


def same_layers(n_heads: int, generator: np.random.Generator) -> Callable[[Heads], Heads]:
    """How random counterparts are drawn: as many heads in every layer as the set has there, from all of that layer."""

    def draw(heads: Heads) -> Heads:
        counts = Counter(layer for layer, _ in heads)
        return [
            (layer, int(head))
            for layer in sorted(counts)
            for head in generator.choice(n_heads, counts[layer], replace=False)
        ]

    return draw


def top_heads(score: np.ndarray, n: int) -> Heads:
    """The n best heads of a map [layer, head], best first; NaN comes last."""
    order = np.argsort(-np.nan_to_num(score, nan=-np.inf), axis=None, kind="stable")[:n]
    return [(int(layer), int(head)) for layer, head in zip(*np.unravel_index(order, score.shape), strict=True)]


def correct_p(p: np.ndarray) -> np.ndarray:
    """Correct p-values for their number (Benjamini and Hochberg); NaN stays NaN."""
    corrected = np.array(p, dtype=float)
    tested = np.isfinite(corrected)
    if tested.any():
        corrected[tested] = false_discovery_control(corrected[tested])
    return corrected


# --- heads removed while a model answers


ANSWERS = ("log_p", "accuracy")  # the measures of `answers_without`; p is about the first


def gates_without(sets: Sequence[Heads], shape: tuple[int, int], scale: float = 0.0) -> Tensor:
    """Gates [set, layer, head] that multiply each set's heads by `scale` and leave the rest."""
    import torch

    gates = torch.ones(len(sets), *shape)
    for gate, heads in zip(gates, sets, strict=True):
        for layer, head in heads:
            gate[layer, head] = scale
    return gates


def answers_without(
    lm: LM, examples: Sequence[TokenExample], sets: Sequence[Heads], tokens: int | None = None
) -> np.ndarray:
    """Measure answers with each set of heads removed from the prompt's last token on.

    Returns [set, measure]: mean log P of an answer's tokens, and how often each is the likeliest (ANSWERS).
    """
    from headatlas.models.interventions import MEASURES, Change, answers_under

    changes = [Change(gate) for gate in gates_without(sets, (lm.n_layers, lm.n_heads))]
    values = answers_under(lm, examples, changes, tokens=tokens).double().mean(1).numpy()
    return np.asarray(values[:, [MEASURES.index("log_p"), MEASURES.index("first")]])
