"""Heads that see only the first and the last tokens: streaming attention, mixed with the model's own per KV head.

It goes through transformers' attention interface. The model's own attention function is called with its own mask, and
once more with that mask narrowed; so scales, softcaps, sink logits, sliding windows and padding stay the model's own.
A model that does not use the interface is refused by `check_streams`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from headatlas.errors import UnsupportedModel
from headatlas.models.attention_interface import attention_modules, attention_through
from headatlas.models.lm import LM


@dataclass(frozen=True)
class _Mix:
    """How the heads of one layer are mixed, while they are."""

    layer: int
    sink: int
    recent: int
    alpha: Tensor | float  # [row or 1, head], or one number for all: 0 or 1
    ran: set[int]  # layers whose attention has run, the same set for all


@contextmanager
def streaming(lm: LM, alpha: Tensor, sink: int, recent: int) -> Iterator[set[int]]:
    """Every KV head gives α · full + (1 − α) · streaming attention, before the output projection.

    A streaming head sees, of what the model lets it see, the first `sink` tokens of the row and the last `recent`, the
    token itself included. For forward passes without a cache, on rows without padding on the left. Differentiable in
    alpha. Yields the layers whose attention has run so far.

    alpha: [layer, kv_head], or [row, layer, kv_head] with one for each row of the batch; 1 = the model as it is.
    """
    alpha = alpha[None] if alpha.ndim == 2 else alpha
    ran: set[int] = set()
    functions = {
        module: partial(_attend, _Mix(layer, sink, recent, _of_layer(lm, alpha[:, layer]), ran))
        for layer, module in attention_modules(lm).items()
    }
    with attention_through(lm, functions):
        yield ran


@torch.no_grad()
def check_streams(lm: LM) -> None:
    """That every layer's attention goes through transformers' interface, tried on a few tokens."""
    tokens = torch.zeros(1, 4, dtype=torch.long, device=lm.device)
    try:
        with streaming(lm, torch.ones(lm.n_layers, lm.n_kv_heads), 1, 1) as ran:
            lm.model.base_model(tokens, use_cache=False)
    except (TypeError, ValueError, KeyError, AttributeError):
        ran = set()
    if ran != set(lm.layers_with_heads):
        raise UnsupportedModel(
            f"the heads of {type(lm.model).__name__} cannot be made to stream:"
            " its attention does not go through transformers' attention interface"
        )


def _of_layer(lm: LM, alpha: Tensor) -> Tensor | float:
    """α of one layer, [row, kv_head], for query heads, [row, head]; a number where all are 0 or all are 1."""
    for number in (0.0, 1.0):
        if not alpha.requires_grad and bool((alpha == number).all()):
            return number
    return alpha.repeat_interleave(lm.n_heads // lm.n_kv_heads, dim=1)


def _attend(
    mix: _Mix,
    kernel: Callable[..., tuple[Tensor, Any]],
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Any,
    *args: Any,
    **options: Any,
) -> tuple[Tensor, Any]:
    attend = partial(kernel, module, query, key, value)
    mix.ran.add(mix.layer)
    if isinstance(mix.alpha, float):
        return attend(mask if mix.alpha else _narrowed(mask, mix, query, key), *args, **options)
    narrow, _ = attend(_narrowed(mask, mix, query, key), *args, **options)
    full, weights = attend(mask, *args, **options)
    alpha = mix.alpha.to(full.device, full.dtype)[:, None, :, None]
    return alpha * full + (1 - alpha) * narrow, weights


def _narrowed(mask: Tensor | None, mix: _Mix, query: Tensor, key: Tensor) -> Tensor:
    """The model's own mask, and what a streaming head sees: bool, or numbers to be added, as the mask is."""
    keys = torch.arange(key.shape[2], device=query.device)
    queries = keys[-query.shape[2] :, None]
    seen = (keys < mix.sink) | (queries - keys < mix.recent)  # [token, token]
    if mask is None:  # causal, by the kernel's own flag
        return (seen & (keys <= queries))[None, None]
    if mask.dtype == torch.bool:
        return mask & seen
    return mask.masked_fill(~seen, torch.finfo(mask.dtype).min)
