"""How far the next-token distribution moves without each head, by replay (`influence` says what for)."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headatlas.errors import BadArgument
from headatlas.methods._effects import halves
from headatlas.models.cost import Cost
from headatlas.models.interventions import LOGITS
from headatlas.models.lm import LM, Text
from headatlas.models.memory import tokens_at_once
from headatlas.models.single_heads import can_replay, changing_cost, logits_by_head, texts_at_once
from headatlas.models.tokens import Bundle, TokenExample, make_bundle, without_end
from headatlas.progress import Done, Progress
from headatlas.tasks.chat import chat_text, chats

log = logging.getLogger(__name__)

COMPARED = 3e-4  # seconds of the host to compare a text's distributions with those of the whole model


@dataclass(frozen=True)
class Piece:
    """A part of the work: one set of texts, some layers."""

    name: str
    texts: tuple[tuple[int, ...], ...]
    layers: tuple[int, ...]
    positions: str
    batch_tokens: int | None

    def bundles(self) -> list[Bundle]:
        """Texts as prompts, with a target token, whichever, where a distribution is wanted."""
        first = [len(ids) if self.positions == "last" else 1 for ids in self.texts]
        return [make_bundle([TokenExample(t[:n], (*t[n:], 0))]) for t, n in zip(self.texts, first, strict=True)]


def encode(lm: LM, name: str, texts: Sequence[Text], template: bool) -> tuple[tuple[int, ...], ...]:
    """Token ids of a set's texts, without what a tokenizer puts at the end of a text."""
    try:
        return tuple(tuple(ids) for ids in lm.encode([_ids(lm, text, template) for text in texts]))
    except BadArgument as e:
        raise BadArgument(f"set {name!r}: {e}") from e


def _ids(lm: LM, text: Text, template: bool) -> Sequence[int]:
    if not isinstance(text, str):
        return text
    if chats(lm, template):
        return lm.tokenizer(chat_text(lm, text), add_special_tokens=False)["input_ids"]
    return without_end(lm.tokenizer, text)


@torch.no_grad()
def divergence(whole: Tensor, changed: Tensor) -> Tensor:
    """KL(whole ‖ changed) in nats, from logits [..., vocabulary]. In float64: small differences of large numbers."""
    log_p, log_q = (logits.double().log_softmax(-1) for logits in (whole, changed))
    return (log_p.exp() * (log_p - log_q)).sum(-1).clamp(min=0)


@torch.no_grad()
def influences(
    lm: LM, piece: Piece, *, replay: bool = True, progress: Progress
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """KL without each head of the piece's layers, and how often the likeliest token changes: [text, layer, head], means
    over a text's positions. And the entropy of the whole model's distribution [text]."""
    bundles, budget = piece.bundles(), _budget(lm, piece)
    if replay and not can_replay(lm, bundles[:2]):
        log.warning("%s cannot be replayed from the middle: every head costs a whole run", lm.name)
        replay = False
    shape = (len(bundles), len(piece.layers), lm.n_heads)
    kl, changed, entropy = np.empty(shape), np.empty(shape), np.empty(len(bundles))
    for chosen in progress(texts_at_once(lm, bundles, budget), piece.name):
        lengths = [len(bundles[i].examples[0].target) for i in chosen]

        def means(values: Tensor, lengths: list[int] = lengths) -> list[float]:
            """Of each text, over its positions."""
            return [float(part.double().mean()) for part in values.split(lengths)]

        now = [bundles[i] for i in chosen]
        for layer, heads, logits, whole in logits_by_head(lm, now, piece.layers, replay=replay, budget=budget):
            at = piece.layers.index(layer)
            for head, without in zip(heads, logits, strict=True):
                kl[chosen, at, head] = means(divergence(whole, without))
                changed[chosen, at, head] = means(without.argmax(-1) != whole.argmax(-1))
        log_p = whole.double().log_softmax(-1)
        entropy[chosen] = means(-(log_p.exp() * log_p).sum(-1))
    return kl, changed, entropy


def _budget(lm: LM, piece: Piece) -> int:
    """Tokens at once: fewer where there are logits at every one, which take memory."""
    return max(1, tokens_at_once(lm, piece.batch_tokens) // (LOGITS if piece.positions == "all" else 1))


def measure(lm: LM, piece: Piece, *, done: Done, progress: Progress) -> None:
    done[piece.name] = influences(lm, piece, progress=progress)


def piece_cost(lm: LM, piece: Piece) -> Cost:
    bundles, heads = piece.bundles(), len(piece.layers) * lm.n_heads
    logits = 2.0 * lm.d_model * lm.model.get_input_embeddings().num_embeddings
    targets = sum(len(bundle.examples[0].target) for bundle in bundles)
    # each is compared with the whole model, text by text
    compared = Cost(operations=heads * targets * logits, seconds=COMPARED * heads * len(bundles))
    return changing_cost(lm, bundles, piece.layers, _budget(lm, piece)) + compared


def combine(lm: LM, sets: Mapping[str, Sequence[Piece]], *, done: Done, progress: Progress) -> xr.Dataset:
    """sets: the pieces of each set of texts."""
    results = []
    for pieces in sets.values():
        shape = (len(pieces[0].texts), lm.n_layers, lm.n_heads)
        kl, changed = np.full(shape, np.nan, np.float32), np.full(shape, np.nan, np.float32)
        for piece in pieces:
            kl[:, piece.layers], changed[:, piece.layers], entropy = done[piece.name]
        results.append(
            xr.Dataset(
                {
                    "kl": (("layer", "head"), kl.mean(0)),
                    "kl_half": (("half", "layer", "head"), halves(kl)),
                    "changed": (("layer", "head"), changed.mean(0)),
                    "entropy": entropy.mean(),
                    "texts": len(kl),
                }
            )
        )
    return xr.concat(results, "text_set").assign_coords(
        text_set=list(sets), half=["first", "second"], layer=range(lm.n_layers), head=range(lm.n_heads)
    )
