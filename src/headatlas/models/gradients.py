"""Prepare a model for gradients in gates: freeze its weights and, in half precision, keep the stream in float32.

In a bfloat16 residual stream, most gradients are as exact as the rounding of the matrices allows, but a few are not:
for one of 32 syntax prompts, the error was 364 % in layer 0 of Qwen2.5-Coder-1.5B. In a float32 stream it is 69 %
(docs/evidence/larger-model.md). The precision of the matrices does not change.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, rms_norm

from headatlas.models.hooks import replace_forward
from headatlas.models.lm import LM
from headatlas.models.log_probs import batches, log_probs
from headatlas.models.memory import halve_batch_on_oom, tokens_at_once
from headatlas.models.tokens import TokenExample, make_bundle
from headatlas.progress import Progress, silent

HALF = (torch.bfloat16, torch.float16)


@contextmanager
def frozen_float32_stream(lm: LM) -> Iterator[None]:
    """Freeze the weights and, in half precision, keep the residual stream in float32, while the block runs."""
    with lm.state.lock:
        trainable = [p for p in lm.model.parameters() if p.requires_grad]
        try:
            for p in trainable:
                p.requires_grad_(False)
            with float32_stream(lm):
                yield
        finally:
            for p in trainable:
                p.requires_grad_(True)


def gate_gradients(
    lm: LM,
    questions: Sequence[TokenExample],
    levels: Sequence[float] = (1.0,),
    *,
    tokens: int | None = None,
    label: str = "gradients",
    progress: Progress = silent,
) -> Tensor:
    """Compute ∂ log P(target) / ∂ gate [example, layer, head], averaged over the `levels` that all gates take."""
    budget = tokens_at_once(lm, tokens)
    bundles = [make_bundle([a]) for a in questions]
    gradients = torch.zeros(len(questions), lm.n_layers, lm.n_heads)
    gradients[:, lm.layers_without_heads] = torch.nan
    with frozen_float32_stream(lm):
        for level_slice, rows in progress(list(batches(bundles, len(levels), budget)), label):
            level = torch.tensor(levels[level_slice])[:, None, None, None]
            gate = level.expand(-1, len(rows), lm.n_layers, lm.n_heads).clone().requires_grad_()
            with halve_batch_on_oom(lm, budget):
                log_p, _ = log_probs(lm, [bundles[i] for i in rows], gate)
                (gradient,) = torch.autograd.grad(log_p.sum(), gate)
            gradients[rows] += gradient.sum(0) / len(levels)
    return gradients


@contextmanager
def float32_stream(lm: LM) -> Iterator[None]:
    """Sum the outputs of layers in float32 while the block runs, if the model is in half precision."""
    dtype = lm.model.dtype
    if dtype not in HALF:
        yield
        return
    blocks = f"{lm.anatomy.blocks}."
    with ExitStack() as stack:
        stack.enter_context(lm.state.lock)
        # a float32 embedding makes a float32 stream; autocast runs the matrices in half precision all the same
        embedding = lm.model.get_input_embeddings()
        stack.callback(embedding.register_forward_hook(lambda module, args, output: output.float()).remove)
        for name, module in lm.model.named_modules():
            forward = _layer_norm_in(module, dtype)
            if name.startswith(blocks) and is_norm(module):
                if name not in lm.state.plain_norms:
                    lm.state.plain_norms[name] = _is_plain(module)
                forward = partial(_in_half, module, forward or module.forward, dtype, lm.state.plain_norms[name])
            if forward is not None:
                stack.enter_context(replace_forward(module, forward))
        for device in {p.device.type for p in lm.model.parameters()}:
            stack.enter_context(torch.autocast(device, dtype))
        yield


def _layer_norm_in(module: nn.Module, dtype: torch.dtype) -> Callable[[Tensor], Tensor] | None:
    """Return a forward that casts a layer norm's weights to its input's type, as CPUs need; None if it needs none."""
    if type(module).forward is not nn.LayerNorm.forward or "forward" in vars(module):
        return None
    norm: Any = module
    if norm.weight is None or norm.weight.dtype != dtype:
        return None

    def forward(x: Tensor) -> Tensor:
        bias = None if norm.bias is None else norm.bias.to(x.dtype)
        return layer_norm(x, norm.normalized_shape, norm.weight.to(x.dtype), bias, norm.eps)

    return forward


def is_norm(module: nn.Module) -> bool:
    """Return whether a module is a norm, by the name of its class."""
    return type(module).__name__.endswith("Norm")


@torch.no_grad()
def _is_plain(norm: Any) -> bool:
    """Return whether a norm is x / √(mean x² + ε) · weight, by running it on some numbers.

    PyTorch computes that in one kernel, where models launch eight.
    """
    epsilon = _epsilon(norm)
    # a norm with a replaced forward must keep it: accelerate's reads offloaded weights
    if epsilon is None or not isinstance(getattr(norm, "weight", None), torch.Tensor) or "forward" in vars(norm):
        return False
    try:
        x = torch.linspace(-1, 2, 4 * norm.weight.numel()).sin().view(4, *norm.weight.shape).to(norm.weight.device)
        expected = norm(x).float()
        result = _plain_norm(norm, x, epsilon)
        return bool(torch.allclose(result, expected, rtol=5e-3, atol=1e-4 * float(expected.abs().max())))
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError, AssertionError):
        return False


def _plain_norm(norm: Any, x: torch.Tensor, epsilon: float) -> torch.Tensor:
    return rms_norm(x, norm.weight.shape, norm.weight.to(x.dtype), epsilon)


def _epsilon(norm: Any) -> float | None:
    return next((e for name in ("variance_epsilon", "eps") if isinstance(e := getattr(norm, name, None), float)), None)


def _in_half(
    norm: nn.Module, forward: Callable[..., Tensor], dtype: torch.dtype, plain: bool, *args: Any, **kwargs: Any
) -> Tensor:
    """Run a norm and round its output to half precision, once for all the matrices that read it."""
    epsilon = _epsilon(norm)
    # some norms take a gate as a second argument
    if plain and epsilon is not None and len(args) == 1 and not kwargs:
        return _plain_norm(norm, args[0], epsilon).to(dtype)
    return forward(*args, **kwargs).to(dtype)
