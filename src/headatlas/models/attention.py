"""Where heads look: attention of every head, read from plain kernels and believed only if they change nothing."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from headatlas.errors import UnsupportedModel
from headatlas.models.heads import hooked
from headatlas.models.lm import LM


@torch.no_grad()
def attention_of(
    lm: LM,
    ids: Tensor,
    layers: Collection[int] | None = None,
    ordinary: Mapping[int, Tensor] | None = None,
    dtype: torch.dtype | None = None,
    keep: Callable[[Tensor], Tensor] | None = None,
) -> dict[int, Tensor]:
    """Attention [text, head, query, key] of layers with heads, for texts [text, token] of one length.

    Fused kernels do not give it, so plain ones run here; and they are believed only if every head's z comes out as it
    does in an ordinary run. In transformers 5.17 Falcon's do not: those with rotary positions look ahead unless a full
    mask forbids it, those with ALiBi add it twice.

    layers: only these are kept, which saves memory. ordinary: z of an ordinary run by layer, if there is one already.
    dtype: what attention is kept in. keep: what is kept of a layer's attention instead of all of it.
    """
    with_heads = set(lm.layers_with_heads)
    wanted = with_heads if layers is None else with_heads & set(layers)
    ids = ids.to(lm.device)
    if ordinary is None:
        ordinary = _run(lm, ids, None)
    square = (len(ids), 1, ids.shape[1], ids.shape[1])
    hidden = torch.full(square, torch.finfo(lm.model.dtype).min, dtype=lm.model.dtype, device=ids.device).triu(1)
    before = lm.model.config._attn_implementation
    try:
        lm.model.set_attn_implementation("eager")
        for mask in (None, hidden):
            try:
                with _kept(lm, ids.shape[1], wanted, dtype, keep) as attention:
                    z = _run(lm, ids, mask, output_attentions=True)
            except (RuntimeError, ValueError):  # a mask it does not understand
                continue
            close = 1e-3 if lm.model.dtype in (torch.float32, torch.float64) else 0.1  # rounding adds up over layers
            same = all((z[i] - ordinary[i]).float().norm() <= close * ordinary[i].float().norm() for i in ordinary)
            if same and set(attention) == wanted:
                return attention
    finally:
        lm.model.set_attn_implementation(before)
    raise UnsupportedModel(f"{type(lm.model).__name__} does not tell where its heads look")


def _run(lm: LM, ids: Tensor, mask: Tensor | None, **options: Any) -> dict[int, Tensor]:
    """z by layer."""
    z: dict[int, Tensor] = {}
    with hooked(lm.model, lm.anatomy, z.__setitem__):
        lm.model.base_model(ids, attention_mask=mask, use_cache=False, **options)
    return z


@contextmanager
def _kept(
    lm: LM,
    length: int,
    wanted: Collection[int],
    dtype: torch.dtype | None,
    keep: Callable[[Tensor], Tensor] | None,
) -> Iterator[dict[int, Tensor]]:
    """Takes attention from what the attention modules return, so that no more than one layer is in memory unless
    wanted: of 2,048 tokens, all of a small model would be gigabytes."""
    attention: dict[int, Tensor] = {}

    def take(layer: int, n_heads: int, module: Any, args: Any, output: Any) -> Any:
        taken = []
        for part in output if isinstance(output, tuple) else (output,):
            if isinstance(part, Tensor) and part.ndim == 4 and part.shape[1:] == (n_heads, length, length):
                if layer in wanted:
                    kept = part if keep is None else keep(part)
                    attention[layer] = kept if dtype is None else kept.to(dtype)
                part = part[..., :0]  # nobody reads it
            taken.append(part)
        return tuple(taken) if isinstance(output, tuple) else output

    with ExitStack() as stack:
        for layer, site in lm.anatomy.attentions:
            module = lm.model.get_submodule(site.attention)
            hook = module.register_forward_hook(partial(take, layer, site.n_heads), prepend=True)
            stack.callback(hook.remove)
        yield attention
