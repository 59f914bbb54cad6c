"""Fewer kernels for long fits of wide models on a GPU: norms and MLPs compiled, whatever the architecture.

Of an update at the shape of Llama-3.1-8B, a third of the time goes to norms, activations and sums, which wait for
memory. The parts of a block that hold no heads are compiled, so hooks on heads stay as they are. Where that cannot be
done (no compiler, experts that are chosen by data), the model runs as it is.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from headatlas.models.gradients import HALF, is_norm
from headatlas.models.lm import LM

log = logging.getLogger(__name__)

REPAID = 100  # passes with gradients that are worth compiling for
WIDE = 1024  # d_model; narrower models wait for the host, to which compiled parts are more work


@contextmanager
def fused(lm: LM, passes: int) -> Iterator[None]:
    """The model with compiled norms and MLPs while the block runs, if so many passes repay compiling."""
    repaid = passes >= REPAID and lm.d_model >= WIDE and lm.device.type == "cuda"
    with compiled(lm) if repaid else nullcontext():
        yield


@contextmanager
def compiled(lm: LM, backend: str = "inductor") -> Iterator[list[str]]:
    """Compile the parts of each block that hold no heads. Gives the names of their classes."""
    kinds: dict[type[nn.Module], bool] = {}
    with ExitStack() as stack, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "TensorFloat32 tensor cores")  # float32 is asked for, and means that
        for module in _parts_without_heads(lm):
            kind = type(module)
            if kind not in kinds:
                kinds[kind] = _can_compile(module, lm, backend)
            if kinds[kind]:
                _set_forward(module, backend)
                stack.callback(module.__dict__.pop, "forward")
        yield [kind.__name__ for kind, good in kinds.items() if good]


def _parts_without_heads(lm: LM) -> Iterator[nn.Module]:
    """Children of the blocks that take and give the residual stream, and hold nothing that heads are read from."""
    for i, site in enumerate(lm.anatomy.sites):
        path = f"{lm.anatomy.blocks}.{i}"
        of_heads = () if site is None else (site.out, site.value)
        for name, child in lm.model.get_submodule(path).named_children():
            if site is None or any(at.startswith(f"{path}.{name}.") for at in of_heads):
                continue
            if any(True for _ in child.parameters()) and "forward" not in vars(child):
                yield child


def _set_forward(module: nn.Module, backend: str) -> None:
    compiler: Any = torch.compile(module.forward, fullgraph=True, dynamic=True, backend=backend)
    vars(module)["forward"] = compiler


def _can_compile(module: nn.Module, lm: LM, backend: str) -> bool:
    """Whether it gives the same compiled, forwards and backwards."""
    weight = next(module.parameters())
    generator = torch.Generator().manual_seed(0)
    # under a float32 stream, norms read the stream, and MLPs what norms make of it
    in_float32 = is_norm(module) and torch.is_autocast_enabled(weight.device.type)
    dtype = torch.float32 if in_float32 else lm.model.dtype
    x = torch.randn(2, 24, lm.d_model, generator=generator).to(weight.device, dtype).requires_grad_()
    try:
        with torch.enable_grad():
            expected = _run(module, x)
            _set_forward(module, backend)
            try:
                result = _run(module, x)
            finally:
                del vars(module)["forward"]
    except (RuntimeError, ValueError, TypeError, AttributeError, IndexError, OSError, ImportError) as e:
        log.info("%s runs as it is, it cannot be compiled: %s", type(module).__name__, str(e).partition("\n")[0])
        return False
    near = 5e-2 if lm.model.dtype in HALF else 1e-4
    return all(bool((a - b).abs().max() <= near * b.abs().max()) for a, b in zip(result, expected, strict=True))


def _run(module: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = module(x)
    (slope,) = torch.autograd.grad((y * x.detach().roll(1, -1)).sum(), x)  # a plain sum has no slope behind a norm
    return y.detach(), slope
