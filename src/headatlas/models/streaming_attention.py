"""Streaming attention, which sees only the first and the last tokens, mixed with full attention per KV head.

It uses transformers' attention interface. The model's attention function is called with its mask, and again with that
mask narrowed; so scales, softcaps, sink logits, sliding windows and padding are those of the model. `check_streams`
refuses a model that does not use the interface.
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
    """How the heads of one layer are mixed.

    Args:
        layer: its number.
        sink: number of first tokens that a streaming head sees.
        recent: number of last tokens that a streaming head sees.
        alpha: share of full attention [row or 1, head]; a number if it is 0 or 1 for all.
        ran: the layers whose attention has run; one set for all layers.
    """

    layer: int
    sink: int
    recent: int
    alpha: Tensor | float
    ran: set[int]


@contextmanager
def streaming(lm: LM, alpha: Tensor, sink: int, recent: int) -> Iterator[set[int]]:
    """Make every KV head output α · full + (1 − α) · streaming attention while the block runs.

    Of the tokens that the model lets it see, a streaming head sees the first `sink` tokens of the row and the last
    `recent`, the token itself included. For forward passes without a cache, on rows without padding on the left.
    Differentiable in alpha.

    Args:
        alpha: [layer, kv_head], or [row, layer, kv_head] for each row of the batch; 1 leaves a head unchanged.

    Yields:
        The layers whose attention has run so far.
    """
    alpha = alpha[None] if alpha.ndim == 2 else alpha
    ran: set[int] = set()
    functions = {
        module: partial(_attend, _Mix(layer, sink, recent, _query_head_alpha(lm, alpha[:, layer]), ran))
        for layer, module in attention_modules(lm).items()
    }
    with attention_through(lm, functions):
        yield ran


@torch.no_grad()
def check_streams(lm: LM) -> None:
    """Check that every layer's attention goes through transformers' interface, by running a few tokens."""
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


def _query_head_alpha(lm: LM, alpha: Tensor) -> Tensor | float:
    """Return α [row, head] for query heads from α [row, kv_head]; a number if all are 0 or all are 1."""
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
    """Run a layer's attention with its heads mixed; the arguments are those of transformers' attention functions."""
    attend = partial(kernel, module, query, key, value)
    mix.ran.add(mix.layer)
    if isinstance(mix.alpha, float):
        return attend(mask if mix.alpha else _narrow_mask(mask, mix, query, key), *args, **options)
    streaming_output, _ = attend(_narrow_mask(mask, mix, query, key), *args, **options)
    full_output, weights = attend(mask, *args, **options)
    alpha = mix.alpha.to(full_output.device, full_output.dtype)[:, None, :, None]
    return alpha * full_output + (1 - alpha) * streaming_output, weights


def _narrow_mask(mask: Tensor | None, mix: _Mix, query: Tensor, key: Tensor) -> Tensor:
    """Return the model's mask narrowed to what a streaming head sees: bool or additive, like the mask."""
    keys = torch.arange(key.shape[2], device=query.device)
    queries = keys[-query.shape[2] :, None]
    visible = (keys < mix.sink) | (queries - keys < mix.recent)  # [token, token]
    if mask is None:
        # the kernel was called without a mask, for causal attention
        return (visible & (keys <= queries))[None, None]
    if mask.dtype == torch.bool:
        return mask & visible
    return mask.masked_fill(~visible, torch.finfo(mask.dtype).min)
