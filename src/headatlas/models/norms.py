"""What a part of a norm's input adds to its output, while the norm divides by the size of the whole."""

import torch
from torch import Tensor, nn
from torch.func import functional_call

from headatlas.models.families import parameter


@torch.no_grad()
def through_norm(norm: nn.Module, y: Tensor) -> Tensor:
    """What a part y [..., d_model] of a norm's input adds to its output, up to one positive factor: centred if the norm
    centres, times the norm's scale.

    The scale is found by running the norm: what its weight means differs (Gemma's scale is 1 + weight).
    """
    ones = y.new_ones(y.shape[-1])
    signs = ones.clone()
    signs[1::2] = -1
    scaled = _without_bias(norm, signs)
    if _without_bias(norm, ones).abs().max() < 1e-3 * scaled.abs().max():  # centring leaves nothing of a constant
        return (y - y.mean(-1, keepdim=True)) * scaled / (signs - signs.mean())
    return y * scaled / signs


@torch.no_grad()
def norm_factor(norm: nn.Module, x: Tensor) -> Tensor:
    """The factor that `through_norm` leaves open, for the norm's whole input x [d_model]: a part y of x adds
    norm_factor(norm, x) * through_norm(norm, y) to the norm's output."""
    scaled = through_norm(norm, x)
    return (_without_bias(norm, x) * scaled).sum() / (scaled * scaled).sum()


def _without_bias(norm: nn.Module, x: Tensor) -> Tensor:
    weights = {name: parameter(norm, name).to(x) for name, _ in norm.named_parameters()}
    return (functional_call(norm, weights, (x[None],)) - functional_call(norm, weights, (-x[None],)))[0] / 2
