"""What heads add to the logits directly: their outputs through the norms behind them and the unembedding.

Norms divide by the size of what they are given. That size is taken from the pass itself and held fixed, so that heads'
contributions add up. Where logits are capped in the end (Gemma 2), contributions are those before the cap.
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
class Pass:
    """What one pass over a text leaves behind: z by layer [token, head, d_head], and inputs of norms [token, d_model].

    normed: what the final norm gave [token, d_model].
    """

    z: dict[int, Tensor] = field(default_factory=dict)
    before: dict[nn.Module, Tensor] = field(default_factory=dict)
    normed: Tensor | None = None


@contextmanager
def passing(lm: LM) -> Iterator[Pass]:
    """Keep what `written` and `logits_written` need of a pass over one text (the first, if there are several)."""
    kept = Pass()
    layers = lm.layers_with_heads
    behind = {layer: norms_behind(lm.model, lm.anatomy, layer) for layer in layers}

    def keep_input(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        kept.before[module] = args[0].detach()[0]

    def keep_output(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        kept.normed = output.detach()[0]

    with ExitStack() as stack:
        for norm in dict.fromkeys(norm for norms in behind.values() for norm in norms):
            stack.callback(norm.register_forward_pre_hook(keep_input).remove)
        final = behind[layers[0]][-1:] if layers else []
        for norm in final:
            stack.callback(norm.register_forward_hook(keep_output).remove)
        stack.enter_context(hooked(lm.model, lm.anatomy, lambda layer, z: kept.z.__setitem__(layer, z.detach()[0])))
        yield kept


@torch.no_grad()
def written(lm: LM, kept: Pass, layer: int, token: int) -> Tensor:
    """What a layer's heads write at a token, as the unembedding is given it: [head, d_model], in float32."""
    z = kept.z[layer][token].float()
    parts = torch.einsum("hd,hdm->hm", z, lm.weights.output(layer).to(z)) * residual_scale(lm.model)
    for norm in norms_behind(lm.model, lm.anatomy, layer):
        x = kept.before[norm][token].to(parts)
        parts = norm_factor(norm, x) * through_norm(norm, parts)
    return parts


@torch.no_grad()
def stream_factor(lm: LM, kept: Pass, layer: int, token: int) -> Tensor:
    """What the norm behind a layer's attention, where it has one (Gemma 2), multiplies all that heads write at a token
    by; 1 elsewhere."""
    factor = torch.ones((), device=kept.z[layer].device)
    for norm in norms_behind(lm.model, lm.anatomy, layer)[:-1]:
        factor = norm_factor(norm, kept.before[norm][token].float())
    return factor


@torch.no_grad()
def into_stream(lm: LM, layer: int, z: Tensor) -> Tensor:
    """What heads with outputs z [head, d_head] add to the residual stream, up to `stream_factor`: [head, d_model]."""
    z = z.float()
    parts = torch.einsum("hd,hdm->hm", z, lm.weights.output(layer).to(z)) * residual_scale(lm.model)
    for norm in norms_behind(lm.model, lm.anatomy, layer)[:-1]:
        parts = through_norm(norm, parts)
    return parts


@torch.no_grad()
def logits_written(lm: LM, parts: Tensor, tokens: Tensor | None = None) -> Tensor:
    """What parts [..., d_model] add to the logits of tokens (all, if none are named), less their mean over all tokens,
    which changes no probability: [..., token]."""
    unembedding = lm.weights.unembedding()
    columns = unembedding if tokens is None else unembedding[:, tokens.to(unembedding.device)]
    logits = (parts.to(unembedding) @ columns).float()
    mean = (parts.to(unembedding).float() @ unembedding.float().mean(1)) if tokens is not None else logits.mean(-1)
    return logits - mean[..., None]


@torch.no_grad()
def logit_scale(lm: LM, kept: Pass, token: int, logits: Tensor) -> float:
    """What the model multiplies its logits by in the end (Cohere, Granite); 1 where it does something else to them.

    logits: the model's own, after that token [vocabulary].
    """
    if kept.normed is None:
        return 1.0
    plain = logits_written(lm, kept.normed[token])
    own = logits.float() - logits.float().mean()
    scale = float((own * plain).sum() / (plain * plain).sum())
    close = 1e-3 if lm.model.dtype in (torch.float32, torch.float64) else 0.02  # a cap bends more than rounding does
    fits = float((own - scale * plain).norm()) <= close * float(own.norm())
    return scale if fits and abs(scale - 1) > 0.01 else 1.0
