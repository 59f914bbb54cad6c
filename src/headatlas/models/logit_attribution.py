"""Direct logit attribution: heads' outputs through the norms behind them and the unembedding.

Norms divide by the size of their input. That size is taken from the pass itself and held fixed, so that contributions
of heads add up. In models that cap their logits (Gemma 2), contributions are those before the cap.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from headatlas.models.families import norms_behind, residual_scale
from headatlas.models.hooks import hooked
from headatlas.models.lm import LM
from headatlas.models.weights import norm_factor, through_norm


@dataclass
class PassRecord:
    """Values recorded in one pass over a text.

    Attributes:
        z: outputs of heads by layer [token, head, d_head].
        before: inputs of norms [token, d_model].
        normed: output of the final norm [token, d_model].
    """

    z: dict[int, Tensor] = field(default_factory=dict)
    before: dict[nn.Module, Tensor] = field(default_factory=dict)
    normed: Tensor | None = None


@contextmanager
def record_pass(lm: LM) -> Iterator[PassRecord]:
    """Record a pass over one text (the first of a batch) for `head_writes` and `logit_contributions`."""
    record = PassRecord()
    layers = lm.layers_with_heads
    behind = {layer: norms_behind(lm.model, lm.anatomy, layer) for layer in layers}

    def keep_input(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        record.before[module] = args[0].detach()[0]

    def keep_output(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        record.normed = output.detach()[0]

    with ExitStack() as stack:
        for norm in dict.fromkeys(norm for norms in behind.values() for norm in norms):
            stack.callback(norm.register_forward_pre_hook(keep_input).remove)
        final = behind[layers[0]][-1:] if layers else []
        for norm in final:
            stack.callback(norm.register_forward_hook(keep_output).remove)
        stack.enter_context(hooked(lm.model, lm.anatomy, lambda layer, z: record.z.__setitem__(layer, z.detach()[0])))
        yield record


@torch.no_grad()
def head_writes(lm: LM, record: PassRecord, layer: int, token: int) -> Tensor:
    """Return what a layer's heads write at a token, after the norms, as input of the unembedding: [head, d_model]."""
    z = record.z[layer][token].float()
    parts = torch.einsum("hd,hdm->hm", z, lm.weights.output(layer).to(z)) * residual_scale(lm.model)
    for norm in norms_behind(lm.model, lm.anatomy, layer):
        x = record.before[norm][token].to(parts)
        parts = norm_factor(norm, x) * through_norm(norm, parts)
    return parts


@torch.no_grad()
def stream_factor(lm: LM, record: PassRecord, layer: int, token: int) -> Tensor:
    """Return the factor of the norm behind a layer's attention, if it has one (Gemma 2), at a token; otherwise 1."""
    factor = torch.ones((), device=record.z[layer].device)
    for norm in norms_behind(lm.model, lm.anatomy, layer)[:-1]:
        factor = norm_factor(norm, record.before[norm][token].float())
    return factor


@torch.no_grad()
def into_stream(lm: LM, layer: int, z: Tensor) -> Tensor:
    """Return what heads add to the residual stream, up to `stream_factor`: [head, d_model].

    Args:
        z: outputs of the layer's heads [head, d_head].
    """
    z = z.float()
    parts = torch.einsum("hd,hdm->hm", z, lm.weights.output(layer).to(z)) * residual_scale(lm.model)
    for norm in norms_behind(lm.model, lm.anatomy, layer)[:-1]:
        parts = through_norm(norm, parts)
    return parts


@torch.no_grad()
def logit_contributions(lm: LM, parts: Tensor, tokens: Tensor | None = None) -> Tensor:
    """Return what parts of the unembedding's input add to logits, less the mean over the vocabulary: [..., token].

    The mean changes no probability.

    Args:
        parts: [..., d_model].
        tokens: the tokens whose logits are returned (default: all).
    """
    unembedding = lm.weights.unembedding()
    columns = unembedding if tokens is None else unembedding[:, tokens.to(unembedding.device)]
    logits = (parts.to(unembedding) @ columns).float()
    mean = (parts.to(unembedding).float() @ unembedding.float().mean(1)) if tokens is not None else logits.mean(-1)
    return logits - mean[..., None]


@torch.no_grad()
def logit_scale(lm: LM, record: PassRecord, token: int, logits: Tensor) -> float:
    """Return the factor by which a model multiplies its logits (Cohere, Granite); 1 if it changes them otherwise.

    Args:
        logits: the model's logits after that token [vocabulary].
    """
    if record.normed is None:
        return 1.0
    unscaled = logit_contributions(lm, record.normed[token])
    centred = logits.float() - logits.float().mean()
    scale = float((centred * unscaled).sum() / (unscaled * unscaled).sum())
    # more than rounding changes logits, and less than a cap does
    tolerance = 1e-3 if lm.model.dtype in (torch.float32, torch.float64) else 0.02
    fits = float((centred - scale * unscaled).norm()) <= tolerance * float(centred.norm())
    return scale if fits and abs(scale - 1) > 0.01 else 1.0
