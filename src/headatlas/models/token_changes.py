"""Changes of single tokens for `answers_while`: a head's output replaced, or a vector added to the residual stream."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from headatlas.models import heads as h
from headatlas.models.answers import Changing
from headatlas.models.lm import LM


def replacing(lm: LM, heads: Sequence[tuple[int, int]], values: Tensor) -> Changing:
    """Under change n, head number n gives values[n]; under higher ones none is changed. values [change, d_head]."""
    layers, numbers = torch.tensor(heads).T

    def changing(which: Tensor) -> AbstractContextManager[None]:
        def edit(layer: int, z: Tensor) -> Tensor | None:
            rows, places, change = _tokens(which, layers == layer)
            if not len(rows):
                return None
            z = z.clone()
            z[rows.to(z.device), places.to(z.device), numbers[change].to(z.device)] = values[change].to(z)
            return z

        return h.hooked(lm.model, lm.anatomy, edit)

    return changing


def adding(lm: LM, layers: Sequence[int], vectors: Tensor) -> Changing:
    """Under change n, vectors[n] is added to what block layers[n] gives; under higher ones nothing is. vectors [change,
    d_model]."""
    at = torch.tensor(layers)

    @contextmanager
    def changing(which: Tensor) -> Iterator[None]:
        def hook(layer: int, output: Any) -> Any:
            if isinstance(output, tuple):
                return (hook(layer, output[0]), *output[1:])
            rows, places, change = _tokens(which, at == layer)
            hidden = output.clone()
            hidden[rows.to(hidden.device), places.to(hidden.device)] += vectors[change].to(hidden)
            return hidden

        with ExitStack() as stack:
            for i in sorted(set(layers)):
                block = lm.model.get_submodule(f"{lm.anatomy.blocks}.{i}")
                handle = block.register_forward_hook(lambda module, args, output, i=i: hook(i, output))
                stack.callback(handle.remove)
            yield

    return changing


def _tokens(which: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows and places of the tokens under one of the wanted changes (bool [change]), and the change each is under."""
    here = wanted[which.clamp(max=len(wanted) - 1)] & (which < len(wanted))
    rows, places = here.nonzero(as_tuple=True)
    return rows, places, which[rows, places]
