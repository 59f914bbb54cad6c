"""Hooks on the output projections: read, scale, remove and replace single heads while a model runs.

`z[l, h]` is the h-th slice of the input of layer l's attention output projection, so one forward pre-hook on that
projection is enough: no part of the model is rewritten, fused attention kernels stay in use, and edits of z are exact.

Token numbers do not count padding: token 0 is the first real token of a text, on whichever side the batch is padded.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headatlas.errors import BadArgument
from headatlas.models.families import Anatomy, Site
from headatlas.models.head_names import Head, is_pair, parse_head

if TYPE_CHECKING:
    from headatlas.models.lm import LM


Positions = Literal["all", "last"] | Sequence[int]
Edit = Callable[[int, Tensor, Tensor | None], Tensor]
"""(layer, z [batch, token, head, d_head], token index [batch, token] or None) → z. Padding has index −1."""


def head_mask(heads: Head | Iterable[Head] | Tensor, anatomy: Anatomy) -> Tensor:
    """Return heads, given in any of the accepted ways, as a mask: bool [layer, head]."""
    shape = (anatomy.n_layers, anatomy.n_heads)
    if hasattr(heads, "shape"):
        mask = torch.as_tensor(heads)
        if mask.dtype != torch.bool or mask.shape != shape:
            raise BadArgument(
                f"heads has shape {tuple(mask.shape)} and type {mask.dtype},"
                f" expected a bool mask [layer, head] = {shape}"
            )
        return mask
    listed: list[Any] = [heads] if isinstance(heads, str) or is_pair(heads) else list(heads)
    mask = torch.zeros(shape, dtype=torch.bool)
    for head in listed:
        mask[parse_head(head, anatomy)] = True
    return mask


def check_gate(gate: Any, anatomy: Anatomy) -> Tensor:
    """Return a gate as a float tensor [layer, head] or [batch, layer, head].

    NaN is allowed in layers without heads: maps have it there.
    """
    try:
        g = gate if isinstance(gate, Tensor) else torch.as_tensor(getattr(gate, "values", gate))
    except (TypeError, ValueError, RuntimeError) as e:
        raise BadArgument(
            f"gate is a {type(gate).__name__}, expected numbers [layer, head] or [batch, layer, head]"
        ) from e
    if g.is_complex():
        raise BadArgument("gate is complex, expected real numbers")
    if not g.is_floating_point():
        g = g.to(torch.float32)
    shape = (anatomy.n_layers, anatomy.n_heads)
    if g.ndim not in (2, 3) or g.shape[-2:] != shape:
        raise BadArgument(f"gate has shape {tuple(g.shape)}, expected [layer, head] = {shape} or [batch, layer, head]")
    bad = ~torch.isfinite(g.detach()) & anatomy.has_heads.to(g.device)[:, None]
    if bad.any():
        *_, layer, head = bad.nonzero()[0].tolist()
        raise BadArgument(f"gate has {int(bad.sum())} values that are NaN or infinite, the first at L{layer}.H{head}")
    return g


def gate_edit(gate: Tensor, positions: Positions = "all") -> Edit:
    """Return an edit that scales z by gate [layer, head] or [batch, layer, head]; differentiable in the gate."""
    # unbound at once: the gradient of indexing one layer is as large as the whole gate
    by_layer = gate.unbind(-2)

    def edit(layer: int, z: Tensor, index: Tensor | None) -> Tensor:
        factor = by_layer[layer].to(z.device, z.dtype)[..., None]  # [head, 1] or [batch, head, 1]
        if gate.ndim == 3:
            if len(gate) != len(z):
                raise BadArgument(f"gate is for a batch of {len(gate)}, but the model was run on a batch of {len(z)}")
            factor = factor[:, None]
        return z * factor if index is None else torch.where(position_mask(index, positions), z * factor, z)

    return edit


def patch_edit(mask: Tensor, value: Tensor, add: bool = False, positions: Positions = "all") -> Edit:
    """Return an edit that replaces z of the heads in mask [layer, head] by value, or adds value to it.

    Args:
        value: [] or [d_head] for all heads, [layer, head, d_head], or [example, token, layer, head, d_head], where
            token t of the value is used at token t of the text. NaN leaves z unchanged.
    """

    def edit(layer: int, z: Tensor, index: Tensor | None) -> Tensor:
        is_patched = mask[layer].to(z.device)[:, None]  # [head, 1]
        if value.ndim == 5:
            assert index is not None
            new = _align(value[:, :, layer], index).to(z.device, z.dtype)
        else:
            new = (value[layer] if value.ndim == 3 else value).to(z.device, z.dtype)
        is_patched = is_patched & ~torch.isnan(new)
        if index is not None:
            is_patched = is_patched & position_mask(index, positions)
        return torch.where(is_patched, z + new if add else new, z)

    return edit


def _align(value: Tensor, index: Tensor) -> Tensor:
    """Return value [example, token, head, d_head] at the tokens in index [batch, token]; NaN for missing tokens."""
    if len(value) not in (1, len(index)):
        raise BadArgument(f"value is for {len(value)} examples, but the model was run on a batch of {len(index)}")
    index = index.to(value.device)
    rows = torch.arange(len(index), device=value.device)[:, None] if len(value) > 1 else torch.zeros_like(index)
    inside = (index >= 0) & (index < value.shape[1])
    aligned = value[rows, index.clamp(0, value.shape[1] - 1)]
    return torch.where(inside[..., None, None], aligned, torch.nan)


def position_mask(index: Tensor, positions: Positions) -> Tensor:
    """Return which tokens are at these positions: bool [batch, token, 1, 1].

    Negative positions count from the last token that the model has seen so far.
    """
    real = index >= 0
    if not isinstance(positions, str):
        end = index.amax(dim=1, keepdim=True) + 1
        real = torch.stack([index == (p if p >= 0 else end + p) for p in positions]).any(0) & real
    elif positions == "last":
        real = real & (index == index.amax(dim=1, keepdim=True))
    return real[..., None, None]


def check_positions(positions: Positions) -> Positions:
    """Return positions as 'all', 'last' or a list of whole numbers."""
    if isinstance(positions, str):
        if positions not in ("all", "last"):
            raise BadArgument(f"positions is {positions!r}, expected 'all', 'last' or a list of token numbers")
        return positions
    numbers = [int(p) for p in positions]
    if not numbers:
        raise BadArgument("positions is empty: give at least one token number")
    return numbers


@contextmanager
def hooked(model: PreTrainedModel, anatomy: Anatomy, on_z: Callable[[int, Tensor], Tensor | None]) -> Iterator[None]:
    """Call on_z(layer, z [batch, token, head, d_head]) in every layer with heads; its result, unless None, replaces z.

    Blocks may be nested: the inner one sees the z that the outer one returned. All hooks are removed at the end of the
    block, after errors too.
    """

    def hook(layer: int, site: Site, module: Any, args: Any) -> Any:
        z = on_z(layer, args[0].unflatten(-1, (site.n_heads, site.d_head)))
        return None if z is None else (z.flatten(-2), *args[1:])

    with ExitStack() as stack:
        for layer, site in anatomy.attentions:
            projection = model.get_submodule(site.out)
            stack.callback(projection.register_forward_pre_hook(partial(hook, layer, site)).remove)
        yield


@contextmanager
def reading_inputs(model: PreTrainedModel, anatomy: Anatomy, on_x: Callable[[int, Tensor], None]) -> Iterator[None]:
    """Call on_x(layer, x [batch, token, d_model]) with the input of every layer's attention, after the layer's norm."""

    def hook(layer: int, module: Any, args: Any) -> None:
        on_x(layer, args[0])

    with ExitStack() as stack:
        for layer, site in anatomy.attentions:
            projection = model.get_submodule(site.latent or site.value)
            stack.callback(projection.register_forward_pre_hook(partial(hook, layer)).remove)
        yield


@contextmanager
def replace_forward(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Replace a module's forward while the block runs. The caller must hold the model's lock."""
    # None unless accelerate, or an outer block, has set one
    before = vars(module).get("forward")
    vars(module)["forward"] = forward
    try:
        yield
    finally:
        if before is None:
            del vars(module)["forward"]
        else:
            vars(module)["forward"] = before


@contextmanager
def edit_outputs(model: PreTrainedModel, anatomy: Anatomy, edit: Edit, needs_index: bool) -> Iterator[None]:
    """Pass every layer's z through `edit` while the block runs."""
    tokens = _TokenIndex()
    with ExitStack() as stack:
        if needs_index:
            # on both, because callers may run either, and only the one they call gets the plain mask
            for module in dict.fromkeys((model, model.base_model)):
                stack.callback(module.register_forward_pre_hook(tokens, with_kwargs=True).remove)
        stack.enter_context(hooked(model, anatomy, lambda layer, z: edit(layer, z, tokens.index)))
        yield


class _TokenIndex:
    """Hook on the model that finds, for every position of the running batch, its token number in the text."""

    index: Tensor | None = None

    def __call__(self, module: Any, args: Any, kwargs: Any) -> None:
        inputs = signature(module.forward).bind_partial(*args, **kwargs).arguments
        inputs |= inputs.pop("kwargs", {})
        tokens = inputs.get("input_ids")
        if tokens is None:
            tokens = inputs["inputs_embeds"]
        batch, length = tokens.shape[:2]
        mask = inputs.get("attention_mask")
        past = inputs.get("past_key_values")
        if mask is None:
            mask = torch.ones(batch, length + (past.get_seq_length() if past is not None else 0), device=tokens.device)
        if not isinstance(mask, Tensor) or mask.ndim != 2:
            raise BadArgument("positions other than 'all' need a plain [batch, token] attention mask")
        mask = mask.bool()
        self.index = torch.where(mask, mask.cumsum(dim=1) - 1, -1)[:, -length:]


@dataclass
class TokenCounts:
    """Number of tokens that a model ran, and of those with gradients. Fractions come from passes of some layers."""

    forward: float = 0.0
    backward: float = 0.0


@contextmanager
def count_tokens(lm: "LM") -> Iterator[TokenCounts]:
    """Count tokens, layer by layer, while the block runs. Layers that are skipped (replayed runs) do not count."""
    counts = TokenCounts()
    n_layers = len(lm.layers_with_heads)

    def count(layer: int, z: Tensor) -> None:
        share = z.shape[0] * z.shape[1] / n_layers
        counts.forward += share
        counts.backward += share * torch.is_grad_enabled()

    with hooked(lm.model, lm.anatomy, count):
        yield counts
