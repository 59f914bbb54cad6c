"""Steps 1 to 3: the mean outputs of heads in few-shot prompts, and what each does in prompts with shuffled answers."""

from collections.abc import Sequence

import torch
from torch import Tensor

from headatlas.models.families import norms_behind
from headatlas.models.interventions import MEASURES, answers_while, replacing, shares
from headatlas.models.library_settings import without_cudnn_attention
from headatlas.models.lm import LM
from headatlas.models.log_probs import score_targets
from headatlas.models.logit_attribution import passing, stream_factor
from headatlas.models.memory import halve_batch_on_oom, tokens_at_once
from headatlas.models.single_heads import can_replay, logits_by_head, texts_at_once
from headatlas.models.tokens import TokenExample, make_bundle
from headatlas.progress import Progress, doing, silent


@torch.no_grad()
def mean_outputs(
    lm: LM,
    prompts: Sequence[TokenExample],
    *,
    tokens: int | None = None,
    label: str = "mean outputs",
    progress: Progress = silent,
) -> Tensor:
    """Every head's mean z at the last token, [2, layer, head, d_head]: as it is, and scaled as it enters the stream.

    The second differs only in models with a norm behind the attention (Gemma 2), whose factor differs between prompts.
    """
    if not scales_outputs(lm):
        budget, texts = tokens_at_once(lm, tokens), [list(a.prompt) for a in prompts]
        with doing(progress, label), halve_batch_on_oom(lm, budget):
            at_once = max(1, budget // max(map(len, texts)))
            mean = lm.head_outputs(texts, "last", batch_size=at_once)[:, 0].double().mean(0)
        return torch.stack([mean, mean]).float()
    total = torch.zeros(2, lm.n_layers, lm.n_heads, lm.d_head, dtype=torch.float64)
    total[:, lm.layers_without_heads] = torch.nan
    for prompt in progress(prompts, label):
        with passing(lm) as kept, without_cudnn_attention():
            lm.model.base_model(**lm.pad([prompt.prompt], "right"), use_cache=False)
        for layer, z in kept.z.items():
            last = z[-1].float()
            total[0, layer] += last.cpu()
            total[1, layer] += (last * stream_factor(lm, kept, layer, -1)).cpu()
    return (total / len(prompts)).float()


def scales_outputs(lm: LM) -> bool:
    """Whether there is a norm between the attention and the stream, whose factor differs between prompts."""
    return any(norms_behind(lm.model, lm.anatomy, layer)[:-1] for layer in lm.layers_with_heads)


@torch.no_grad()
def rises(
    lm: LM,
    prompts: Sequence[TokenExample],
    means: Tensor,
    *,
    tokens: int | None = None,
    label: str = "effects",
    progress: Progress = silent,
) -> tuple[Tensor, Tensor]:
    """How much P(answer) rises when one head gives its mean at the last token, [prompt, layer, head], NaN in layers
    without heads; and, without that, P(answer) and whether it is the likeliest, [prompt, 2].

    means: [layer, head, d_head]. The prompt is the same for all heads: models that can share it run it once, with a
    last token for every head. Others are replayed from each head's layer on.
    """
    if not all(shares(lm, a, len(a.prompt) - 1) for a in prompts):
        return _replayed(lm, prompts, means, tokens_at_once(lm, tokens), label, progress)
    rise = torch.full((len(prompts), lm.n_layers, lm.n_heads), torch.nan)
    heads = [(layer, head) for layer in lm.layers_with_heads for head in range(lm.n_heads)]
    layers, numbers = torch.tensor(heads).T
    changing = replacing(lm, heads, means[layers, numbers])
    with doing(progress, label):
        each = quality(answers_while(lm, prompts, len(heads) + 1, changing, tokens=tokens))  # the last: no change
    before = each[-1]
    rise[:, layers, numbers] = (each[:-1, :, 0] - before[:, 0]).T
    return rise, before


def quality(answers: Tensor) -> Tensor:
    """P(answer) and whether it is the likeliest, of answers of one token from `answers_while`: [change, example, 2]."""
    return torch.stack([answers[..., MEASURES.index("log_p")].exp(), answers[..., MEASURES.index("first")]], dim=-1)


def _replayed(
    lm: LM, prompts: Sequence[TokenExample], means: Tensor, budget: int, label: str, progress: Progress
) -> tuple[Tensor, Tensor]:
    rise, before = torch.full((len(prompts), lm.n_layers, lm.n_heads), torch.nan), torch.empty(len(prompts), 2)
    bundles = [make_bundle([a]) for a in prompts]
    replay = can_replay(lm, bundles[:2])
    for chosen in progress(texts_at_once(lm, bundles, budget), label):
        now, last = [bundles[i] for i in chosen], [len(prompts[i].prompt) - 1 for i in chosen]
        instead = torch.full((len(now), max(last) + 1, lm.n_heads, lm.d_head), torch.nan)  # NaN: as it is

        def value(layer: int, instead: Tensor = instead, last: list[int] = last) -> Tensor:
            instead[range(len(last)), last] = means[layer]
            return instead

        for layer, heads, logits, clean in logits_by_head(lm, now, value=value, replay=replay, budget=budget):
            log_p, right = (each[0].float().cpu() for each in score_targets(clean, now))
            before[chosen] = torch.stack([log_p.exp(), right], dim=1)
            changed = score_targets(logits.flatten(0, 1), now)[0].float().exp().cpu()  # [head, prompt]
            rise[torch.tensor(chosen)[:, None], layer, torch.tensor(heads)] = (changed - before[chosen, 0]).T
    return rise, before
