"""Measure how far the next-token distribution moves without each head, by replay from the head's layer."""

import logging
from collections.abc import Mapping, Sequence

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headatlas.errors import BadArgument
from headatlas.models.interventions import TOKENS_PER_LOGITS
from headatlas.models.lm import LM, Text
from headatlas.models.memory import tokens_at_once
from headatlas.models.single_heads import can_replay, logits_by_head, texts_at_once
from headatlas.models.tokens import Bundle, TokenExample, make_bundle, without_end
from headatlas.progress import FinishedParts, Progress, silent
from headatlas.tasks.chat import chat_text, chats

log = logging.getLogger(__name__)

TokenIds = tuple[int, ...]


def part_name(text_set: str, layers: Sequence[int]) -> str:
    """Name the part that measures a set of texts on some layers."""
    return f"{text_set}: layers {layers[0]} to {layers[-1]}"


def encode(lm: LM, name: str, texts: Sequence[Text], template: bool) -> tuple[TokenIds, ...]:
    """Return the token ids of a set's texts, without the tokens that a tokenizer adds at the end."""
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
def divergence(clean: Tensor, changed: Tensor) -> Tensor:
    """Return KL(clean ‖ changed) in nats, from logits [..., vocabulary]."""
    # in float64, because it is a small difference of large numbers
    log_p, log_q = (logits.double().log_softmax(-1) for logits in (clean, changed))
    return (log_p.exp() * (log_p - log_q)).sum(-1).clamp(min=0)


def measure_layers(
    lm: LM,
    *,
    part: str,
    texts: Sequence[TokenIds],
    layers: Sequence[int],
    positions: str,
    batch_tokens: int | None,
    done: FinishedParts,
    progress: Progress,
) -> None:
    """Store the arrays of `influences` under the name of the part."""
    done[part] = influences(
        lm, texts, layers, positions=positions, batch_tokens=batch_tokens, label=part, progress=progress
    )


@torch.no_grad()
def influences(
    lm: LM,
    texts: Sequence[TokenIds],
    layers: Sequence[int],
    *,
    positions: str,
    batch_tokens: int | None = None,
    label: str = "influence",
    progress: Progress = silent,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Measure the influence of each head of some layers on each text.

    Returns:
        KL without the head and the share of positions where the most likely token changes, both [text, layer, head];
        the entropy of the whole model's distribution [text]. All are means over a text's positions.
    """
    bundles = [_bundle(text, positions) for text in texts]
    budget = _tokens_at_once(lm, positions, batch_tokens)
    replay = can_replay(lm, bundles[:2])
    if not replay:
        log.warning("%s cannot be run from a middle layer: every head costs a run of the whole model", lm.name)
    shape = (len(bundles), len(layers), lm.n_heads)
    kl = np.empty(shape)
    changed = np.empty(shape)
    entropy = np.empty(len(bundles))
    for indices in progress(texts_at_once(lm, bundles, budget), label):
        batch = [bundles[i] for i in indices]
        lengths = [len(bundle.examples[0].target) for bundle in batch]
        for layer, heads, logits, clean_logits in logits_by_head(lm, batch, layers, replay=replay, budget=budget):
            row = layers.index(layer)
            for head, head_logits in zip(heads, logits, strict=True):
                kl[indices, row, head] = _means(divergence(clean_logits, head_logits), lengths)
                changed[indices, row, head] = _means(head_logits.argmax(-1) != clean_logits.argmax(-1), lengths)
        # the whole model's logits are the same in every layer's turn
        log_p = clean_logits.double().log_softmax(-1)
        entropy[indices] = _means(-(log_p.exp() * log_p).sum(-1), lengths)
    return kl, changed, entropy


def _bundle(text: TokenIds, positions: str) -> Bundle:
    """Return a text as a prompt, with a target token after every position where distributions are measured."""
    first = len(text) if positions == "last" else 1
    # nothing follows the last token: 0 is a placeholder, whose log P is not used
    return make_bundle([TokenExample(text[:first], (*text[first:], 0))])


def _tokens_at_once(lm: LM, positions: str, batch_tokens: int | None) -> int:
    """Return the number of tokens to run at once: fewer if logits at every token take memory."""
    return max(1, tokens_at_once(lm, batch_tokens) // (TOKENS_PER_LOGITS if positions == "all" else 1))


def _means(values: Tensor, lengths: Sequence[int]) -> list[float]:
    """Average values [position] of consecutive texts over the positions of each text."""
    return [float(text_values.double().mean()) for text_values in values.split(list(lengths))]


def combine(
    lm: LM, *, n_texts: Mapping[str, int], groups: Sequence[Sequence[int]], done: FinishedParts, progress: Progress
) -> xr.Dataset:
    """Average over texts. n_texts: number of texts in each set. groups: layers of each part."""
    results = []
    for name, n in n_texts.items():
        shape = (n, lm.n_layers, lm.n_heads)
        kl = np.full(shape, np.nan, np.float32)
        changed = np.full(shape, np.nan, np.float32)
        for layers in groups:
            kl[:, layers], changed[:, layers], entropy = done[part_name(name, layers)]
        results.append(
            xr.Dataset(
                {
                    "kl": (("layer", "head"), kl.mean(0)),
                    "by_text": (("text", "layer", "head"), kl),
                    "changed": (("layer", "head"), changed.mean(0)),
                    "entropy": entropy.mean(),
                    "texts": n,
                },
                # An index, because sets may have different numbers of texts.
                coords={"text": range(n)},
            )
        )
    return xr.concat(results, "text_set").assign_coords(
        text_set=list(n_texts), layer=range(lm.n_layers), head=range(lm.n_heads)
    )
