"""log P of the scored tokens of texts while KV heads stream, and what each KV head alone costs (kind "one").

Layers below a head do not change. So their output is kept from the whole model's run, the model is replayed from the
head's layer on, and several KV heads go in one batch.
"""

import logging
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from headatlas.methods.streaming.texts import ScoredText, Window
from headatlas.models.library_settings import without_cudnn_attention
from headatlas.models.lm import LM
from headatlas.models.log_probs import batches
from headatlas.models.memory import halve_batch_on_oom, tokens_at_once
from headatlas.models.packing import logits_only
from headatlas.models.single_heads import Record, can_replay, recorded, replayed
from headatlas.models.streaming_attention import check_streams, streaming
from headatlas.models.tokens import Bundle, TokenExample, make_bundle
from headatlas.progress import Progress, silent

log = logging.getLogger(__name__)
TRIED = 64  # tokens that replaying is tried on


def bundles_of(texts: Sequence[ScoredText], most: int | None = None) -> list[Bundle]:
    """Texts, or their first tokens, as what costs and batches are counted in."""
    cut = [text.ids[:most] for text in texts]
    return [make_bundle([TokenExample(ids[:-1], ids[-1:])]) for ids in cut]


def scored_log_p(
    lm: LM, texts: Sequence[ScoredText], window: Window, alpha: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Mean log P of each text's scored tokens, and the share of them that are likeliest: [set, text], float32.

    alpha: sets [set, layer, kv_head] of how far each KV head sees everything; without any, the model as it is.
    """
    sets = 1 if alpha is None else len(alpha)
    ids = lm.pad([text.ids for text in texts], "right")["input_ids"]  # no token sees padding
    rows, places = torch.tensor([(r, p) for r, text in enumerate(texts) for p in text.scored]).T
    every = (torch.arange(sets)[:, None] * len(texts) + rows).flatten()
    with ExitStack() as stack:
        if alpha is not None:
            of_rows = alpha.repeat_interleave(len(texts), dim=0)
            stack.enter_context(streaming(lm, of_rows, window.sink, window.recent))
        stack.enter_context(logits_only(lm, every, places.repeat(sets) - 1))
        stack.enter_context(without_cudnn_attention())
        logits = lm.model(ids.repeat(sets, 1), use_cache=False).logits[0]
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    tokens = ids[rows.to(ids.device), places.to(ids.device)].to(logits.device).repeat(sets)
    log_p = -cross_entropy(logits, tokens, reduction="none").view(sets, -1)
    right = (logits.argmax(-1) == tokens).view(sets, -1)
    parts = [len(text.scored) for text in texts]
    means = [torch.stack([part.float().mean(1) for part in v.split(parts, 1)], 1).cpu() for v in (log_p, right)]
    return means[0], means[1]


@torch.no_grad()
def log_p_of_sets(
    lm: LM,
    texts: Sequence[ScoredText],
    window: Window,
    alpha: Tensor,
    *,
    tokens: int | None = None,
    label: str = "streaming",
    progress: Progress = silent,
) -> Tensor:
    """`scored_log_p` of many sets [set, layer, kv_head], in as many passes as `tokens` at once need: [set, text]."""
    budget = tokens_at_once(lm, tokens)
    log_p = torch.empty(len(alpha), len(texts))
    for sets, chosen in progress(list(batches(bundles_of(texts), len(alpha), budget)), label):
        with halve_batch_on_oom(lm, budget):
            log_p[sets, chosen] = scored_log_p(lm, [texts[i] for i in chosen], window, alpha[sets])[0]
    return log_p


@torch.no_grad()
def losses_one_by_one(
    lm: LM,
    texts: Sequence[ScoredText],
    window: Window,
    layers: Sequence[int],
    *,
    replay: bool = True,
    tokens: int | None = None,
    label: str = "streaming",
    progress: Progress = silent,
) -> tuple[Tensor, Tensor, Tensor]:
    """What is lost when each KV head alone streams [text, layer, kv_head]; of the whole model, `scored_log_p` [text].

    layers: those to be tried. replay: run only what lies above a head; whole runs, and a warning, where a model cannot
    be replayed.
    """
    check_streams(lm)
    if replay and not can_replay(lm, bundles_of(texts[:1], TRIED)):
        log.warning("%s cannot be replayed from the middle: every KV head costs a whole run", lm.name)
        replay = False
    budget, n = tokens_at_once(lm, tokens), lm.n_kv_heads
    lost = torch.empty(len(texts), len(layers), n)
    log_p, right = torch.empty(len(texts)), torch.empty(len(texts))
    groups = [chosen for _, chosen in batches(bundles_of(texts), 1, max(1, budget // n))]
    record: Record = {}
    for group, layer in progress([(g, layer) for g in groups for layer in layers], label):
        now = [texts[i] for i in group]
        if layer == layers[0]:
            with recorded(lm) as record, halve_batch_on_oom(lm, budget):
                log_p[group], right[group] = (v[0] for v in scored_log_p(lm, now, window))
        at_once = max(1, budget // (len(now) * max(map(len, now))))
        for heads in torch.arange(n).split(at_once):
            alpha = torch.ones(len(heads), lm.n_layers, n)
            alpha[range(len(heads)), layer, heads] = 0
            rerun = replayed(lm, layer, record, len(heads)) if replay else nullcontext()
            with rerun, halve_batch_on_oom(lm, budget):
                without = scored_log_p(lm, now, window, alpha)[0]
            lost[torch.tensor(group)[:, None], layers.index(layer), heads] = (log_p[group] - without).T
    return lost, log_p, right
