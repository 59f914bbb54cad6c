"""Getting a model ready for gradients in gates: weights are frozen, and in half precision the stream is float32.

In a bfloat16 stream, gradients of most prompts are as good as rounding of matrices allows, but those of a few are not:
of 32 prompts of syntax, one was off by 364 % in layer 0 of Qwen2.5-Coder-1.5B. With a float32 stream it is 69 %
(docs/evidence/larger-model.md). Matrices stay as they are.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, rms_norm

from headatlas.models.hooks import forward_replaced
from headatlas.models.lm import LM
from headatlas.models.log_probs import batches, log_probs
from headatlas.models.memory import halve_batch_on_oom, tokens_at_once
from headatlas.models.tokens import TokenExample, make_bundle
from headatlas.progress import Progress, silent

HALF = (torch.bfloat16, torch.float16)


@contextmanager
def for_gradients(lm: LM) -> Iterator[None]:
    """Weights without gradients and, in half precision, a float32 stream; as they were before when the block ends."""
    with lm.state.lock:
        learning = [p for p in lm.model.parameters() if p.requires_grad]
        try:
            for p in learning:
                p.requires_grad_(False)
            with float32_stream(lm):
                yield
        finally:
            for p in learning:
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
    """Compute ∂ log P(target) / ∂ gate [example, layer, head], averaged over `levels` that all gates are set to."""
    budget = tokens_at_once(lm, tokens)
    bundles = [make_bundle([a]) for a in questions]
    gradients = torch.zeros(len(questions), lm.n_layers, lm.n_heads)
    gradients[:, lm.layers_without_heads] = torch.nan
    with for_gradients(lm):
        for levels_now, rows in progress(list(batches(bundles, len(levels), budget)), label):
            level = torch.tensor(levels[levels_now])[:, None, None, None]
            gate = level.expand(-1, len(rows), lm.n_layers, lm.n_heads).clone().requires_grad_()
            with halve_batch_on_oom(lm, budget):
                log_p, _ = log_probs(lm, [bundles[i] for i in rows], gate)
                (gradient,) = torch.autograd.grad(log_p.sum(), gate)
            gradients[rows] += gradient.sum(0) / len(levels)
    return gradients


@contextmanager
def float32_stream(lm: LM) -> Iterator[None]:
    """What layers write is added up in float32, where the model is in half precision. Matrices stay as they are."""
    dtype = lm.model.dtype
    if dtype not in HALF:
        yield
        return
    blocks = f"{lm.anatomy.blocks}."
    with ExitStack() as stack:
        stack.enter_context(lm.state.lock)
        embedding = lm.model.get_input_embeddings()
        stack.callback(embedding.register_forward_hook(lambda module, args, output: output.float()).remove)
        for name, module in lm.model.named_modules():
            forward = _layer_norm_in(module, dtype)
            if name.startswith(blocks) and is_norm(module):
                if name not in lm.state.plain_norms:
                    lm.state.plain_norms[name] = _is_plain(module)
                forward = partial(_in_half, module, forward or module.forward, dtype, lm.state.plain_norms[name])
            if forward is not None:
                stack.enter_context(forward_replaced(module, forward))
        for device in {p.device.type for p in lm.model.parameters()}:
            stack.enter_context(torch.autocast(device, dtype))
        yield


def _layer_norm_in(module: nn.Module, dtype: torch.dtype) -> Callable[[Tensor], Tensor] | None:
    """The forward of a layer norm with weights in `dtype`, with them in the type of its input, as CPUs want it."""
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
    """Whether it is a norm, by the name of its class."""
    return type(module).__name__.endswith("Norm")


@torch.no_grad()
def _is_plain(norm: Any) -> bool:
    """Whether a norm is x / √(mean x² + ε) · weight, tried on some numbers: PyTorch does that in one kernel, where
    models launch eight."""
    epsilon = _epsilon(norm)
    if epsilon is None or not isinstance(getattr(norm, "weight", None), torch.Tensor) or "forward" in vars(norm):
        return False  # accelerate's forward brings offloaded weights in
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


def _in_half(
    norm: nn.Module, forward: Callable[..., Tensor], dtype: torch.dtype, plain: bool, *args: Any, **kwargs: Any
) -> Tensor:
    """A norm that gives half precision: else each of the matrices behind it would round its output for itself."""
    epsilon = _epsilon(norm)
    if plain and epsilon is not None and len(args) == 1 and not kwargs:  # some norms take a gate, too
        return _plain(norm, args[0], epsilon).to(dtype)
    return forward(*args, **kwargs).to(dtype)
