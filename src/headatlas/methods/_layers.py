"""Which layers have heads: not all of a hybrid model's do."""

import torch
from torch import Tensor

from headatlas.models.families import Anatomy

SPAN = 8  # layers that are one part of a job


def layers_with_heads(anatomy: Anatomy) -> list[int]:
    return [i for i, site in enumerate(anatomy.sites) if site is not None]


def layer_spans(anatomy: Anatomy, size: int = SPAN) -> list[list[int]]:
    """The layers that have heads, a few at a time."""
    layers = layers_with_heads(anatomy)
    return [layers[a : a + size] for a in range(0, len(layers), size)]


def has_heads(anatomy: Anatomy) -> Tensor:
    """Whether each layer has heads, to go with gates: [1, layer, 1]."""
    return torch.tensor([site is not None for site in anatomy.sites])[None, :, None]
