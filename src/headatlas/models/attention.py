"""Where heads look: attention weights of every head, or the position that each attends to most.

`attention_of` runs plain attention kernels, and believes them only if every head's z stays as it is. The others work in
one ordinary pass, in addition to the model's own kernel, and so need no matrix of attention for a long text:

1. The pass uses the model's own kernel. While it runs, each layer's attention function is called through ours
   (transformers' attention interface), which has the queries, keys and values that the kernel gets.
2. For the queries asked about, the model's own plain attention (its `eager_attention_forward`, with softcaps, sinks
   and whatever else is its own) is computed as well, in float32. No more than [head, query asked about, key] is in
   memory: it grows with the text's length, not its square.
3. It is believed only if the plain attention gives those queries the output that the kernel gave them.

Models that do not go through the interface compute their attention in full anyway; there `attention_of` reads it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from headatlas.errors import UnsupportedModel
from headatlas.models.attention_interface import attention_implementation_kept, attention_through, plain_attention
from headatlas.models.hooks import hooked
from headatlas.models.library_settings import without_cudnn_attention
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
    with attention_implementation_kept(lm):
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


@torch.no_grad()
def attended_most(lm: LM, ids: Sequence[int], queries: Sequence[int]) -> Tensor:
    """The position that gets most attention (of equal ones, the first): [layer, head, query]; −1 where are no heads.

    ids: a text as tokens. queries: the positions whose attention is asked for.
    """
    text, rows = torch.tensor([list(ids)], device=lm.device), torch.tensor(list(queries))
    found = _beside_the_kernel(lm, text, rows)
    if found is None:
        found = attention_of(lm, text, keep=lambda attention: attention[0, :, rows.to(attention.device)].argmax(-1))
    most = torch.full((lm.n_layers, lm.n_heads, len(rows)), -1)
    for layer, positions in found.items():
        most[layer] = positions.cpu()
    return most


@contextmanager
def attention_kept(lm: LM, layers: Collection[int], length: int, dtype: torch.dtype) -> Iterator[dict[int, Tensor]]:
    """While a pass over one text of so many tokens runs, keep the attention [head, query, key] of these layers.

    Layers whose model does not use the interface, or whose outputs do not agree, are not there.
    """
    kept: dict[int, Tensor] = {}
    apart: dict[int, Tensor] = {}
    with _beside(lm, layers, torch.arange(length), kept, apart, lambda attention: attention.to(dtype)):
        yield kept
    for layer in [i for i, share in apart.items() if not share <= _close(lm)]:
        del kept[layer]


@torch.no_grad()
def attention_of_texts(lm: LM, ids: Tensor) -> dict[int, Tensor]:
    """Attention [text, head, query, key] of all layers with heads, for texts [text, token] of one length, in float32.

    Read beside the kernel where that can be: plain attention in half precision is not that of the model where scores
    are large, as in Qwen2.5."""
    with_heads = lm.layers_with_heads
    texts = []
    for text in ids.to(lm.device):
        with attention_kept(lm, with_heads, len(text), torch.float32) as kept, without_cudnn_attention():
            lm.model.base_model(text[None], use_cache=False)
        texts.append(kept)
    read = {i: torch.stack([kept[i] for kept in texts]) for i in with_heads if all(i in kept for kept in texts)}
    missing = [i for i in with_heads if i not in read]
    if missing:
        read |= attention_of(lm, ids, missing, dtype=torch.float32)
    return dict(sorted(read.items()))


def _beside_the_kernel(lm: LM, text: Tensor, rows: Tensor) -> dict[int, Tensor] | None:
    """[head, query] by layer; None where the model does not use the interface, or where the outputs do not agree."""
    with_heads = lm.layers_with_heads
    most: dict[int, Tensor] = {}
    apart: dict[int, Tensor] = {}
    with _beside(lm, with_heads, rows, most, apart, lambda attention: attention.argmax(-1)), without_cudnn_attention():
        lm.model.base_model(text, use_cache=False)
    return most if len(most) == len(with_heads) and all(share <= _close(lm) for share in apart.values()) else None


def _close(lm: LM) -> float:
    """Of outputs, as a share of their size: kernels round their weights to the model's precision."""
    return 1e-3 if lm.model.dtype in (torch.float32, torch.float64) else 2e-2


@contextmanager
def _beside(
    lm: LM,
    layers: Collection[int],
    rows: Tensor,
    kept: dict[int, Tensor],
    apart: dict[int, Tensor],
    keep: Callable[[Tensor], Tensor],
) -> Iterator[None]:
    """Fills `kept` with keep(attention [head, query, key]) by layer, and `apart` with how far the outputs are apart."""
    sites = {lm.model.get_submodule(site.attention): layer for layer, site in lm.anatomy.attentions}

    def read(module: nn.Module, output: Tensor, plain: Tensor, attention: Tensor) -> None:
        kernel = output.detach()[:, rows.to(output.device)].to(plain.dtype)
        apart[sites[module]] = (plain - kernel).norm() / kernel.norm().clamp(min=torch.finfo(plain.dtype).tiny)
        kept[sites[module]] = keep(attention[0])

    with _interface_read(lm, [module for module, i in sites.items() if i in layers], rows, read):
        yield


@contextmanager
def _interface_read(
    lm: LM, modules: Collection[nn.Module], rows: Tensor, read: Callable[[nn.Module, Tensor, Tensor, Tensor], None]
) -> Iterator[None]:
    """Calls read(module, kernel's output, plain output, attention), the last two of these rows only, whenever one of
    the modules runs its attention through the interface. What the model computes does not change. Where its plain
    attention takes other arguments, nothing is read."""

    def attend(
        plain: Callable[..., Any],
        kernel: Callable[..., tuple[Tensor, Any]],
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Any,
        **options: Any,
    ) -> tuple[Tensor, Any]:
        output, weights = kernel(module, query, key, value, mask, **options)
        if mask is None or getattr(mask, "ndim", 0) == 4:
            here, exact = rows.to(query.device), torch.promote_types(query.dtype, torch.float32)
            with torch.no_grad():
                seen = _mask_rows(mask, here, key.shape[2], options.get("sliding_window"))
                few = (t.to(exact) for t in (query[:, :, here], key, value, seen))
                try:
                    computed, attention = plain(module, *few, **options)
                except torch.OutOfMemoryError:
                    raise
                except (RuntimeError, TypeError, ValueError, AttributeError):
                    return output, weights
                read(module, output, computed, attention)
        return output, weights

    plain = {module: plain_attention(module) for module in modules if hasattr(module, "config")}
    functions = {module: partial(attend, function) for module, function in plain.items() if function}
    with attention_through(lm, functions) if functions else nullcontext():
        yield


def _mask_rows(mask: Tensor | None, rows: Tensor, keys: int, window: int | None) -> Tensor:
    """What is added to the scores of these queries, [1, 1, query, key]. Kernels get no mask if it is just causal."""
    if mask is not None and mask.dtype != torch.bool:
        return mask[:, :, rows, :keys]
    if mask is not None:
        seen = mask[:, :, rows, :keys]
    else:
        back = rows[:, None] - torch.arange(keys, device=rows.device)
        seen = ((back >= 0) & (back < (window or keys)))[None, None]
    return torch.zeros(seen.shape, device=seen.device).masked_fill(~seen, torch.finfo(torch.float32).min)
