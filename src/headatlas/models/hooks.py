"""Hooks on the output projections: read, scale, remove and replace single heads while a model runs.

`z[l, h]` is the h-th slice of what enters layer l's attention output projection, so one forward pre-hook on that
projection is enough: no part of the model is rewritten, fused attention kernels stay in use, and edits of z are exact.

Texts are counted in their own tokens: token 0 is the first real token of a text, however the batch is padded.
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
    """Any way of naming heads → bool [layer, head]."""
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
    """A gate as a float tensor [layer, head] or [batch, layer, head]; NaN is allowed only where there is no head."""
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
    """Scale z by gate [layer, head] or [batch, layer, head]; differentiable in the gate."""
    by_layer = gate.unbind(-2)  # the gradient of picking a layer would be as large as the gate, for each of them

    def edit(layer: int, z: Tensor, index: Tensor | None) -> Tensor:
        factor = by_layer[layer].to(z.device, z.dtype)[..., None]  # [head, 1] or [batch, head, 1]
        if gate.ndim == 3:
            if len(gate) != len(z):
                raise BadArgument(f"gate is for a batch of {len(gate)}, but the model was run on a batch of {len(z)}")
            factor = factor[:, None]
        return z * factor if index is None else torch.where(chosen(index, positions), z * factor, z)

    return edit


def patch_edit(mask: Tensor, value: Tensor, add: bool = False, positions: Positions = "all") -> Edit:
    """Replace z of the heads in mask [layer, head] by value (or add value to it).

    value: [] or [d_head] for all of them, [layer, head, d_head], or [example, token, layer, head, d_head], where
    token t of the value goes to token t of the text. NaN leaves z as it is.
    """

    def edit(layer: int, z: Tensor, index: Tensor | None) -> Tensor:
        here = mask[layer].to(z.device)[:, None]  # [head, 1]
        if value.ndim == 5:
            assert index is not None
            new = _align(value[:, :, layer], index).to(z.device, z.dtype)
        else:
            new = (value[layer] if value.ndim == 3 else value).to(z.device, z.dtype)
        here = here & ~torch.isnan(new)
        if index is not None:
            here = here & chosen(index, positions)
        return torch.where(here, z + new if add else new, z)

    return edit


def _align(value: Tensor, index: Tensor) -> Tensor:
    """value [example, token, head, d_head] at the tokens index [batch, token] names; NaN where it has none."""
    if len(value) not in (1, len(index)):
        raise BadArgument(f"value is for {len(value)} examples, but the model was run on a batch of {len(index)}")
    index = index.to(value.device)
    rows = torch.arange(len(index), device=value.device)[:, None] if len(value) > 1 else torch.zeros_like(index)
    inside = (index >= 0) & (index < value.shape[1])
    aligned = value[rows, index.clamp(0, value.shape[1] - 1)]
    return torch.where(inside[..., None, None], aligned, torch.nan)


def chosen(index: Tensor, positions: Positions) -> Tensor:
    """Which tokens positions means: bool [batch, token, 1, 1]. Negative ones count from the last token seen so far."""
    real = index >= 0
    if not isinstance(positions, str):
        end = index.amax(dim=1, keepdim=True) + 1
        real = torch.stack([index == (p if p >= 0 else end + p) for p in positions]).any(0) & real
    elif positions == "last":
        real = real & (index == index.amax(dim=1, keepdim=True))
    return real[..., None, None]


def check_positions(positions: Positions) -> Positions:
    if isinstance(positions, str):
        if positions not in ("all", "last"):
            raise BadArgument(f"positions is {positions!r}, expected 'all', 'last' or a list of token numbers")
        return positions
    listed = [int(p) for p in positions]
    if not listed:
        raise BadArgument("positions is empty: name at least one token")
    return listed


@contextmanager
def hooked(model: PreTrainedModel, anatomy: Anatomy, on_z: Callable[[int, Tensor], Tensor | None]) -> Iterator[None]:
    """Call on_z(layer, z [batch, token, head, d_head]) in every layer with heads; its result, unless None, replaces z.

    Nests: an inner one sees what an outer one did. Whatever happens in the block, no hook stays behind.
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
    """Call on_x(layer, x [batch, token, d_model]) with what enters every layer's attention, after the layer's norm."""

    def hook(layer: int, module: Any, args: Any) -> None:
        on_x(layer, args[0])

    with ExitStack() as stack:
        for layer, site in anatomy.attentions:
            projection = model.get_submodule(site.latent or site.value)
            stack.callback(projection.register_forward_pre_hook(partial(hook, layer)).remove)
        yield


@contextmanager
def forward_replaced(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Run `forward` in place of a module's own while the block runs. The model's lock is to be held."""
    before = vars(module).get("forward")  # accelerate sets one
    vars(module)["forward"] = forward
    try:
        yield
    finally:
        if before is None:
            del vars(module)["forward"]
        else:
            vars(module)["forward"] = before


@contextmanager
def edited(model: PreTrainedModel, anatomy: Anatomy, edit: Edit, needs_index: bool) -> Iterator[None]:
    """Pass every layer's z through `edit` while the block runs."""
    tokens = _TokenIndex()
    with ExitStack() as stack:
        if needs_index:
            for module in dict.fromkeys((model, model.base_model)):  # whichever the caller runs, it gets the plain mask
                stack.callback(module.register_forward_pre_hook(tokens, with_kwargs=True).remove)
        stack.enter_context(hooked(model, anatomy, lambda layer, z: edit(layer, z, tokens.index)))
        yield


class _TokenIndex:
    """Hook on the model that works out which token of its text every position of the running batch is."""

    index: Tensor | None = None

    def __call__(self, module: Any, args: Any, kwargs: Any) -> None:
        inputs = signature(module.forward).bind_partial(*args, **kwargs).arguments
        inputs |= inputs.pop("kwargs", {})
        tokens = inputs.get("input_ids")
        if tokens is None:
            tokens = inputs["inputs_embeds"]
        batch, length = tokens.shape[:2]
        mask, past = inputs.get("attention_mask"), inputs.get("past_key_values")
        if mask is None:
            mask = torch.ones(batch, length + (past.get_seq_length() if past is not None else 0), device=tokens.device)
        if not isinstance(mask, Tensor) or mask.ndim != 2:
            raise BadArgument("positions other than 'all' need a plain [batch, token] attention mask")
        mask = mask.bool()
        self.index = torch.where(mask, mask.cumsum(dim=1) - 1, -1)[:, -length:]


@dataclass
class Passes:
    """Tokens that went through the model, and how many of them with gradients; some of the layers count in part."""

    forward: float = 0.0
    backward: float = 0.0


@contextmanager
def counted(lm: "LM") -> Iterator[Passes]:
    """Count tokens, layer by layer, while the block runs. Layers that are skipped (replayed runs) do not count."""
    passes = Passes()
    layers = len(lm.layers_with_heads)

    def count(layer: int, z: Tensor) -> None:
        share = z.shape[0] * z.shape[1] / layers
        passes.forward += share
        passes.backward += share * torch.is_grad_enabled()

    with hooked(lm.model, lm.anatomy, count):
        yield passes
