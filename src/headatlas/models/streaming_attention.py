"""Heads that see only the first and the last tokens: streaming attention, mixed with the model's own per KV head.

It goes through transformers' attention interface. The model's own attention function is called with its own mask, and
once more with that mask narrowed; so scales, softcaps, sink logits, sliding windows and padding stay the model's own.
A model that does not use the interface is told by `check_streams`.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from headatlas.errors import UnsupportedModel
from headatlas.models.lm import LM

OWN = ("sdpa", "eager")  # attention functions that take a mask of any shape
NAME = "headatlas_streaming_{}"
STATE = "_headatlas_streaming"  # on an attention module while its heads stream


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
    own = lm.model.config.get_text_config()._attn_implementation
    own = own if own in OWN else "sdpa" if lm.model._supports_sdpa else "eager"
    name = NAME.format(own)
    AttentionInterface.register(name, partial(_attention, own))
    AttentionMaskInterface.register(name, ALL_MASK_ATTENTION_FUNCTIONS[own])
    ran: set[int] = set()
    with ExitStack() as stack:
        for layer, module in _attentions(lm):
            vars(module)[STATE] = _Mix(layer, sink, recent, _of_layer(lm, alpha[:, layer]), ran)
            stack.callback(vars(module).pop, STATE)
        for config in _configs(lm):
            stack.callback(setattr, config, "_attn_implementation", config._attn_implementation)
            config._attn_implementation = name
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
    if ran != {layer for layer, _ in _attentions(lm)}:
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


def _attention(
    own: str, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, *args: Any, **options: Any
) -> tuple[Tensor, Any]:
    """transformers' signature: query [row, head, token, d], mask [row, 1, token, token] → [row, token, head, d]."""
    attend = partial(_own_function(own, module), module, query, key, value)
    mix: _Mix | None = vars(module).get(STATE)
    if mix is None:  # an image tower's
        return attend(mask, *args, **options)
    mix.ran.add(mix.layer)
    if isinstance(mix.alpha, float):
        return attend(mask if mix.alpha else _narrowed(mask, mix, query, key), *args, **options)
    narrow, _ = attend(_narrowed(mask, mix, query, key), *args, **options)
    full, weights = attend(mask, *args, **options)
    alpha = mix.alpha.to(full.device, full.dtype)[:, None, :, None]
    return alpha * full + (1 - alpha) * narrow, weights


def _own_function(own: str, module: nn.Module) -> Callable[..., tuple[Tensor, Any]]:
    """The model's own attention function: its modeling file has an eager one, and may have others."""
    file = sys.modules[type(module).__module__]
    functions = getattr(file, "ALL_ATTENTION_FUNCTIONS", ALL_ATTENTION_FUNCTIONS)
    return functions.get_interface(own, getattr(file, "eager_attention_forward", None))


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


def _attentions(lm: LM) -> list[tuple[int, nn.Module]]:
    """Layers with heads, and their attention modules."""
    return [(layer, lm.model.get_submodule(site.attention)) for layer, site in lm.anatomy.attentions]


def _configs(lm: LM) -> list[Any]:
    """The configurations that masks and attention modules of the decoder read; mostly one object."""
    modules = [lm.model.get_submodule(lm.anatomy.decoder), *(module for _, module in _attentions(lm))]
    configs = [lm.model.config.get_text_config(), *(m.config for m in modules if hasattr(m, "config"))]
    return list({id(config): config for config in configs}.values())
