"""Measure what is lost while KV heads stream, one by one (kind "one"), or fit which of them can (kind "learned").

One by one: layers below a head do not change. So their output is recorded in a run of the whole model, the model is
replayed from the head's layer on, and several KV heads share a batch.

Learned:
1. Every KV head outputs α · full + (1 − α) · streaming attention; all α start at 1.
2. An update uses one text. distance = |h − h'|² / |h|², the mean over its scored tokens, where h is the last hidden
   state of the whole model and h' that of the mixed one. The paper does not divide by |h|², so its λ depends on the
   model's size.
3. Adam minimises distance + λ · mean of α. After every update, α is clipped to 0 … 1.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor
from torch.nn.functional import cross_entropy

from headatlas.errors import CannotDo
from headatlas.evidence.decide import with_outcomes
from headatlas.methods.method import Part
from headatlas.methods.streaming.texts import ScoredText, Window
from headatlas.models.gradients import frozen_float32_stream
from headatlas.models.library_settings import without_cudnn_attention
from headatlas.models.lm import LM
from headatlas.models.log_probs import batches
from headatlas.models.memory import halve_batch_on_oom, tokens_at_once
from headatlas.models.packing import logits_only
from headatlas.models.single_heads import Record, can_replay, record_blocks, replay_from
from headatlas.models.streaming_attention import check_streams, streaming
from headatlas.models.tokens import Bundle, TokenExample, make_bundle
from headatlas.progress import FinishedParts, Progress, silent

log = logging.getLogger(__name__)
TRIAL_TOKENS = 64  # tokens of the text that shows whether the model can be replayed


def bundles_of(texts: Sequence[ScoredText], max_tokens: int | None = None) -> list[Bundle]:
    """Return texts, or their first tokens, as bundles, which costs and batches are computed from."""
    beginnings = [text.ids[:max_tokens] for text in texts]
    return [make_bundle([TokenExample(ids[:-1], ids[-1:])]) for ids in beginnings]


def scored_log_p(
    lm: LM, texts: Sequence[ScoredText], window: Window, alpha: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the mean log P of each text's scored tokens, and the share of them that are most likely: [set, text].

    alpha: α of every KV head in several sets [set, layer, kv_head]; None for the unchanged model.
    """
    n_sets = 1 if alpha is None else len(alpha)
    # causal attention keeps tokens from seeing the padding on their right
    ids = lm.pad([text.ids for text in texts], "right")["input_ids"]
    rows, positions = torch.tensor([(row, position) for row, text in enumerate(texts) for position in text.scored]).T
    all_rows = (torch.arange(n_sets)[:, None] * len(texts) + rows).flatten()
    with ExitStack() as stack:
        if alpha is not None:
            alpha_by_row = alpha.repeat_interleave(len(texts), dim=0)
            stack.enter_context(streaming(lm, alpha_by_row, window.sink, window.recent))
        stack.enter_context(logits_only(lm, all_rows, positions.repeat(n_sets) - 1))
        stack.enter_context(without_cudnn_attention())
        logits = lm.model(ids.repeat(n_sets, 1), use_cache=False).logits[0]
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    tokens = ids[rows.to(ids.device), positions.to(ids.device)].to(logits.device).repeat(n_sets)
    log_p = -cross_entropy(logits, tokens, reduction="none").view(n_sets, -1)
    right = (logits.argmax(-1) == tokens).view(n_sets, -1)
    sizes = [len(text.scored) for text in texts]

    def mean_by_text(values: Tensor) -> Tensor:
        return torch.stack([text_values.float().mean(1) for text_values in values.split(sizes, 1)], 1).cpu()

    return mean_by_text(log_p), mean_by_text(right)


@torch.no_grad()
def log_p_of_sets(
    lm: LM,
    texts: Sequence[ScoredText],
    window: Window,
    alpha: Tensor,
    *,
    batch_tokens: int | None = None,
    label: str = "streaming",
    progress: Progress = silent,
) -> Tensor:
    """Compute log P as `scored_log_p` does for many sets [set, layer, kv_head], in batches: [set, text]."""
    budget = tokens_at_once(lm, batch_tokens)
    log_p = torch.empty(len(alpha), len(texts))
    for sets, rows in progress(list(batches(bundles_of(texts), len(alpha), budget)), label):
        with halve_batch_on_oom(lm, budget):
            log_p[sets, rows] = scored_log_p(lm, [texts[i] for i in rows], window, alpha[sets])[0]
    return log_p


# --- the parts of a map


def layers_by_array(lm: LM, task: str, kind: str) -> dict[str, list[int]]:
    """Name the arrays that a map is made from, each with its layers."""
    if kind == "learned":
        return {f"{task}: streaming, learned": lm.layers_with_heads}
    groups = [list(layers) for layers in lm.anatomy.layer_groups()]
    return {f"{task}: streaming, layers {layers[0]} to {layers[-1]}": layers for layers in groups}


def map_parts(
    kind: str, arrays: Mapping[str, Sequence[int]], arguments: Mapping[str, Any], fitting: Mapping[str, Any]
) -> list[Part]:
    """Return the parts that compute these arrays. arguments: those of both kinds; fitting: options of the fit."""
    parts = []
    for name, layers in arrays.items():
        common = {"name": name, "layers": layers, **arguments}
        if kind == "learned":
            parts.append(Part(name=name, do=measure_alpha, arguments={**common, **fitting}))
        else:
            parts.append(Part(name=name, do=measure_losses, arguments=common))
    return parts


# --- kind "one"


def measure_losses(
    lm: LM,
    *,
    name: str,
    texts: Sequence[ScoredText],
    window: Window,
    layers: Sequence[int],
    batch_tokens: int | None,
    done: FinishedParts,
    progress: Progress,
) -> None:
    """Store the losses [text, layer, kv_head], and the whole model's log P and share of right tokens [text]."""
    arrays = losses_one_by_one(lm, texts, window, layers, batch_tokens=batch_tokens, label=name, progress=progress)
    done[name] = tuple(array.numpy() for array in arrays)


@torch.no_grad()
def losses_one_by_one(
    lm: LM,
    texts: Sequence[ScoredText],
    window: Window,
    layers: Sequence[int],
    *,
    replay: bool = True,
    batch_tokens: int | None = None,
    label: str = "streaming",
    progress: Progress = silent,
) -> tuple[Tensor, Tensor, Tensor]:
    """Let each KV head stream alone, and measure the fall of log P.

    Args:
        lm: the model.
        texts: the texts.
        window: the tokens that a streaming head sees.
        layers: layers whose KV heads are measured.
        replay: whether to run only the layers above a head. Models that do not allow it are run whole, with a warning.
        batch_tokens: tokens run through the model at once.
        label: label of the progress bar.
        progress: reports progress.

    Returns:
        The losses [text, layer, kv_head]; the whole model's log P and share of right tokens, both [text].
    """
    check_streams(lm)
    if replay and not can_replay(lm, bundles_of(texts[:1], TRIAL_TOKENS)):
        log.warning("%s cannot be run from a middle layer: every KV head costs a run of the whole model", lm.name)
        replay = False
    budget = tokens_at_once(lm, batch_tokens)
    n_kv_heads = lm.n_kv_heads
    losses = torch.empty(len(texts), len(layers), n_kv_heads)
    log_p = torch.empty(len(texts))
    right = torch.empty(len(texts))
    groups = [rows for _, rows in batches(bundles_of(texts), 1, max(1, budget // n_kv_heads))]
    record: Record = {}
    for rows, layer in progress([(rows, layer) for rows in groups for layer in layers], label):
        batch = [texts[i] for i in rows]
        if layer == layers[0]:
            with record_blocks(lm) as record, halve_batch_on_oom(lm, budget):
                log_p[rows], right[rows] = (values[0] for values in scored_log_p(lm, batch, window))
        n_heads_together = max(1, budget // (len(batch) * max(map(len, batch))))
        for heads in torch.arange(n_kv_heads).split(n_heads_together):
            alpha = torch.ones(len(heads), lm.n_layers, n_kv_heads)
            alpha[range(len(heads)), layer, heads] = 0
            rerun = replay_from(lm, layer, record, len(heads)) if replay else nullcontext()
            with rerun, halve_batch_on_oom(lm, budget):
                log_p_streaming = scored_log_p(lm, batch, window, alpha)[0]
            losses[torch.tensor(rows)[:, None], layers.index(layer), heads] = (log_p[rows] - log_p_streaming).T
    return losses, log_p, right


# --- kind "learned"


def measure_alpha(
    lm: LM,
    *,
    name: str,
    texts: Sequence[ScoredText],
    window: Window,
    layers: Sequence[int],
    updates: int,
    strength: float,
    lr: float,
    done: FinishedParts,
    progress: Progress,
    **_: object,
) -> None:
    """Store α [1, layer, kv_head], the distances [update], and the whole model's log P and right tokens [text]."""
    alpha, distances, log_p, right = fit_alpha(
        lm, texts, window, updates=updates, strength=strength, lr=lr, label=name, progress=progress
    )
    done[name] = (alpha[list(layers)][None].numpy(), distances.numpy(), log_p.numpy(), right.numpy())


def fit_alpha(
    lm: LM,
    texts: Sequence[ScoredText],
    window: Window,
    *,
    updates: int,
    strength: float,
    lr: float,
    label: str = "streaming",
    progress: Progress = silent,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Fit α of all KV heads.

    Returns:
        α [layer, kv_head], the distance at each update [update], and the whole model's log P and share of right tokens,
        both [text].
    """
    check_streams(lm)
    with torch.no_grad(), halve_batch_on_oom(lm, max(map(len, texts))):
        # in the precision of the fit, so that distances do not include rounding
        with frozen_float32_stream(lm):
            whole_states = [hidden_states(lm, text) for text in texts]
        scores = [scored_log_p(lm, [text], window) for text in texts]
        log_p, right = (torch.cat(values, dim=1)[0] for values in zip(*scores, strict=True))
    alpha = torch.ones(lm.n_layers, lm.n_kv_heads, requires_grad=True)
    with_heads = lm.layers_with_heads
    optimiser = torch.optim.Adam([alpha])
    distances = []
    with frozen_float32_stream(lm):
        for update in progress(range(updates), label):
            text = update % len(texts)
            optimiser.param_groups[0]["lr"] = lr * ramp(update, updates)
            with halve_batch_on_oom(lm, len(texts[text])), torch.enable_grad():
                with streaming(lm, alpha, window.sink, window.recent):
                    distance = relative_distance(hidden_states(lm, texts[text]), whole_states[text])
                loss = distance + strength * alpha[with_heads].mean().to(distance.device)
                (alpha.grad,) = torch.autograd.grad(loss, alpha)
            if not alpha.grad.isfinite().all():
                raise CannotDo(f"{label}: the gradient is not finite at update {update + 1} of {updates}")
            optimiser.step()
            alpha.data.clamp_(0, 1)
            distances.append(distance.detach().cpu())
    return alpha.detach(), torch.stack(distances), log_p, right


def ramp(update: int, updates: int) -> float:
    """Return the factor of the learning rate at an update: it rises at first and falls at the end, as published."""
    length = max(1, updates // 5)
    return min(1.0, max((update + 1) / length, 0.1), max((updates - update) / length, 0.1))


def hidden_states(lm: LM, text: ScoredText) -> Tensor:
    """Return the last hidden states that the scored tokens are predicted from: [token, d_model]."""
    ids = torch.tensor([text.ids], device=lm.device)
    with without_cudnn_attention():
        states: Tensor = lm.model.base_model(ids, use_cache=False)[0]
    return states[0, torch.tensor(text.scored) - 1].to(torch.promote_types(states.dtype, torch.float32))


def relative_distance(states: Tensor, whole_states: Tensor) -> Tensor:
    """Return the mean squared distance of states [token, d_model], relative to the whole model's."""
    return ((states - whole_states).pow(2).sum(-1) / whole_states.pow(2).sum(-1)).mean()


# --- the result


def need_of_kv_heads(lm: LM, arrays: Mapping[str, Sequence[int]], done: FinishedParts) -> np.ndarray:
    """Return the need of every KV head: the loss by text [text, layer, kv_head], or α [1, layer, kv_head]."""
    n_rows = len(done[next(iter(arrays))][0])
    need = np.full((n_rows, lm.n_layers, lm.n_kv_heads), np.nan, np.float32)
    for name, layers in arrays.items():
        need[:, list(layers)] = done[name][0]
    return need


def combine(
    lm: LM,
    *,
    maps: Mapping[str, Mapping[str, Sequence[int]]],
    tests: Mapping[str, str],
    learned: bool,
    done: FinishedParts,
    progress: Progress,
) -> xr.Dataset:
    """Combine the maps and tests of all tasks.

    Args:
        lm: the model.
        maps: for each task, the names of its map's arrays in `done`, with the layers of each.
        tests: for each task, the name of its test's arrays in `done`; empty without tests.
        learned: whether the kind is 'learned'.
        done: the arrays of the parts.
        progress: unused.
    """
    results = []
    for task, arrays in maps.items():
        result = _map_of_task(lm, arrays, learned, done)
        if tests:
            result = result.assign(_name_test_arrays(*done[tests[task]]))
        results.append(result)
    result = xr.concat(results, "task")
    result = result.assign_coords(task=list(maps), layer=range(lm.n_layers), head=range(lm.n_heads))
    return with_outcomes(result, result.sizes["draw"]) if tests else result


def _name_test_arrays(
    effect: np.ndarray,
    random_effect: np.ndarray,
    p: np.ndarray,
    rest_and_all: np.ndarray,
    n: np.ndarray,
    beyond: np.ndarray,
) -> dict[str, Any]:
    return {
        # tables read the attribute: the heads with the lowest need stream, not the top ones
        "effect": ((), effect, {"heads": "lowest"}),
        "random_effect": ("draw", random_effect),
        "rest_effect": rest_and_all[0],
        "all_effect": rest_and_all[1],
        "p": p,
        "n_removed": int(n),
        "beyond_low": beyond[0],
        "beyond_high": beyond[1],
        "detectable": beyond[2],
    }


def _map_of_task(lm: LM, arrays: Mapping[str, Sequence[int]], learned: bool, done: FinishedParts) -> xr.Dataset:
    values = need_of_kv_heads(lm, arrays, done)
    first = done[next(iter(arrays))]
    log_p, right = first[-2:]
    need = values.repeat(lm.n_heads // lm.n_kv_heads, axis=2)  # [text, layer, head]
    result = xr.Dataset(
        {
            "need": (("layer", "head"), need.mean(0)),
            "baseline": log_p.mean(),
            "whole_accuracy": right.mean(),
            "examples": len(log_p),
        },
        coords={"kv_head": range(lm.n_kv_heads)},
    )
    kv_head_map = (("layer", "kv_head"), values.mean(0))
    if learned:
        return result.assign(gate=kv_head_map, distance=("update", first[1]))
    # An index, because tasks may have different numbers of texts.
    result = result.assign_coords(text=range(len(need)))
    return result.assign(loss=kv_head_map, by_text=(("text", "layer", "head"), need))
