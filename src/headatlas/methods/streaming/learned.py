"""α of every KV head, fitted (kind "learned"): few heads see everything, and the last hidden states stay as they are.

1. Every KV head gives α · full + (1 − α) · streaming attention; all α start at 1.
2. An update takes one text. distance = |h − h'|² / |h|², the mean over its scored tokens, where h is the last hidden
   state of the whole model and h' that of the mixed one. The paper does not divide by |h|²; so its λ depends on the
   model's size.
3. Adam on distance + λ · mean of α. After every update α is cut to 0 … 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headatlas.errors import CannotDo
from headatlas.methods.streaming.scores import scored_log_p
from headatlas.methods.streaming.texts import ScoredText, Window
from headatlas.models.gradients import for_gradients
from headatlas.models.library_settings import without_cudnn_attention
from headatlas.models.lm import LM
from headatlas.models.memory import halve_batch_on_oom
from headatlas.models.streaming_attention import check_streams, streaming
from headatlas.progress import Progress, silent


@dataclass(frozen=True)
class Fit:
    """So many updates of Adam under the pressure λ = strength. The learning rate rises at first and falls at the end,
    as published."""

    updates: int
    strength: float
    lr: float

    def rate(self, update: int) -> float:
        ramp = max(1, self.updates // 5)
        return self.lr * min(1.0, max((update + 1) / ramp, 0.1), max((self.updates - update) / ramp, 0.1))


def fit_alpha(
    lm: LM,
    texts: Sequence[ScoredText],
    window: Window,
    fit: Fit,
    *,
    label: str = "streaming",
    progress: Progress = silent,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """α [layer, kv_head]; the distance at each update [update]; of the whole model, `scored_log_p` [text]."""
    check_streams(lm)
    with torch.no_grad(), halve_batch_on_oom(lm, max(map(len, texts))):
        with for_gradients(lm):  # as below: distances are of what is forgotten, not of rounding
            whole = [hidden_states(lm, text) for text in texts]
        log_p, right = (torch.cat(v) for v in zip(*(scored_log_p(lm, [t], window) for t in texts), strict=True))
    alpha = torch.ones(lm.n_layers, lm.n_kv_heads, requires_grad=True)
    with_heads = lm.layers_with_heads
    optimiser = torch.optim.Adam([alpha])
    distances = []
    with for_gradients(lm):
        for update in progress(range(fit.updates), label):
            text = update % len(texts)
            optimiser.param_groups[0]["lr"] = fit.rate(update)
            with halve_batch_on_oom(lm, len(texts[text])), torch.enable_grad():
                with streaming(lm, alpha, window.sink, window.recent):
                    distance = relative_distance(hidden_states(lm, texts[text]), whole[text])
                loss = distance + fit.strength * alpha[with_heads].mean().to(distance.device)
                (alpha.grad,) = torch.autograd.grad(loss, alpha)
            if not alpha.grad.isfinite().all():
                raise CannotDo(f"{label}: the gradient is not finite at update {update + 1} of {fit.updates}")
            optimiser.step()
            alpha.data.clamp_(0, 1)
            distances.append(distance.detach().cpu())
    return alpha.detach(), torch.stack(distances), log_p[:, 0], right[:, 0]


def hidden_states(lm: LM, text: ScoredText) -> Tensor:
    """The last hidden states that scored tokens are predicted from: [token, d_model]."""
    ids = torch.tensor([text.ids], device=lm.device)
    with without_cudnn_attention():
        states: Tensor = lm.model.base_model(ids, use_cache=False)[0]
    return states[0, torch.tensor(text.scored) - 1].to(torch.promote_types(states.dtype, torch.float32))


def relative_distance(states: Tensor, whole: Tensor) -> Tensor:
    return ((states - whole).pow(2).sum(-1) / whole.pow(2).sum(-1)).mean()
