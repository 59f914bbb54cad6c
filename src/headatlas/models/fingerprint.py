"""Short, stable names for weights: what an atlas was made from, and whether it is still the same."""

import hashlib
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from headatlas.models.families import parameter

_INTEGER = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_CHUNK = 1 << 22


def fingerprint_model(model: nn.Module) -> str:
    """Of everything a model would save: parameters and persistent buffers, as they are in memory, precision included."""
    return fingerprint_tensors(_tensors(model))


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for path, module in model.named_modules():
        saved = [n for n, b in module._buffers.items() if b is not None and n not in module._non_persistent_buffers_set]
        for name in [n for n, _ in module.named_parameters(recurse=False)] + saved:
            yield f"{path}.{name}", parameter(module, name)


@torch.no_grad()
def fingerprint_tensors(named: Iterable[tuple[str, Tensor]]) -> str:
    """Hash names, shapes, types and values.

    Of the values it takes an exact integer sum of all bits, each weighted by its place: one pass, the same on any device, and
    changed by any edit or exchange.
    """
    lines = []
    for name, tensor in named:
        flat = tensor.detach().contiguous().view(-1)
        bits = flat.view(_INTEGER[flat.element_size()])
        total = 0
        for start in range(0, len(bits), _CHUNK):
            piece = bits[start : start + _CHUNK].long()
            place = torch.arange(1, len(piece) + 1, device=piece.device)
            total = (total * 31 + int((piece * place).sum())) % (1 << 64)
        lines.append(f"{name} {tuple(tensor.shape)} {tensor.dtype} {total}\n")
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()[:16]
