"""Heads removed one by one: z set to zero, to its mean over the data, or to its value on another prompt."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headatlas.errors import BadArgument, check_choice
from headatlas.methods._effects import Piece
from headatlas.methods.ablate import KINDS
from headatlas.models.cost import Cost
from headatlas.models.hooks import hooked
from headatlas.models.lm import LM
from headatlas.models.log_probs import batches, log_probs
from headatlas.models.memory import tokens_at_once
from headatlas.models.single_heads import can_replay, changing_cost, effects_by_layer, texts_at_once
from headatlas.models.tokens import Bundle, TokenExample, make_bundle
from headatlas.progress import Progress, silent

log = logging.getLogger(__name__)


@torch.no_grad()
def ablate(
    lm: LM,
    questions: Sequence[TokenExample],
    kind: str = "zero",
    *,
    layers: Sequence[int] | None = None,
    replay: bool = True,
    tokens: int | None = None,
    label: str = "ablate",
    progress: Progress = silent,
) -> tuple[Tensor, Tensor]:
    """The effect of removing each head [example, layer, head], and log P(target) of the whole model [example].

    layers: remove heads of these only, which must have some; the others are NaN.
    replay: run only what lies above a head; falls back to full runs, and says so, where a model cannot be replayed.
    """
    check_choice("kind", kind, KINDS)
    if kind == "resample" and len(questions) < 2:
        raise BadArgument(
            "kind is 'resample', which needs at least 2 examples: a head's value is taken from another prompt"
        )
    budget = tokens_at_once(lm, tokens)
    bundles = [make_bundle([a]) for a in questions]
    if replay and not can_replay(lm, bundles[:2]):
        log.warning("%s cannot be replayed from the middle: every head costs a whole run", lm.name)
        replay = False
    mean = _means(lm, bundles, budget) if kind == "mean" else None
    partner = _partners(questions)
    effect = torch.full((len(questions), lm.n_layers, lm.n_heads), torch.nan)
    baseline = torch.empty(len(questions))
    for part in progress(texts_at_once(lm, bundles, budget), label):
        now = [bundles[i] for i in part]
        other = _z(lm, [bundles[partner[i]] for i in part]) if kind == "resample" else None

        def value(layer: int, part: list[int] = part, other: dict[int, Tensor] | None = other) -> Tensor:
            if other is not None:
                return _aligned(other[layer], [questions[partner[i]] for i in part], [questions[i] for i in part])
            return torch.zeros(lm.n_heads, 1) if mean is None else mean[layer]

        for layer, lost, clean in effects_by_layer(lm, now, layers, value=value, replay=replay, budget=budget):
            baseline[part], effect[part, layer] = clean, lost
    return effect, baseline


@dataclass(frozen=True)
class Ablation:
    """Effects as removal shows them."""

    kind: str

    def measure(self, lm: LM, piece: Piece, progress: Progress) -> np.ndarray:
        questions, layers, tokens = piece.questions(lm), piece.layers, piece.batch_tokens
        effect, _ = ablate(lm, questions, self.kind, layers=layers, tokens=tokens, label=piece.name, progress=progress)
        return effect[:, layers].numpy()

    def cost(self, lm: LM, piece: Piece) -> Cost:
        bundles, budget = [make_bundle([a]) for a in piece.questions(lm)], tokens_at_once(lm, piece.batch_tokens)
        return changing_cost(lm, bundles, piece.layers, budget)


def _z(lm: LM, bundles: Sequence[Bundle]) -> dict[int, Tensor]:
    """z of every layer with heads, [row, token, head, d_head], of texts padded on the right."""
    z: dict[int, Tensor] = {}
    with hooked(lm.model, lm.anatomy, z.__setitem__):
        log_probs(lm, bundles)
    return z


def _means(lm: LM, bundles: Sequence[Bundle], tokens: int) -> dict[int, Tensor]:
    """The mean z of every head over all tokens of the data, by layer: [head, d_head]."""
    total: dict[int, Tensor] = {}
    for _, chosen in batches(bundles, 1, tokens):
        for layer, z in _z(lm, [bundles[i] for i in chosen]).items():
            own = torch.arange(z.shape[1])[None] < torch.tensor([[bundles[i].rest] for i in chosen])
            total[layer] = total.get(layer, torch.zeros(())).to(z.device) + z[own.to(z.device)].double().sum(0)
    return {layer: s / sum(bundle.rest for bundle in bundles) for layer, s in total.items()}


def _partners(questions: Sequence[TokenExample]) -> list[int]:
    """For each example another one, of a length as near as can be."""
    order = sorted(range(len(questions)), key=lambda i: (len(questions[i]), i))
    partner = [0] * len(questions)
    for a, b in zip(order, [*order[1:], order[0]], strict=True):
        partner[a] = b
    return partner


def _aligned(z: Tensor, theirs: Sequence[TokenExample], own: Sequence[TokenExample]) -> Tensor:
    """z [row, token, …] of the partners, moved so that prompts end at the same token; gaps get the nearest."""
    width = max(len(a) for a in own) - 1
    index = torch.stack(
        [
            (torch.arange(width) + len(t.prompt) - len(o.prompt)).clamp(0, len(t) - 2)
            for t, o in zip(theirs, own, strict=True)
        ]
    ).to(z.device)
    return z[torch.arange(len(own), device=z.device)[:, None], index]
