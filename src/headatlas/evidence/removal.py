"""The one experiment: remove these heads, compare with random heads of the same layers, say p.

Every method's proof is a call of it, and every file has its names: `baseline`, the quality of the model as it is;
`effect`, how it changes without the heads (below 0 is worse); `random_effect`, the same without random heads, draw by
draw; `p`, how often random heads lower it as much; `p_corrected`, for the number of tests; `n_removed`, how many heads.

As many random heads are drawn from each layer as are tested in it. Removal hurts more in early layers, so draws from
anywhere would bias the comparison. The tested heads may be drawn too: only then is p uniform for a map that means
nothing.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import false_discovery_control
from torch import Tensor

from headatlas.models.answers import MEASURES, Change, answers_under
from headatlas.models.cost import Cost, answering
from headatlas.models.lm import LM
from headatlas.models.targets import TokenExample

Heads = list[tuple[int, int]]
Quality = Callable[[Sequence[Heads]], np.ndarray]
"""Sets of heads → how well the model does with each set removed, [set] or [set, measure]; more is better."""

ANSWERS = ("log_p", "accuracy")  # what `answers_without` tells; p is about the first
AT_ONCE, ENOUGH = 10, 5  # draws of random heads at a time, and how many must lose as much to stop early
AT_LEAST = 20  # draws where their spread is shown, too
DRAWN = 0.6  # of the draws that may be, how many are made, about: the others are not needed


@dataclass(frozen=True)
class Removal:
    """What removing sets of heads did; a trailing axis, if quality has several measures. p is of the first measure."""

    baseline: np.ndarray  # [measure]
    effect: np.ndarray  # [set, measure]
    random_effect: np.ndarray  # [set, draw, measure]; NaN where no more draws were needed
    p: np.ndarray  # [set]


def remove(
    quality: Quality,
    sets: Sequence[Heads],
    n_heads: int,
    *,
    draws: int,
    generator: np.random.Generator,
    at_once: int = AT_LEAST,
) -> Removal:
    """Each set of heads removed, and random sets like it, `at_once` a round, until every p-value is plain.

    A set gets no more draws once five of them lower quality as much (`p_sequential`), and at most `draws`. A round is
    one call of `quality`; the first is about the sets, too.
    """
    quality = measured_once(quality)
    values = quality([[], *sets, *random_sets(sets, min(at_once, draws), n_heads, generator)])
    baseline, changes = values[0], values[1:] - values[0]
    effect, drawn = changes[: len(sets)], changes[len(sets) :]
    random_effect = np.full((len(sets), draws, *baseline.shape), np.nan)
    of_sets, of_random = (effect, random_effect) if baseline.ndim == 0 else (effect[:, 0], random_effect[:, :, 0])
    undecided, made = list(range(len(sets))), 0
    while undecided:
        n = len(drawn) // len(undecided)
        random_effect[undecided, made : made + n] = drawn.reshape(len(undecided), n, *baseline.shape)
        made += n
        undecided = [i for i in undecided if made < draws and not _enough(of_sets[i], of_random[i, :made])]
        if undecided:
            random = random_sets([sets[i] for i in undecided], min(at_once, draws - made), n_heads, generator)
            drawn = quality(random) - baseline
    return Removal(baseline, effect, random_effect, np.array([_p(*of) for of in zip(of_sets, of_random, strict=True)]))


def removal_cost(
    lm: LM, examples: Sequence[TokenExample], sets: int, draws: int, tokens: int | None = None, everywhere: bool = False
) -> Cost:
    """Of `remove` with so many sets, if quality is of answers to these."""
    changes, rounds = 1 + sets * (1 + usual(draws)), max(1.0, draws / AT_LEAST)
    return answering(lm, examples, changes, rounds=rounds, everywhere=everywhere, tokens=tokens)


def usual(draws: int) -> float:
    """How many draws are made, about, if there may be so many."""
    return min(draws, max(AT_LEAST, DRAWN * draws))


def measured_once(quality: Quality) -> Quality:
    """The same, but heads that come again have the value they had. Measured anew, in other company, they would be
    rounded otherwise, and a draw of the very heads that are tested would not count as one that costs as much."""
    known: dict[tuple[tuple[int, int], ...], np.ndarray] = {}

    def measure(sets: Sequence[Heads]) -> np.ndarray:
        ordered = [tuple(sorted(heads)) for heads in sets]
        new = [heads for heads in dict.fromkeys(ordered) if heads not in known]
        if new:
            known.update(zip(new, np.asarray(quality([list(heads) for heads in new])), strict=True))
        return np.array([known[heads] for heads in ordered])

    return measure


def random_sets(sets: Sequence[Heads], n: int, n_heads: int, generator: np.random.Generator) -> list[Heads]:
    """For each set, n random ones of the same layers."""
    return [draw_like(heads, n_heads, generator) for heads in sets for _ in range(n)]


def p_value(effect: float, random_effect: np.ndarray) -> float:
    """How often random heads lower quality at least as much; NaN where a value was not measured."""
    if not np.isfinite(effect) or not np.isfinite(random_effect).all():
        return float("nan")
    return float((1 + (random_effect <= effect).sum()) / (1 + len(random_effect)))


def p_sequential(
    effect: float, draw: Callable[[int], np.ndarray], draws: int, at_once: int = AT_ONCE
) -> tuple[np.ndarray, float]:
    """The effects of removing random heads, draw by draw, and the p-value. draw(n): the effects of n more of them.

    Drawing ends early when five draws lower quality as much: the p-value is still valid (Besag and Clifford 1991).
    """
    random_effect = np.empty(0)
    while len(random_effect) < draws and not _enough(effect, random_effect):
        random_effect = np.append(random_effect, draw(min(at_once, draws - len(random_effect))))
    return random_effect, _p(effect, random_effect)


def _as_much(effect: float, random_effect: np.ndarray) -> np.ndarray:
    """Which draws lower quality at least as much; what could not be measured counts as well."""
    return np.flatnonzero(~(random_effect > effect) | (not np.isfinite(effect)))


def _enough(effect: float, random_effect: np.ndarray) -> bool:
    return len(_as_much(effect, random_effect)) >= ENOUGH


def _p(effect: float, random_effect: np.ndarray) -> float:
    as_much = _as_much(effect, random_effect)
    if len(as_much) >= ENOUGH:
        return ENOUGH / float(as_much[ENOUGH - 1] + 1)
    return (1 + len(as_much)) / (1 + len(random_effect))


def p_corrected(p: np.ndarray) -> np.ndarray:
    """p-values corrected for their number (Benjamini and Hochberg); NaN stays NaN."""
    corrected = np.array(p, dtype=float)
    tested = np.isfinite(corrected)
    if tested.any():
        corrected[tested] = false_discovery_control(corrected[tested])
    return corrected


def top_heads(score: np.ndarray, n: int) -> Heads:
    """The n best heads of a map [layer, head], best first; NaN comes last."""
    order = np.argsort(-np.nan_to_num(score, nan=-np.inf), axis=None, kind="stable")[:n]
    return [(int(a), int(b)) for a, b in zip(*np.unravel_index(order, score.shape), strict=True)]


def draw_like(heads: Heads, n_heads: int, generator: np.random.Generator) -> Heads:
    """As many heads in every layer, drawn from all of that layer."""
    counts = Counter(layer for layer, _ in heads)
    return [
        (layer, int(h)) for layer in sorted(counts) for h in generator.choice(n_heads, counts[layer], replace=False)
    ]


def gates_without(sets: Sequence[Heads], shape: tuple[int, int], scale: float = 0.0) -> Tensor:
    """Gates [set, layer, head] that multiply each set's heads by `scale` and leave the rest."""
    gates = torch.ones(len(sets), *shape)
    for gate, heads in zip(gates, sets, strict=True):
        for layer, head in heads:
            gate[layer, head] = scale
    return gates


def answers_without(
    lm: LM, examples: Sequence[TokenExample], sets: Sequence[Heads], tokens: int | None = None
) -> np.ndarray:
    """[set, measure]: log P of an answer's tokens and how often each is the likeliest (ANSWERS), on average, with each
    set of heads removed from the prompt's last token on."""
    changes = [Change(gate) for gate in gates_without(sets, (lm.n_layers, lm.n_heads))]
    each = answers_under(lm, examples, changes, tokens=tokens).double().mean(1).numpy()
    return np.asarray(each[:, [MEASURES.index("log_p"), MEASURES.index("first")]])
