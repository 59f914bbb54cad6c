"""Baselines that a method must beat: output norm, gradient norm and direct effect of each head."""

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
    """Return the mean of |z · W_O| over all tokens of the prompts, [layer, head]; NaN for layers without heads."""
    norms = np.full((lm.n_layers, lm.n_heads), np.nan)
    totals = {layer: torch.zeros(lm.n_heads) for layer in lm.layers_with_heads}
    for example in prompts:

        def add_norms(layer: int, z: Tensor) -> None:
            written_by_heads = torch.einsum("bthd,hde->bthe", z, lm.weights.output(layer).to(z))
            totals[layer] += written_by_heads.norm(dim=-1).mean((0, 1)).float().cpu()

        with hooked(lm.model, lm.anatomy, add_norms):
            lm.model(**lm.batch([example.prompt]))
    for layer, size in totals.items():
        norms[layer] = size.numpy() / len(prompts)
    return norms


def gradient_norms(lm: LM, prompts: Sequence[TokenExample], tokens: int | None = None) -> np.ndarray:
    """Return the root mean square of |∂ log P / ∂ z| over examples, [layer, head]; NaN for layers without heads."""
    squares = np.full((lm.n_layers, lm.n_heads), np.nan)
    squares[lm.layers_with_heads] = 0.0
    bundles = [make_bundle([example]) for example in prompts]
    for _, batch in batches(bundles, 1, tokens_at_once(lm, tokens)):
        shifts: dict[int, Tensor] = {}

        def shift_outputs(layer: int, z: Tensor, shifts: dict[int, Tensor] = shifts) -> Tensor:
            shifts[layer] = torch.zeros_like(z, requires_grad=True)
            return z + shifts[layer]

        with frozen_float32_stream(lm), torch.enable_grad(), hooked(lm.model, lm.anatomy, shift_outputs):
            log_p = log_probs(lm, [bundles[i] for i in batch])[0]
            slopes = torch.autograd.grad(log_p.sum(), list(shifts.values()))
        for layer, slope in zip(shifts, slopes, strict=True):
            squares[layer] += slope.double().square().sum((0, 1, 3)).cpu().numpy()
    return np.sqrt(squares / len(prompts))


@torch.no_grad()
def direct_effects(lm: LM, prompts: Sequence[TokenExample]) -> np.ndarray:
    """Return the mean direct contribution of each head to the logit of the target's first token, [layer, head]."""
    totals = np.full((lm.n_layers, lm.n_heads), np.nan)
    layers = lm.layers_with_heads
    totals[layers] = 0.0
    for example in prompts:
        with record_pass(lm) as recorded:
            lm.model(**lm.batch([example.prompt]))
        target = torch.tensor(example.target[:1])
        for layer in layers:
            # No other head or MLP is in between: only the final norm and the unembedding.
            totals[layer] += logit_contributions(lm, head_writes(lm, recorded, layer, -1), target)[:, 0].cpu().numpy()
    return totals / len(prompts)
