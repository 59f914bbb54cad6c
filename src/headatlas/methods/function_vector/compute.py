"""Average heads' outputs in few-shot prompts, and patch them into prompts with shuffled answers (steps 1 to 3)."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headatlas.evidence.decide import with_outcomes
from headatlas.methods.function_vector.prompts import Prompts
from headatlas.models.families import norms_behind
from headatlas.models.interventions import MEASURES, answers_while, can_share, replacing
from headatlas.models.library_settings import without_cudnn_attention
from headatlas.models.lm import LM
from headatlas.models.log_probs import score_targets
from headatlas.models.logit_attribution import record_pass, stream_factor
from headatlas.models.memory import halve_batch_on_oom, tokens_at_once
from headatlas.models.single_heads import can_replay, logits_by_head, texts_at_once
from headatlas.models.tokens import TokenExample, make_bundle
from headatlas.progress import FinishedParts, Progress, show_step, silent

PROMPTS_PER_PART = 8
ANSWER_MEASURES = ("probability", "accuracy")
PROMPT_KINDS = ("few_shot", "shuffled", "zero_shot")


def means_part(task: str) -> str:
    """Name the part that averages the outputs of heads."""
    return f"{task}: mean outputs"


def split_prompts(task: str, prompts: Prompts) -> dict[str, tuple[TokenExample, ...]]:
    """Return the prompts with shuffled answers that each part scores heads on, by the name of the part."""
    starts = range(0, len(prompts.shuffled), PROMPTS_PER_PART)
    return {f"{task}: from prompt {i + 1}": prompts.shuffled[i : i + PROMPTS_PER_PART] for i in starts}


def vector_part(task: str) -> str:
    """Name the part that makes the function vector and tests it."""
    return f"{task}: function vector"


def average_outputs(
    lm: LM,
    *,
    task: str,
    prompts: Sequence[TokenExample],
    batch_tokens: int | None,
    done: FinishedParts,
    progress: Progress,
) -> None:
    """Store the mean outputs of all heads, as `mean_outputs` returns them."""
    part = means_part(task)
    done[part] = (mean_outputs(lm, prompts, tokens=batch_tokens, label=part, progress=progress).numpy(),)


def score_prompts(
    lm: LM,
    *,
    part: str,
    task: str,
    prompts: Sequence[TokenExample],
    batch_tokens: int | None,
    done: FinishedParts,
    progress: Progress,
) -> None:
    """Store the rises of P for each head's mean output, as `rises` returns them."""
    means = torch.from_numpy(done[means_part(task)][0][0])
    rise, before = rises(lm, prompts, means, tokens=batch_tokens, label=part, progress=progress)
    done[part] = (rise.numpy(), before.numpy())


@torch.no_grad()
def mean_outputs(
    lm: LM,
    prompts: Sequence[TokenExample],
    *,
    tokens: int | None = None,
    label: str = "mean outputs",
    progress: Progress = silent,
) -> Tensor:
    """Return every head's mean z at the last token, as it is and as scaled into the stream: [2, layer, head, d_head].

    The two differ only in models with a norm after the attention (Gemma 2), whose factor differs between prompts.
    """
    if not scales_outputs(lm):
        budget = tokens_at_once(lm, tokens)
        texts = [list(prompt.prompt) for prompt in prompts]
        with show_step(progress, label), halve_batch_on_oom(lm, budget):
            texts_per_batch = max(1, budget // max(map(len, texts)))
            mean = lm.head_outputs(texts, "last", batch_size=texts_per_batch)[:, 0].double().mean(0)
        return torch.stack([mean, mean]).float()
    total = torch.zeros(2, lm.n_layers, lm.n_heads, lm.d_head, dtype=torch.float64)
    total[:, lm.layers_without_heads] = torch.nan
    for prompt in progress(prompts, label):
        with record_pass(lm) as recorded, without_cudnn_attention():
            lm.model.base_model(**lm.pad([prompt.prompt], "right"), use_cache=False)
        for layer, z in recorded.z.items():
            last = z[-1].float()
            total[0, layer] += last.cpu()
            total[1, layer] += (last * stream_factor(lm, recorded, layer, -1)).cpu()
    return (total / len(prompts)).float()


def scales_outputs(lm: LM) -> bool:
    """Return whether a norm between the attention and the stream scales outputs by a factor that prompts change."""
    return any(norms_behind(lm.model, lm.anatomy, layer)[:-1] for layer in lm.layers_with_heads)


@torch.no_grad()
def rises(
    lm: LM,
    prompts: Sequence[TokenExample],
    means: Tensor,
    *,
    tokens: int | None = None,
    label: str = "contributions",
    progress: Progress = silent,
) -> tuple[Tensor, Tensor]:
    """Measure how much P(answer) rises when one head outputs its mean at the last token.

    All heads share the prompt. Models that can reuse it run it once, followed by one last token for every head. Others
    are run again from each head's layer on.

    Args:
        lm: the model.
        prompts: the prompts with their answers.
        means: mean output of each head [layer, head, d_head].
        tokens: tokens run through the model at once.
        label: label of the progress bar.
        progress: reports progress.

    Returns:
        The rise [prompt, layer, head], NaN in layers without heads; and for the unchanged model, P(answer) and whether
        the answer is the most likely token [prompt, 2].
    """
    if not all(can_share(lm, prompt, len(prompt.prompt) - 1) for prompt in prompts):
        return _rises_by_replay(lm, prompts, means, budget=tokens_at_once(lm, tokens), label=label, progress=progress)
    rise = torch.full((len(prompts), lm.n_layers, lm.n_heads), torch.nan)
    heads = [(layer, head) for layer in lm.layers_with_heads for head in range(lm.n_heads)]
    layer_index, head_index = torch.tensor(heads).T
    changing = replacing(lm, heads, means[layer_index, head_index])
    with show_step(progress, label):
        # one change more than heads: the last one leaves the model unchanged
        answers = quality(answers_while(lm, prompts, len(heads) + 1, changing, tokens=tokens))
    before = answers[-1]
    rise[:, layer_index, head_index] = (answers[:-1, :, 0] - before[:, 0]).T
    return rise, before


def quality(answers: Tensor) -> Tensor:
    """Return P(answer) and whether the answer is the most likely token: [change, example, 2].

    answers: one-token answers from `answers_while`.
    """
    return torch.stack([answers[..., MEASURES.index("log_p")].exp(), answers[..., MEASURES.index("first")]], dim=-1)


def _rises_by_replay(
    lm: LM, prompts: Sequence[TokenExample], means: Tensor, *, budget: int, label: str, progress: Progress
) -> tuple[Tensor, Tensor]:
    rise = torch.full((len(prompts), lm.n_layers, lm.n_heads), torch.nan)
    before = torch.empty(len(prompts), 2)
    bundles = [make_bundle([prompt]) for prompt in prompts]
    replay = can_replay(lm, bundles[:2])
    for indices in progress(texts_at_once(lm, bundles, budget), label):
        batch = [bundles[i] for i in indices]
        last = [len(prompts[i].prompt) - 1 for i in indices]
        # NaN leaves an output unchanged
        new_z = torch.full((len(batch), max(last) + 1, lm.n_heads, lm.d_head), torch.nan)

        def value(layer: int, new_z: Tensor = new_z, last: list[int] = last) -> Tensor:
            new_z[range(len(last)), last] = means[layer]
            return new_z

        for layer, heads, logits, clean in logits_by_head(lm, batch, value=value, replay=replay, budget=budget):
            log_p, is_first = (values[0].float().cpu() for values in score_targets(clean, batch))
            before[indices] = torch.stack([log_p.exp(), is_first], dim=1)
            changed = score_targets(logits.flatten(0, 1), batch)[0].float().exp().cpu()  # [head, prompt]
            rise[torch.tensor(indices)[:, None], layer, torch.tensor(heads)] = (changed - before[indices, 0]).T
    return rise, before


def combine(
    lm: LM, *, scored: Mapping[str, Sequence[str]], draws: int, done: FinishedParts, progress: Progress
) -> xr.Dataset:
    """Join the results of all tasks. scored: names of the parts that score heads, by task."""
    results = [_task_result(task, parts, done) for task, parts in scored.items()]
    result = xr.concat(results, "task").assign_coords(
        task=list(scored),
        prompt=list(PROMPT_KINDS),
        measure=list(ANSWER_MEASURES),
        draw=range(draws),
        layer=range(lm.n_layers),
        head=range(lm.n_heads),
    )
    return with_outcomes(result, draws)


def _task_result(task: str, parts: Sequence[str], done: FinishedParts) -> xr.Dataset:
    contributions, before = (np.concatenate([done[part][i] for part in parts]) for i in (0, 1))
    selected, vector, few_shot, by_layer, layer, effect, random_effect, p, beyond = done[vector_part(task)]
    zero_shot = by_layer[-1]
    return xr.Dataset(
        {
            "contribution": (("layer", "head"), contributions.mean(0)),
            "by_example": (("example", "layer", "head"), contributions),
            "selected": (("layer", "head"), selected),
            "vector": ("d_model", vector),
            "baseline": (("prompt", "measure"), np.stack([few_shot, before.mean(0), zero_shot])),
            "added_at": int(layer),
            "effect": ("measure", effect),
            "effect_by_layer": (("layer", "measure"), by_layer[:-1] - zero_shot),
            "random_effect": (("draw", "measure"), random_effect),
            "p": p,
            "beyond_low": beyond[0],
            "beyond_high": beyond[1],
        },
        # An index, because tasks may have different numbers of examples.
        coords={"example": range(len(contributions))},
    )
