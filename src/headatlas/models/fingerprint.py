"""Short, stable names for weights: what an atlas was made from, and whether it is still the same."""

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor

_INTEGER = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@torch.no_grad()
def fingerprint_tensors(named: Iterable[tuple[str, Tensor]]) -> str:
    """Hash names, shapes, types and values.

    Of the values it takes an exact integer sum over all bits (one pass at memory speed, the same in any order and on any
    device), which any edit changes, and 256 evenly spaced samples, which a permutation changes too.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(named, key=lambda pair: pair[0]):
        flat = tensor.detach().contiguous().view(-1)
        bits = flat.view(_INTEGER[flat.element_size()])
        samples = bits[
            torch.linspace(0, max(bits.numel() - 1, 0), min(bits.numel(), 256), dtype=torch.float64)
            .long()
            .to(bits.device)
        ]
        digest.update(
            f"{name} {tuple(tensor.shape)} {tensor.dtype} {int(bits.sum(dtype=torch.int64))} {samples.tolist()}\n".encode()
        )
    return digest.hexdigest()[:16]
