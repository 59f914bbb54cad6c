"""Removal curves: take away a map's top heads, one step at a time, and see what breaks.

Random heads are drawn with the same number per layer as the tested ones: removal hurts more in early layers, so draws from
anywhere would flatter or spoil the comparison.
"""

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
import xarray as xr

from headatlas.models.lm import LM
from headatlas.progress import Progress, silent

Heads = list[tuple[int, int]]

STEPS = (1, 2, 4, 8, 16, 32)
ABLE = 0.2  # a relation the whole model gets right less often than this cannot be broken by removing heads


@dataclass(frozen=True)
class Questions:
    """Prompts (token ids) and the one token that should follow each."""

    prompts: list[list[int]]
    targets: list[int]


def matched_random(
    heads: Sequence[tuple[int, int]], layers: Sequence[int], n_heads: int, generator: np.random.Generator
) -> list[tuple[int, int]]:
    """As many other heads, in the same layers; where one has too few left, from the nearest of `layers`, those with heads."""
    free = {(layer, h) for layer in layers for h in range(n_heads)} - set(heads)
    drawn = []
    for layer, _ in sorted(heads):
        if not free:
            break
        nearest = min(abs(at - layer) for at, _ in free)
        choices = sorted(head for head in free if abs(head[0] - layer) == nearest)
        drawn.append(choices[generator.integers(len(choices))])
        free.remove(drawn[-1])
    return drawn


def top_heads(score: np.ndarray, n: int) -> Heads:
    """The n best heads of a map [layer, head], best first; NaN comes last."""
    order = np.argsort(-np.nan_to_num(score, nan=-np.inf), axis=None, kind="stable")[:n]
    return [(int(a), int(b)) for a, b in zip(*np.unravel_index(order, score.shape), strict=True)]


def draw_like(heads: Heads, n_heads: int, generator: np.random.Generator) -> Heads:
    """As many heads in every layer, drawn from all of that layer: the given ones among them, so that p-values are true."""
    counts = Counter(layer for layer, _ in heads)
    return [
        (layer, int(h)) for layer in sorted(counts) for h in generator.choice(n_heads, counts[layer], replace=False)
    ]


@torch.no_grad()
def answers(
    lm: LM, questions: Questions, removed: Sequence[Sequence[tuple[int, int]]], batch_size: int = 64
) -> np.ndarray:
    """[removal, 2]: accuracy and mean log P(target) with each set of heads removed at the last position.

    What comes before the last token is the same under every removal, so it is run once and kept as a KV cache.
    """
    gates = torch.ones(len(removed), lm.n_layers, lm.n_heads)
    for gate, heads in zip(gates, removed, strict=True):
        for layer, head in heads:
            gate[layer, head] = 0
    right, log_p = np.zeros((2, len(removed), len(questions.prompts)))
    order = sorted(range(len(questions.prompts)), key=lambda q: len(questions.prompts[q]))
    for asked in [order[a : a + batch_size] for a in range(0, len(order), batch_size)]:
        inputs = lm.batch([questions.prompts[q] for q in asked], side="left")
        target = torch.tensor([questions.targets[q] for q in asked], device=lm.device)
        before = {name: tensor[:, :-1] for name, tensor in inputs.items()}
        last = {name: tensor if name == "attention_mask" else tensor[:, -1:] for name, tensor in inputs.items()}
        several = before["input_ids"].shape[1] > 0
        past = lm.model.base_model(**before, use_cache=True).past_key_values if several else None
        for r, gate in enumerate(gates):
            with lm.gated(gate):
                logits = lm.model(**last, past_key_values=copy.deepcopy(past), use_cache=several).logits[:, -1].float()
            right[r, asked] = (logits.argmax(-1) == target).cpu().numpy()
            log_p[r, asked] = logits.log_softmax(-1).gather(1, target[:, None])[:, 0].cpu().numpy()
    return np.stack([right.mean(1), log_p.mean(1)], axis=1)


def removal_curves(
    lm: LM,
    questions: dict[str, Questions],
    ranking: dict[str, list[tuple[int, int]]],
    *,
    draws: int = 5,
    seed: int = 0,
    progress: Progress = silent,
) -> xr.Dataset:
    """For each relation the model can answer: its top heads removed, layer-matched random ones, and another relation's loss.

    ranking: each relation's heads, best first. The other relation is the next one, in order, that the model can answer.
    """
    names = list(questions)
    whole = {name: answers(lm, questions[name], [()])[0] for name in progress(names, "what the model can answer")}
    able = [name for name in names if whole[name][0] >= ABLE and ranking[name]]
    steps = [0, *STEPS]
    layers = [i for i in range(lm.n_layers) if i not in lm.layers_without_heads]
    shape = (len(names), len(steps), 2)
    top, other = np.full(shape, np.nan), np.full(shape, np.nan)
    random = np.full((draws, *shape), np.nan)
    for name in progress(able, "removal curves"):
        r = names.index(name)
        generator = np.random.default_rng([seed, r])
        sets = [ranking[name][:m] for m in steps if m <= len(ranking[name])]
        top[r, : len(sets)] = answers(lm, questions[name], sets)
        drawn = [[matched_random(s, layers, lm.n_heads, generator) for s in sets] for _ in range(draws)]
        random[:, r, : len(sets)] = answers(lm, questions[name], list(chain(*drawn))).reshape(draws, len(sets), 2)
        neighbour = able[(able.index(name) + 1) % len(able)]
        if neighbour != name:
            other[r, : len(sets)] = answers(lm, questions[neighbour], sets)
    dims = ("relation", "removed", "measure")
    return xr.Dataset(
        {
            "removal_top": (dims, top),
            "removal_other": (dims, other),
            "removal_random": (("draw", *dims), random),
            "whole_model": (("relation", "measure"), np.stack([whole[n] for n in names])),
            "questions": ("relation", [len(questions[n].prompts) for n in names]),
        },
        coords={"relation": names, "removed": steps, "measure": ["accuracy", "log_p"], "draw": range(draws)},
    )
