"""Getting a model ready for gradients in gates: weights are frozen, and in half precision the stream is float32.

In a bfloat16 stream, gradients of most prompts are as good as rounding of matrices allows, but those of a few are not:
of 32 prompts of syntax, one was off by 364 % in layer 0 of Qwen2.5-Coder-1.5B. With a float32 stream it is 69 %
(docs/evidence/larger-model.md). Matrices stay as they are.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.nn.functional import rms_norm

from headatlas.models.lm import LM
from headatlas.models.state import state_of

HALF = (torch.bfloat16, torch.float16)


@contextmanager
def for_gradients(lm: LM) -> Iterator[None]:
    """Weights without gradients and, in half precision, a float32 stream; as they were before when the block ends."""
    learning = [p for p in lm.model.parameters() if p.requires_grad]
    try:
        for p in learning:
            p.requires_grad_(False)
        with float32_stream(lm):
            yield
    finally:
        for p in learning:
            p.requires_grad_(True)


@contextmanager
def float32_stream(lm: LM) -> Iterator[None]:
    """What layers write is added up in float32, where the model is in half precision. Matrices stay as they are."""
    dtype = lm.model.dtype
    if dtype not in HALF:
        yield
        return
    norms = [m for m in lm.model.get_submodule(lm.anatomy.blocks).modules() if is_norm(m)]
    layer_norms = [m for m in lm.model.modules() if isinstance(m, nn.LayerNorm) and m.weight is not None]
    plain = state_of(lm.model).plain
    with ExitStack() as stack:
        embedding = lm.model.get_input_embeddings()
        stack.callback(embedding.register_forward_hook(lambda module, args, output: output.float()).remove)
        for norm in layer_norms:
            if norm.weight.dtype == dtype:  # on a CPU, they want the type of what they get
                stack.callback(norm.to, dtype)
                norm.float()
        for norm in norms:
            kind: Any = type(norm)
            if norm not in plain:
                plain[norm] = _is_plain(norm)
            stack.callback(setattr, norm, "__class__", kind)
            norm.__class__ = _in_half(kind, dtype, _epsilon(norm) if plain[norm] else None)
        for device in {p.device.type for p in lm.model.parameters()}:
            stack.enter_context(torch.autocast(device, dtype))
        yield


def is_norm(module: nn.Module) -> bool:
    """Whether it is a norm, by the name of its class."""
    return type(module).__name__.endswith("Norm")


@torch.no_grad()
def _is_plain(norm: Any) -> bool:
    """Whether a norm is x / √(mean x² + ε) · weight, tried on some numbers: PyTorch does that in one kernel, where
    models launch eight."""
    epsilon = _epsilon(norm)
    if epsilon is None or not isinstance(getattr(norm, "weight", None), torch.Tensor):
        return False
    try:
        x = torch.linspace(-1, 2, 4 * norm.weight.numel()).sin().view(4, *norm.weight.shape).to(norm.weight.device)
        expected, result = norm(x).float(), _plain(norm, x, epsilon)
        return bool(torch.allclose(result, expected, rtol=5e-3, atol=1e-4 * float(expected.abs().max())))
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError, AssertionError):
        return False


def _plain(norm: Any, x: torch.Tensor, epsilon: float) -> torch.Tensor:
    return rms_norm(x, norm.weight.shape, norm.weight.to(x.dtype), epsilon)


def _epsilon(norm: Any) -> float | None:
    return next((e for name in ("variance_epsilon", "eps") if isinstance(e := getattr(norm, name, None), float)), None)


@cache
def _in_half(kind: type[nn.Module], dtype: torch.dtype, epsilon: float | None) -> type[nn.Module]:
    """Norms of this kind that give half precision: else each of the matrices behind them would round it for itself.
    epsilon: of plain ones."""

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> torch.Tensor:
        if epsilon is not None and len(args) == 1 and not kwargs:  # some norms take a gate, too
            return _plain(self, args[0], epsilon).to(dtype)
        return kind.forward(self, *args, **kwargs).to(dtype)

    return type(kind.__name__, (kind,), {"forward": forward})
