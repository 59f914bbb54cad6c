"""Where heads look: attention weights of every head, or the position to which each attends most.

`attention_of` runs plain attention kernels, and uses their attention only if every head's z stays the same. The other
functions read attention during one ordinary pass, and so need no full attention matrix for a long text:

1. The pass uses the model's own kernel. While it runs, each layer's attention function is called through a function of
   this module (transformers' attention interface), which sees the queries, keys and values that the kernel gets.
2. For the selected queries, the model's plain attention (its `eager_attention_forward`, with softcaps, sinks and all
   else that it does) is computed as well, in float32. No more than [head, selected query, key] is in memory: it grows
   with the text's length, not its square.
3. It is used only if the plain attention gives those queries the same output as the kernel.

Models that do not go through the interface compute their attention in full anyway; there, `attention_of` reads it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from headatlas.errors import UnsupportedModel
from headatlas.models.attention_interface import attention_through, plain_attention, restore_attention_implementation
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
    """Return the attention [text, head, query, key] of each layer with heads, for texts [text, token] of one length.

    Fused kernels do not return it, so plain kernels run here; their attention is used only if every head's z is the
    same as in an ordinary run. In transformers 5.17 that is not so for Falcon: with rotary positions it looks ahead
    unless a full mask forbids it, with ALiBi it adds the bias twice.

    Args:
        layers: return only these, which saves memory (default: all).
        ordinary: z of an ordinary run by layer, if there is one already.
        dtype: in which attention is returned.
        keep: function of a layer's attention whose value is returned in its place.
    """
    with_heads = set(lm.layers_with_heads)
    target_layers = with_heads if layers is None else with_heads & set(layers)
    ids = ids.to(lm.device)
    if ordinary is None:
        ordinary = _run(lm, ids, None)
    square = (len(ids), 1, ids.shape[1], ids.shape[1])
    lowest = torch.finfo(lm.model.dtype).min
    full_mask = torch.full(square, lowest, dtype=lm.model.dtype, device=ids.device).triu(1)
    with restore_attention_implementation(lm):
        lm.model.set_attn_implementation("eager")
        for mask in (None, full_mask):
            try:
                with _collect_attention(lm, ids.shape[1], target_layers, dtype, keep) as attention:
                    z = _run(lm, ids, mask, output_attentions=True)
            except (RuntimeError, ValueError):
                # the model does not take such a mask
                continue
            # in half precision, rounding adds up over the layers
            tolerance = 1e-3 if lm.model.dtype in (torch.float32, torch.float64) else 0.1
            same = all((z[i] - ordinary[i]).float().norm() <= tolerance * ordinary[i].float().norm() for i in ordinary)
            if same and set(attention) == target_layers:
                return attention
    raise UnsupportedModel(
        f"cannot read the attention of {type(lm.model).__name__}:"
        " with plain kernels, it returns no attention or its outputs change"
    )


def _run(lm: LM, ids: Tensor, mask: Tensor | None, **options: Any) -> dict[int, Tensor]:
    """Run the model on texts and return z by layer."""
    z: dict[int, Tensor] = {}
    with hooked(lm.model, lm.anatomy, z.__setitem__):
        lm.model.base_model(ids, attention_mask=mask, use_cache=False, **options)
    return z


@contextmanager
def _collect_attention(
    lm: LM,
    length: int,
    layers: Collection[int],
    dtype: torch.dtype | None,
    keep: Callable[[Tensor], Tensor] | None,
) -> Iterator[dict[int, Tensor]]:
    """Take attention out of what the attention modules return, while the block runs; yield it by layer.

    So the model does not hold the attention of all layers until the end of its pass, which for 2,048 tokens of a small
    model would be gigabytes.
    """
    attention: dict[int, Tensor] = {}

    def take(layer: int, n_heads: int, module: Any, args: Any, output: Any) -> Any:
        parts = []
        for part in output if isinstance(output, tuple) else (output,):
            if isinstance(part, Tensor) and part.ndim == 4 and part.shape[1:] == (n_heads, length, length):
                if layer in layers:
                    value = part if keep is None else keep(part)
                    attention[layer] = value if dtype is None else value.to(dtype)
                # an empty slice in its place: the model only passes it on
                part = part[..., :0]
            parts.append(part)
        return tuple(parts) if isinstance(output, tuple) else output

    with ExitStack() as stack:
        for layer, site in lm.anatomy.attentions:
            module = lm.model.get_submodule(site.attention)
            hook = module.register_forward_hook(partial(take, layer, site.n_heads), prepend=True)
            stack.callback(hook.remove)
        yield attention


@torch.no_grad()
def most_attended_positions(lm: LM, ids: Sequence[int], queries: Sequence[int]) -> Tensor:
    """Return the position that gets most attention, the first of equal ones: [layer, head, query].

    Layers without heads have −1.

    Args:
        ids: a text as tokens.
        queries: the positions whose attention is read.
    """
    text = torch.tensor([list(ids)], device=lm.device)
    rows = torch.tensor(list(queries))
    by_layer = _argmax_during_pass(lm, text, rows)
    if by_layer is None:
        by_layer = attention_of(lm, text, keep=lambda attention: attention[0, :, rows.to(attention.device)].argmax(-1))
    result = torch.full((lm.n_layers, lm.n_heads, len(rows)), -1)
    for layer, positions in by_layer.items():
        result[layer] = positions.cpu()
    return result


@contextmanager
def record_attention(lm: LM, layers: Collection[int], length: int, dtype: torch.dtype) -> Iterator[dict[int, Tensor]]:
    """Record the attention [head, query, key] of these layers while a pass over one text of `length` tokens runs.

    A layer is missing if its model does not use the interface, or if plain attention gives other outputs.
    """
    attention: dict[int, Tensor] = {}
    errors: dict[int, Tensor] = {}
    with _read_during_pass(lm, layers, torch.arange(length), attention, errors, lambda weights: weights.to(dtype)):
        yield attention
    # `not <=`, because an error may be NaN
    for layer in [i for i, error in errors.items() if not error <= _output_tolerance(lm)]:
        del attention[layer]


@torch.no_grad()
def attention_of_texts(lm: LM, ids: Tensor) -> dict[int, Tensor]:
    """Return the attention [text, head, query, key] of all layers with heads, in float32.

    It is read during an ordinary pass where possible: in half precision, plain attention differs from the model's where
    scores are large, as in Qwen2.5.

    Args:
        ids: texts [text, token] of one length.
    """
    with_heads = lm.layers_with_heads
    by_text = []
    for text in ids.to(lm.device):
        with record_attention(lm, with_heads, len(text), torch.float32) as attention, without_cudnn_attention():
            lm.model.base_model(text[None], use_cache=False)
        by_text.append(attention)
    complete = [i for i in with_heads if all(i in attention for attention in by_text)]
    result = {i: torch.stack([attention[i] for attention in by_text]) for i in complete}
    missing = [i for i in with_heads if i not in result]
    if missing:
        result |= attention_of(lm, ids, missing, dtype=torch.float32)
    return dict(sorted(result.items()))


def _argmax_during_pass(lm: LM, text: Tensor, rows: Tensor) -> dict[int, Tensor] | None:
    """Return the most attended position [head, query] by layer, read during an ordinary pass.

    None if the model does not use the interface, or if plain attention gives other outputs.
    """
    with_heads = lm.layers_with_heads
    positions: dict[int, Tensor] = {}
    errors: dict[int, Tensor] = {}
    with (
        _read_during_pass(lm, with_heads, rows, positions, errors, lambda attention: attention.argmax(-1)),
        without_cudnn_attention(),
    ):
        lm.model.base_model(text, use_cache=False)
    same = len(positions) == len(with_heads) and all(error <= _output_tolerance(lm) for error in errors.values())
    return positions if same else None


def _output_tolerance(lm: LM) -> float:
    """Return the relative error up to which outputs count as the same: kernels round weights to lower precision."""
    return 1e-3 if lm.model.dtype in (torch.float32, torch.float64) else 2e-2


@contextmanager
def _read_during_pass(
    lm: LM,
    layers: Collection[int],
    rows: Tensor,
    values: dict[int, Tensor],
    errors: dict[int, Tensor],
    keep: Callable[[Tensor], Tensor],
) -> Iterator[None]:
    """Read attention at these rows of a text while the block runs a pass over it.

    Args:
        values: filled with keep(attention [head, query, key]) by layer.
        errors: filled with the relative difference of the plain outputs from the kernel's, by layer.
    """
    sites = {lm.model.get_submodule(site.attention): layer for layer, site in lm.anatomy.attentions}

    def read(module: nn.Module, output: Tensor, plain: Tensor, attention: Tensor) -> None:
        kernel = output.detach()[:, rows.to(output.device)].to(plain.dtype)
        errors[sites[module]] = (plain - kernel).norm() / kernel.norm().clamp(min=torch.finfo(plain.dtype).tiny)
        values[sites[module]] = keep(attention[0])

    with _plain_attention_too(lm, [module for module, i in sites.items() if i in layers], rows, read):
        yield


@contextmanager
def _plain_attention_too(
    lm: LM, modules: Collection[nn.Module], rows: Tensor, read: Callable[[nn.Module, Tensor, Tensor, Tensor], None]
) -> Iterator[None]:
    """Compute plain attention in addition to the kernel's, whenever a module runs its attention through the interface.

    What the model computes does not change. If its plain attention takes other arguments, `read` is not called.

    Args:
        rows: the queries for which plain attention is computed.
        read: called with the module, the kernel's output, the plain output, and the plain attention.
    """

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
            queries = rows.to(query.device)
            precision = torch.promote_types(query.dtype, torch.float32)
            with torch.no_grad():
                row_mask = _mask_rows(mask, queries, key.shape[2], options.get("sliding_window"))
                arguments = (t.to(precision) for t in (query[:, :, queries], key, value, row_mask))
                try:
                    plain_output, attention = plain(module, *arguments, **options)
                except torch.OutOfMemoryError:
                    raise
                except (RuntimeError, TypeError, ValueError, AttributeError):
                    return output, weights
                read(module, output, plain_output, attention)
        return output, weights

    plain = {module: plain_attention(module) for module in modules if hasattr(module, "config")}
    functions = {module: partial(attend, function) for module, function in plain.items() if function}
    with attention_through(lm, functions) if functions else nullcontext():
        yield


def _mask_rows(mask: Tensor | None, rows: Tensor, keys: int, window: int | None) -> Tensor:
    """Return the additive mask of these queries: [1, 1, query, key]."""
    if mask is not None and mask.dtype != torch.bool:
        return mask[:, :, rows, :keys]
    if mask is not None:
        visible = mask[:, :, rows, :keys]
    else:
        # kernels get no mask if it is causal, or a causal window
        distance = rows[:, None] - torch.arange(keys, device=rows.device)
        visible = ((distance >= 0) & (distance < (window or keys)))[None, None]
    return torch.zeros(visible.shape, device=visible.device).masked_fill(~visible, torch.finfo(torch.float32).min)
