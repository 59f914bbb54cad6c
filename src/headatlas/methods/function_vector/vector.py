"""Make the function vector, and test it on questions without few-shot examples (steps 4 and 5 of `function_vector`)."""

from collections.abc import Sequence

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headatlas.evidence.control import Heads, compare_with_random, same_layers, top_heads
from headatlas.evidence.inference import interval
from headatlas.methods.function_vector.compute import means_part, quality, vector_part
from headatlas.methods.function_vector.prompts import Prompts
from headatlas.models.interventions import adding, answers_while
from headatlas.models.lm import LM
from headatlas.models.log_probs import batched_log_probs
from headatlas.models.logit_attribution import into_stream
from headatlas.models.tokens import TokenExample, make_bundle
from headatlas.progress import FinishedParts, Progress

LAYERS_TRIED = 10  # evenly spaced; the best is taken
MIN_RISE = 0.02  # few-shot examples that raise P(right answer) by less do not show the task


def evaluate_vector(
    lm: LM,
    *,
    task: str,
    scored: Sequence[str],
    prompts: Prompts,
    top: int,
    layer: int | None,
    draws: int,
    seed: int,
    batch_tokens: int | None,
    done: FinishedParts,
    progress: Progress,
) -> None:
    """Store the function vector and its test, as `combine` reads them.

    Args:
        scored: the parts that score heads.
        top: number of heads in the vector.
        layer: the layer to add it after; None for the best.
    """
    means = torch.from_numpy(done[means_part(task)][0][1])
    contribution = np.concatenate([done[part][0] for part in scored]).mean(0)
    heads = top_heads(contribution, min(top, int(np.isfinite(contribution).sum())))

    rises: list[np.ndarray] = []  # of P(answer) by prompt, of the tested heads first

    def rise(sets: Sequence[Heads]) -> np.ndarray:
        vectors = torch.zeros(len(sets), lm.d_model)
        for i in progress(range(len(sets)), vector_part(task)):
            vectors[i] = vector_of(lm, sets[i], means)
        layers = best_layers(lm, prompts.choosing, vectors, layer, batch_tokens)
        answers = answers_by_prompt(lm, prompts.testing, layers, vectors, batch_tokens)
        by_prompt = answers[:-1] - answers[-1]
        rises.extend(by_prompt[..., 0])
        return np.asarray(by_prompt.mean(1))

    control = compare_with_random(
        rise,
        [heads],
        same_layers(lm.n_heads, np.random.default_rng([seed, *task.encode()])),
        draws=draws,
        direction="higher",
        draws_per_round=draws,
        stop_early=False,
    )
    beyond_random = rises[0] - np.mean(rises[1:], axis=0)
    vector = vector_of(lm, heads, means)
    (added_at,) = best_layers(lm, prompts.choosing, vector[None], layer, batch_tokens)
    same_vector = vector.expand(lm.n_layers, -1)
    by_layer = answers_with(lm, prompts.testing, range(lm.n_layers), same_vector, batch_tokens)
    few_shot = [make_bundle([a]) for a in prompts.testing_few_shot]
    log_p, is_first = batched_log_probs(lm, few_shot, tokens=batch_tokens)
    selected = np.zeros(contribution.shape, bool)
    selected[tuple(np.transpose(heads))] = True
    done[vector_part(task)] = (
        selected,
        vector.numpy(),
        np.array([log_p.double().exp().mean(), is_first.double().mean()]),
        by_layer,
        np.array(added_at),
        control.effect[0],
        control.random_effect[0],
        control.p[0],
        np.array(interval(beyond_random, range(len(beyond_random)))),
    )


def vector_of(lm: LM, heads: Heads, means: Tensor) -> Tensor:
    """Sum what these heads add to the stream [d_model]. means: of all heads, scaled [layer, head, d_head]."""
    total = torch.zeros(lm.d_model)
    for layer in sorted({layer for layer, _ in heads}):
        numbers = [number for in_layer, number in heads if in_layer == layer]
        total += into_stream(lm, layer, means[layer].to(lm.device))[numbers].sum(0).cpu()
    return total


def best_layers(
    lm: LM, prompts: Sequence[TokenExample], vectors: Tensor, layer: int | None, tokens: int | None = None
) -> list[int]:
    """Choose the layer after which to add each of vectors [vector, d_model]: the best of about ten, or `layer`."""
    tried = [layer] if layer is not None else sorted({i * lm.n_layers // LAYERS_TRIED for i in range(LAYERS_TRIED)})
    if len(tried) == 1:
        return tried * len(vectors)
    answers = answers_with(lm, prompts, tried * len(vectors), vectors.repeat_interleave(len(tried), dim=0), tokens)
    return [tried[i] for i in answers[:-1, 0].reshape(len(vectors), len(tried)).argmax(1)]


def answers_with(
    lm: LM, prompts: Sequence[TokenExample], layers: Sequence[int], vectors: Tensor, tokens: int | None = None
) -> np.ndarray:
    """Measure mean P(answer) and accuracy with vectors[n] added after layers[n] at the last token, [n + 1, measure].

    The last row is of the unchanged model.
    """
    return np.asarray(answers_by_prompt(lm, prompts, layers, vectors, tokens).mean(1))


def answers_by_prompt(
    lm: LM, prompts: Sequence[TokenExample], layers: Sequence[int], vectors: Tensor, tokens: int | None = None
) -> np.ndarray:
    """Measure the same by prompt: [n + 1, prompt, measure]."""
    answers = answers_while(lm, prompts, len(layers) + 1, adding(lm, layers, vectors), tokens=tokens)
    return np.asarray(quality(answers).double().numpy())


def sentences(result: xr.Dataset) -> list[str]:
    """Name the tasks that the model does not learn from few-shot examples, whose maps mean little."""
    probability = result.baseline.sel(measure="probability")
    rise = probability.sel(prompt="few_shot") - probability.sel(prompt="shuffled")
    return [
        f"right answers in the examples of {name} raise P(right answer) by {value:.2f} only: its map says little"
        for name, value in zip(result.task.values.tolist(), rise.values.tolist(), strict=True)
        if value < MIN_RISE
    ]
