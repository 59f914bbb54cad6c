"""Counting what goes through a model, whoever sends it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from headatlas.models.heads import hooked
from headatlas.models.lm import LM


@dataclass
class Passes:
    """Tokens that went through the model, and how many of them with gradients; some of the layers count in part."""

    forward: float = 0.0
    backward: float = 0.0


@contextmanager
def counted(lm: LM) -> Iterator[Passes]:
    """Count tokens, layer by layer, while the block runs. Layers that are skipped (replayed runs) do not count."""
    passes = Passes()
    layers = len(lm.layers_with_heads)

    def count(layer: int, z: Tensor) -> None:
        share = z.shape[0] * z.shape[1] / layers
        passes.forward += share
        passes.backward += share * torch.is_grad_enabled()

    with hooked(lm.model, lm.anatomy, count):
        yield passes
