"""Fewer kernels for long fits of wide models on a GPU: MLPs and rotary embeddings compiled, whatever the architecture.

Of an update at the shape of Llama-3.1-8B, a third of the time goes to activations, rotations, norms and sums, which
wait for memory. MLPs and rotary embeddings hold no heads, so hooks on heads stay as they are. Norms are not compiled:
they are one kernel already, and calling compiled ones took the host longer than they saved. Where compiling cannot be
done (no compiler, experts that are chosen by data), the model runs as it is.
"""

import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache, partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch._dynamo.exc import TorchDynamoException

from headatlas.models.gradients import HALF, is_norm
from headatlas.models.lm import LM

log = logging.getLogger(__name__)

REPAID = 500  # updates of one fit that are worth compiling for: it takes 12 s, and saves about 0.01 s an update
WIDE = 1024  # d_model; narrower models wait for the host, to which compiled parts are more work
ROTARY = "apply_rotary_pos_emb"  # what it is called beside every attention of transformers: (q, k, cos, sin) → q, k


@contextmanager
def fused(lm: LM, updates: int) -> Iterator[None]:
    """The model with compiled MLPs and rotary embeddings while the block runs, if so many updates repay compiling."""
    repaid = updates >= REPAID and lm.d_model >= WIDE and lm.device.type == "cuda"
    with compiled(lm) if repaid else nullcontext():
        yield


@contextmanager
def compiled(lm: LM, backend: str = "inductor") -> Iterator[dict[str, bool]]:
    """Compile MLPs and rotary embeddings while the block runs; the latter for all models of the family.

    Gives a dict that passes with gradients fill: what they met, by name, and whether it is compiled.
    """
    tried: dict[str, bool] = {}
    with ExitStack() as stack, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "TensorFloat32 tensor cores")  # float32 is asked for, and means that
        warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf")  # the compiler's own
        warnings.filterwarnings("ignore", category=DeprecationWarning)  # the compiler's, and of what it reads
        for mlp in _mlps(lm):
            stack.callback(vars(mlp).pop, "forward")
            vars(mlp)["forward"] = _compiled(type(mlp).__name__, mlp.forward, backend, tried)
        for home in _attention_code(lm):
            plain = getattr(home, ROTARY)
            stack.callback(setattr, home, ROTARY, plain)
            setattr(home, ROTARY, _compiled(ROTARY, _keeping_precision(plain), backend, tried))
        yield tried


def _mlps(lm: LM) -> Iterator[nn.Module]:
    """Children of the blocks that take and give the residual stream, and hold nothing that heads are read from."""
    for i, site in enumerate(lm.anatomy.sites):
        path = f"{lm.anatomy.blocks}.{i}"
        of_heads = () if site is None else (site.out, site.value)
        for name, child in lm.model.get_submodule(path).named_children():
            if site is None or is_norm(child) or any(at.startswith(f"{path}.{name}.") for at in of_heads):
                continue
            parts = any(True for _ in child.children())  # a matrix or a norm alone would have nothing to fuse
            if parts and any(True for _ in child.parameters()) and "forward" not in vars(child):
                yield child


def _attention_code(lm: LM) -> list[ModuleType]:
    """The Python modules that the attention comes from, where they rotate queries and keys and are not patched yet."""
    parents = {site.out.rpartition(".")[0] for site in lm.anatomy.sites if site is not None}
    homes = {type(lm.model.get_submodule(path)).__module__ for path in parents}
    found = [sys.modules[home] for home in sorted(homes) if hasattr(sys.modules.get(home), ROTARY)]
    return [home for home in found if getattr(home, ROTARY).__module__ != __name__]


def _keeping_precision(rotate: Callable[..., Any]) -> Callable[..., Any]:
    """q and k in the precision they came in.

    Under a float32 stream attention rounds them to it anyway. Where a norm comes first, it gets what it would get
    without that stream.
    """

    def rotated(q: Tensor, *args: Any, **kwargs: Any) -> Any:
        result = rotate(q, *args, **kwargs)
        return tuple(x.to(q.dtype) for x in result) if isinstance(result, tuple) else result

    return rotated


def _compiled(name: str, plain: Callable[..., Any], backend: str, tried: dict[str, bool]) -> Callable[..., Any]:
    """Compiled where gradients flow, because other passes are few, and if that gives the same.

    Compiled once more for other kinds of inputs, up to PyTorch's limit, beyond which it runs as it is.
    """
    # made when it is first called: some machines cannot compile at all
    fast = cache(partial(torch.compile, plain, dynamic=True, backend=backend))

    def run(*args: Any, **kwargs: Any) -> Any:
        if not _learning(args, kwargs):
            return plain(*args, **kwargs)
        if name not in tried:
            tried[name] = _same_compiled(name, plain, backend, args, kwargs)
        if tried[name]:
            try:
                return fast()(*args, **kwargs)
            except TorchDynamoException as e:  # while compiling, before anything has run
                tried[name] = _as_it_is(name, e)
        return plain(*args, **kwargs)

    return run


def _same_compiled(
    name: str, plain: Callable[..., Any], backend: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Whether it can be compiled as a whole, and then gives the same, forwards and backwards."""
    try:
        whole = torch.compile(plain, fullgraph=True, dynamic=True, backend=backend)
        expected, result = (_run(f, args, kwargs) for f in (plain, whole))
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, TypeError, AttributeError, LookupError, OSError, ImportError) as e:
        return _as_it_is(name, e)
    near = 5e-2 if any(y.dtype in HALF for y in expected) else 1e-4
    same = all(bool((a - b).abs().max() <= near * b.abs().max()) for a, b in zip(result, expected, strict=True))
    return same or _as_it_is(name, "it would give something else")


def _as_it_is(name: str, why: object) -> bool:
    """Says why a part is not compiled. False: it is not."""
    log.info("%s runs as it is, it cannot be compiled: %s", name, str(why).partition("\n")[0])
    return False


def _run(work: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """What it gives, and gradients of an uneven sum of it; on copies, so that the model's own graph stays whole."""
    args, kwargs = tuple(map(_leaf, args)), {name: _leaf(x) for name, x in kwargs.items()}
    result = work(*args, **kwargs)
    outputs = result if isinstance(result, tuple) else (result,)
    total = sum((y * y.detach().roll(1, -1)).sum() for y in outputs)
    slopes = torch.autograd.grad(total, _learning(args, kwargs))
    return [y.detach() for y in (*outputs, *slopes)]


def _leaf(x: Any) -> Any:
    return x.detach().requires_grad_() if isinstance(x, Tensor) and x.requires_grad else x


def _learning(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """The inputs that gradients flow back to."""
    return [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.requires_grad]
