"""Features of many examples, read batch by batch, so that they may be larger than memory."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

CHUNK = 256  # examples evaluated at once


@dataclass(frozen=True)
class Examples:
    """Features [example, layer, head, d_head] (on disk, or in memory) and which examples are used for what.

    groups [example]: examples of one group depend on each other, as the steps of a main question do; without it, none
    do.
    """

    features: np.ndarray
    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    device: torch.device
    groups: np.ndarray | None = None

    def batches(self, chosen: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, Tensor]]:
        for a in range(0, len(chosen), size):
            batch = chosen[a : a + size]
            # Copied, not shared: how NumPy's memory is aligned, and with it a product's last bit, differs between runs.
            yield batch, torch.tensor(self.features[batch], dtype=torch.float32, device=self.device)

    def groups_of(self, chosen: np.ndarray) -> np.ndarray:
        return np.arange(len(chosen)) if self.groups is None else self.groups[chosen]
