"""Short, stable names for weights: what an atlas was made from, and whether it is still the same."""

import hashlib
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from headatlas.models.families import parameter

_INTEGER = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def fingerprint_model(model: nn.Module) -> str:
    return fingerprint_tensors(_parameters(model))


def _parameters(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for path, module in model.named_modules():
        for name, _ in module.named_parameters(recurse=False):
            yield f"{path}.{name}", parameter(module, name)


@torch.no_grad()
def fingerprint_tensors(named: Iterable[tuple[str, Tensor]]) -> str:
    """Hash names, shapes, types and values.

    Of the values it takes an exact integer sum over all bits (one pass at memory speed, the same in any order and on any
    device), which any edit changes, and 256 evenly spaced samples, which a permutation changes too.
    """
    lines = []
    for name, tensor in named:
        flat = tensor.detach().contiguous().view(-1)
        bits = flat.view(_INTEGER[flat.element_size()])
        at = torch.linspace(0, max(bits.numel() - 1, 0), min(bits.numel(), 256), dtype=torch.float64).long()
        samples = bits[at.to(bits.device)].tolist()
        lines.append(f"{name} {tuple(tensor.shape)} {tensor.dtype} {int(bits.sum(dtype=torch.int64))} {samples}\n")
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()[:16]
