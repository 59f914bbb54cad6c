"""A linear classifier for each head alone, in closed form: how well can its output by itself tell the classes apart?"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from headatlas.methods.probe.examples import CHUNK, Examples

SHRINK = (1e-3, 1e-2, 1e-1, 1.0)


@torch.no_grad()
def per_head(
    data: Examples, labels: np.ndarray, classes: int, shuffles: Sequence[np.ndarray] = ()
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Linear discriminants of every head's own mean z, all heads and all labellings in one go.

    For the labels, and for every shuffle of them: predictions of validation and of test examples, each [example, head].
    The covariance within classes is shrunk towards a multiple of the identity, by the factor that does best on
    validation examples; classes count alike, however frequent.
    """
    layers, heads, d = data.features.shape[1:]
    n, labellings = layers * heads, [labels, *shuffles]
    hot = [np.eye(classes, dtype=np.float32)[lab] for lab in labellings]
    second = torch.zeros(n, d, d, device=data.device)
    sums = torch.zeros(len(labellings), n, classes, d, device=data.device)
    shift = next(data.batches(data.train[:CHUNK], CHUNK))[1].flatten(1, 2).mean(0)  # near the mean: squares stay small
    for batch, z in data.batches(data.train, CHUNK):
        x = (z.flatten(1, 2) - shift).transpose(0, 1)  # [head, example, d]
        second += x.transpose(1, 2) @ x
        for k in range(len(labellings)):
            sums[k] += torch.tensor(hot[k][batch], device=data.device).T @ x
    counts = [torch.from_numpy(h[data.train].sum(0)).to(data.device).clamp(min=1) for h in hot]

    def discriminant(k: int, shrink: float) -> tuple[Tensor, Tensor]:
        means = sums[k] / counts[k][:, None]
        within = (second - means.transpose(1, 2) @ (means * counts[k][:, None])) / len(data.train)
        scale = within.diagonal(dim1=1, dim2=2).mean(1).clamp(min=1e-12)
        within = within + (shrink * scale)[:, None, None] * torch.eye(d, device=data.device)
        weight = torch.linalg.solve(within, means.transpose(1, 2))  # [head, d, class]
        return weight, -0.5 * (means * weight.transpose(1, 2)).sum(-1)

    def predictions(weight: Tensor, bias: Tensor, examples: np.ndarray) -> np.ndarray:
        parts = []
        for _, z in data.batches(examples, CHUNK):
            x = (z.flatten(1, 2) - shift).transpose(0, 1)
            parts.append((x @ weight + bias[:, None]).argmax(-1).T.to(torch.int16).cpu().numpy())
        return np.concatenate(parts)

    right = [
        (predictions(*discriminant(0, s), data.validation) == labels[data.validation][:, None]).mean() for s in SHRINK
    ]
    best = SHRINK[int(np.argmax(right))]
    fitted = [discriminant(k, best) for k in range(len(labellings))]
    return [(predictions(*f, data.validation), predictions(*f, data.test)) for f in fitted]
