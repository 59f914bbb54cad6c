"""Remove heads one by one: z is set to zero, to its mean over the data, or to its value on another prompt."""

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
from headatlas.progress import FinishedParts, Progress, silent
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
    """Remove heads one by one; return the log P(target) that is lost without each, and that of the whole model.

    Args:
        lm: the model.
        questions: the examples.
        kind: 'zero', 'mean' or 'resample'.
        layers: layers whose heads are removed, all of which must have heads; other layers are NaN.
        replay: whether to run only the layers above a head. Models that do not allow it are run whole, with a warning.
        tokens: tokens run through the model at once.
        label: label of the progress bar.
        progress: reports progress.

    Returns:
        contribution [example, layer, head] and log P(target) [example].
    """
    check_choice("kind", kind, KINDS)
    if kind == "resample" and len(questions) < 2:
        raise BadArgument(
            "kind is 'resample', which needs at least 2 examples: a head's value is taken from another prompt"
        )
    budget = tokens_at_once(lm, tokens)
    bundles = [make_bundle([question]) for question in questions]
    if replay and not can_replay(lm, bundles[:2]):
        log.warning("%s cannot be run from a middle layer: every head costs a run of the whole model", lm.name)
        replay = False
    mean = _means(lm, bundles, budget) if kind == "mean" else None
    partner = _partners(questions)
    contribution = torch.full((len(questions), lm.n_layers, lm.n_heads), torch.nan)
    baseline = torch.empty(len(questions))
    for rows in progress(texts_at_once(lm, bundles, budget), label):
        texts = [bundles[i] for i in rows]
        other = _z(lm, [bundles[partner[i]] for i in rows]) if kind == "resample" else None

        # the defaults bind this batch's values, which change with the next one
        def value(layer: int, rows: list[int] = rows, other: dict[int, Tensor] | None = other) -> Tensor:
            if other is not None:
                return _align_ends(other[layer], [questions[partner[i]] for i in rows], [questions[i] for i in rows])
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
    done: FinishedParts,
    progress: Progress,
) -> None:
    """Compute a part: the contributions of the heads of some layers to one task."""
    questions = held_out_questions(lm, task, limit)
    contribution, _ = ablate_heads(
        lm, questions, kind, layers=layers, tokens=batch_tokens, label=part, progress=progress
    )
    done[part] = (contribution[:, layers].numpy(),)


def _z(lm: LM, bundles: Sequence[Bundle]) -> dict[int, Tensor]:
    """Return z of every layer with heads [row, token, head, d_head], for texts padded on the right."""
    z: dict[int, Tensor] = {}
    with hooked(lm.model, lm.anatomy, z.__setitem__):
        log_probs(lm, bundles)
    return z


def _means(lm: LM, bundles: Sequence[Bundle], tokens: int) -> dict[int, Tensor]:
    """Return the mean z of every head over all tokens of the data, by layer: [head, d_head]."""
    sums: dict[int, Tensor] = {}
    for _, rows in batches(bundles, 1, tokens):
        for layer, z in _z(lm, [bundles[i] for i in rows]).items():
            is_text = torch.arange(z.shape[1])[None] < torch.tensor([[bundles[i].rest] for i in rows])
            # in float64, because it is a sum over many tokens
            sums[layer] = sums.get(layer, torch.zeros(())).to(z.device) + z[is_text.to(z.device)].double().sum(0)
    n_tokens = sum(bundle.rest for bundle in bundles)
    return {layer: z_sum / n_tokens for layer, z_sum in sums.items()}


def _partners(questions: Sequence[TokenExample]) -> list[int]:
    """Return for each example the index of another one, of a similar length."""
    order = sorted(range(len(questions)), key=lambda i: (len(questions[i]), i))
    partner = [0] * len(questions)
    for example, following in zip(order, [*order[1:], order[0]], strict=True):
        partner[example] = following
    return partner


def _align_ends(z: Tensor, partners: Sequence[TokenExample], questions: Sequence[TokenExample]) -> Tensor:
    """Shift z [row, token, …] of the partners so that prompts end at the same token; gaps get the nearest value."""
    width = max(len(question) for question in questions) - 1
    index = torch.stack(
        [
            (torch.arange(width) + len(partner.prompt) - len(question.prompt)).clamp(0, len(partner) - 2)
            for partner, question in zip(partners, questions, strict=True)
        ]
    ).to(z.device)
    return z[torch.arange(len(questions), device=z.device)[:, None], index]
