"""Heads removed one by one: z set to zero, to its mean over the data, or to its value on another prompt."""

import logging
from collections.abc import Sequence

import torch
from torch import Tensor

from headatlas.errors import BadArgument, check_choice
from headatlas.methods._effects import held_out_questions
from headatlas.methods.ablate import KINDS
from headatlas.models.hooks import hooked
from headatlas.models.lm import LM
from headatlas.models.log_probs import batches, log_probs
from headatlas.models.memory import tokens_at_once
from headatlas.models.single_heads import can_replay, effects_by_layer, texts_at_once
from headatlas.models.tokens import Bundle, TokenExample, make_bundle
from headatlas.progress import Done, Progress, silent
from headatlas.tasks.prompts import Task

log = logging.getLogger(__name__)


@torch.no_grad()
def ablate_heads(
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
    """Remove heads one by one: the log P(target) that is lost without each, and that of the whole model.

    Args:
        layers: remove the heads of these layers only, which must have heads; those of others are NaN.
        replay: run only the layers above a head. A model that cannot be replayed is run whole, with a warning.

    Returns:
        contribution [example, layer, head] and log P(target) [example].
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
    contribution = torch.full((len(questions), lm.n_layers, lm.n_heads), torch.nan)
    baseline = torch.empty(len(questions))
    for rows in progress(texts_at_once(lm, bundles, budget), label):
        texts = [bundles[i] for i in rows]
        other = _z(lm, [bundles[partner[i]] for i in rows]) if kind == "resample" else None

        def value(layer: int, rows: list[int] = rows, other: dict[int, Tensor] | None = other) -> Tensor:
            if other is not None:
                return _aligned(other[layer], [questions[partner[i]] for i in rows], [questions[i] for i in rows])
            return torch.zeros(lm.n_heads, 1) if mean is None else mean[layer]

        for layer, lost, clean in effects_by_layer(lm, texts, layers, value=value, replay=replay, budget=budget):
            baseline[rows] = clean
            contribution[rows, layer] = lost
    return contribution, baseline


def compute_removals(
    lm: LM,
    *,
    part: str,
    task: Task,
    layers: Sequence[int],
    limit: int,
    batch_tokens: int | None,
    kind: str,
    done: Done,
    progress: Progress,
) -> None:
    """Compute a part: the contributions of the heads of some layers to one task."""
    questions = held_out_questions(lm, task, limit)
    contribution, _ = ablate_heads(
        lm, questions, kind, layers=layers, tokens=batch_tokens, label=part, progress=progress
    )
    done[part] = (contribution[:, layers].numpy(),)


def _z(lm: LM, bundles: Sequence[Bundle]) -> dict[int, Tensor]:
    """z of every layer with heads, [row, token, head, d_head], of texts padded on the right."""
    z: dict[int, Tensor] = {}
    with hooked(lm.model, lm.anatomy, z.__setitem__):
        log_probs(lm, bundles)
    return z


def _means(lm: LM, bundles: Sequence[Bundle], tokens: int) -> dict[int, Tensor]:
    """The mean z of every head over all tokens of the data, by layer: [head, d_head]."""
    total: dict[int, Tensor] = {}
    for _, rows in batches(bundles, 1, tokens):
        for layer, z in _z(lm, [bundles[i] for i in rows]).items():
            is_text = torch.arange(z.shape[1])[None] < torch.tensor([[bundles[i].rest] for i in rows])
            total[layer] = total.get(layer, torch.zeros(())).to(z.device) + z[is_text.to(z.device)].double().sum(0)
    n_tokens = sum(bundle.rest for bundle in bundles)
    return {layer: of_layer / n_tokens for layer, of_layer in total.items()}


def _partners(questions: Sequence[TokenExample]) -> list[int]:
    """For each example another one, of a length as near as can be."""
    order = sorted(range(len(questions)), key=lambda i: (len(questions[i]), i))
    partner = [0] * len(questions)
    for a, b in zip(order, [*order[1:], order[0]], strict=True):
        partner[a] = b
    return partner


def _aligned(z: Tensor, partners: Sequence[TokenExample], questions: Sequence[TokenExample]) -> Tensor:
    """Shift z [row, token, …] of the partners so that prompts end at the same token; gaps get the nearest value."""
    width = max(len(question) for question in questions) - 1
    index = torch.stack(
        [
            (torch.arange(width) + len(partner.prompt) - len(question.prompt)).clamp(0, len(partner) - 2)
            for partner, question in zip(partners, questions, strict=True)
        ]
    ).to(z.device)
    return z[torch.arange(len(questions), device=z.device)[:, None], index]
