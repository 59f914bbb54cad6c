"""How much more each head writes for one class of examples than for the others. There is no classifier."""

import numpy as np
import torch
from torch import Tensor

from headatlas.methods.probe.examples import CHUNK, Examples


@torch.no_grad()
def written(data: Examples, labels: np.ndarray, classes: int, write: Tensor) -> np.ndarray:
    """[test example, head] = |(z − z̄) · W_O|², over its mean in training examples.

    Every class counts alike in both means.
    write: W_O · W_Oᵀ of each head [layer, head, d_head, d_head]. A class's mean is 1 for a head that writes as much
    for it as for any other, and up to the number of classes for one that writes for it alone.
    """
    layers, heads, d = data.features.shape[1:]
    write = write.to(data.device, torch.float32)
    hot = np.eye(classes, dtype=np.float32)[labels]
    weight = hot / (hot[data.train].sum(0).clip(min=1) * classes)  # of a training example in means over classes
    mean = torch.zeros(layers, heads, d, device=data.device)
    for batch, z in data.batches(data.train, CHUNK):
        mean += torch.einsum("b,blhd->lhd", torch.tensor(weight[batch].sum(1), device=data.device), z)

    def size(z: Tensor) -> Tensor:
        return torch.einsum("blhd,lhde,blhe->blh", z - mean, write, z - mean).clamp(min=0)

    usual = torch.zeros(layers, heads, device=data.device)
    for batch, z in data.batches(data.train, CHUNK):
        usual += torch.einsum("b,blh->lh", torch.tensor(weight[batch].sum(1), device=data.device), size(z))
    usual = torch.where(usual > 0, usual, torch.inf)  # a head that never writes
    return np.concatenate(
        [(size(z) / usual).flatten(1).double().cpu().numpy() for _, z in data.batches(data.test, CHUNK)]
    )
