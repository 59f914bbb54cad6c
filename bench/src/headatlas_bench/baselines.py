"""What a method must beat: how much a head writes, how steep log P is in it, what it adds directly; nothing at all."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from headatlas.models.gradients import frozen_float32_stream
from headatlas.models.hooks import hooked
from headatlas.models.lm import LM
from headatlas.models.log_probs import batches, log_probs
from headatlas.models.logit_attribution import head_writes, logit_contributions, record_pass
from headatlas.models.memory import tokens_at_once
from headatlas.models.tokens import TokenExample, make_bundle


@torch.no_grad()
def output_norms(lm: LM, prompts: Sequence[TokenExample]) -> np.ndarray:
    """Mean |z · W_O| over all tokens of the prompts, [layer, head]; NaN for layers without heads."""
    norms = np.full((lm.n_layers, lm.n_heads), np.nan)
    total = {layer: torch.zeros(lm.n_heads) for layer in lm.layers_with_heads}
    for one in prompts:

        def add(layer: int, z: Tensor) -> None:
            written = torch.einsum("bthd,hde->bthe", z, lm.weights.output(layer).to(z))
            total[layer] += written.norm(dim=-1).mean((0, 1)).float().cpu()

        with hooked(lm.model, lm.anatomy, add):
            lm.model(**lm.batch([one.prompt]))
    for layer, size in total.items():
        norms[layer] = size.numpy() / len(prompts)
    return norms


def gradient_norms(lm: LM, prompts: Sequence[TokenExample], tokens: int | None = None) -> np.ndarray:
    """Root mean square of |∂ log P(target) / ∂ z| over examples, [layer, head]; NaN for layers without heads."""
    square = np.full((lm.n_layers, lm.n_heads), np.nan)
    square[lm.layers_with_heads] = 0.0
    bundles = [make_bundle([a]) for a in prompts]
    for _, chosen in batches(bundles, 1, tokens_at_once(lm, tokens)):
        moved: dict[int, Tensor] = {}

        def move(layer: int, z: Tensor, moved: dict[int, Tensor] = moved) -> Tensor:
            moved[layer] = torch.zeros_like(z, requires_grad=True)
            return z + moved[layer]

        with frozen_float32_stream(lm), torch.enable_grad(), hooked(lm.model, lm.anatomy, move):
            log_p = log_probs(lm, [bundles[i] for i in chosen])[0]
            slopes = torch.autograd.grad(log_p.sum(), list(moved.values()))
        for layer, slope in zip(moved, slopes, strict=True):
            square[layer] += slope.double().square().sum((0, 1, 3)).cpu().numpy()
    return np.sqrt(square / len(prompts))


@torch.no_grad()
def direct_effects(lm: LM, prompts: Sequence[TokenExample]) -> np.ndarray:
    """What heads add to the target's first logit directly, by no other head or MLP, on average: [layer, head]."""
    total = np.full((lm.n_layers, lm.n_heads), np.nan)
    layers = lm.layers_with_heads
    total[layers] = 0.0
    for one in prompts:
        with record_pass(lm) as kept:
            lm.model(**lm.batch([one.prompt]))
        target = torch.tensor(one.target[:1])
        for layer in layers:
            total[layer] += logit_contributions(lm, head_writes(lm, kept, layer, -1), target)[:, 0].cpu().numpy()
    return total / len(prompts)
