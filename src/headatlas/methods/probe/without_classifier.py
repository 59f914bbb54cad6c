"""The kinds 'written' and 'used': scores of heads for a function, without a classifier."""

from collections.abc import Sequence
from contextlib import AbstractContextManager

import numpy as np
import torch
from torch import Tensor

from headatlas.methods.probe.classifier import (
    EVALUATION_BATCH,
    Examples,
)
from headatlas.models.gradients import frozen_float32_stream
from headatlas.models.hooks import hooked
from headatlas.models.lm import LM
from headatlas.models.log_probs import batches, score_targets
from headatlas.models.memory import halve_batch_on_oom, tokens_at_once
from headatlas.models.packing import Layout, lay_out, logits_of
from headatlas.models.tokens import TokenExample, make_bundle
from headatlas.progress import Progress, silent

PATH_STEPS = 4  # from a head's mean output to its output, for kind 'used'


# --- kind 'written': how much more a head writes in questions of a function


@torch.no_grad()
def written(data: Examples, labels: np.ndarray, classes: int, products: Tensor) -> np.ndarray:
    """Return |(z − z̄) · W_O|² of each head divided by its mean in training examples: [test example, head].

    Every class has the same weight in both means. A class's mean is 1 for a head that writes as much for it as for any
    other class, and the number of classes for a head that writes for it alone.

    Args:
        data: features and splits.
        labels: the class of each example.
        classes: number of classes.
        products: W_O · W_Oᵀ of each head [layer, head, d_head, d_head].
    """
    layers, heads, d = data.features.shape[1:]
    products = products.to(data.device, torch.float32)
    hot = np.eye(classes, dtype=np.float32)[labels]
    # weight of each example in a mean over classes of means over training examples
    weight = hot / (hot[data.train].sum(0).clip(min=1) * classes)
    mean = torch.zeros(layers, heads, d, device=data.device)
    for batch, z in data.batches(data.train, EVALUATION_BATCH):
        mean += torch.einsum("b,blhd->lhd", torch.tensor(weight[batch].sum(1), device=data.device), z)

    def size(z: Tensor) -> Tensor:
        return torch.einsum("blhd,lhde,blhe->blh", z - mean, products, z - mean).clamp(min=0)

    mean_size = torch.zeros(layers, heads, device=data.device)
    for batch, z in data.batches(data.train, EVALUATION_BATCH):
        mean_size += torch.einsum("b,blh->lh", torch.tensor(weight[batch].sum(1), device=data.device), size(z))
    # a head that never writes scores 0
    mean_size = torch.where(mean_size > 0, mean_size, torch.inf)
    test = data.batches(data.test, EVALUATION_BATCH)
    return np.concatenate([(size(z) / mean_size).flatten(1).double().cpu().numpy() for _, z in test])


# --- kind 'used': how much of each head's output, beyond its mean, an answer's log P depends on


def used_by_answers(
    lm: LM,
    examples: Sequence[TokenExample],
    labels: np.ndarray,
    data: Examples,
    *,
    batch_tokens: int | None = None,
    progress: Progress = silent,
) -> np.ndarray:
    """Return the nats of an answer's log P that depend on a head's output beyond its mean, [test example, head].

    A probe reads what is present, whether or not the model uses it. Here all heads go from their mean output in
    training examples to their output together, at the tokens that predict the answer; a head's score is its gradient on
    the way (as in `ig`, which starts from zero). What no later part of the model uses has no gradient, however well a
    probe can read it.

    The sum over heads is approximately what log P would lose if all heads were set to their means. Every class has the
    same weight in the means. Only layers with heads are included.
    """
    mean = _mean_outputs(lm, [examples[i] for i in data.train], labels[data.train], batch_tokens)
    scores = np.zeros((len(data.test), lm.n_layers, lm.n_heads))
    bundles = [make_bundle([examples[i]]) for i in data.test]
    budget = tokens_at_once(lm, batch_tokens)
    for _, batch in progress(list(batches(bundles, 1, budget)), "what the answers use"):
        texts = [bundles[i] for i in batch]
        owner = torch.tensor([n for n, bundle in enumerate(texts) for _ in bundle.examples[0].target])
        for step in range(PATH_STEPS):
            share = torch.full((len(texts), lm.n_layers, lm.n_heads), (step + 0.5) / PATH_STEPS, device=lm.device)
            with frozen_float32_stream(lm), torch.enable_grad(), halve_batch_on_oom(lm, budget):
                layout = lay_out(lm, texts)
                with _between_mean_and_output(lm, layout, owner, mean, share.requires_grad_()):
                    log_p, _ = score_targets(logits_of(lm, layout, None), texts)
                (slope,) = torch.autograd.grad(log_p.sum(), share)
            scores[batch] += slope.double().cpu().numpy() / PATH_STEPS
    return scores[:, lm.layers_with_heads].reshape(len(data.test), -1)


def _between_mean_and_output(
    lm: LM, layout: Layout, owner: Tensor, mean: Tensor, share: Tensor
) -> AbstractContextManager[None]:
    """Move heads part of the way from their mean output to their output, at the tokens that predict an answer.

    Args:
        lm: the model.
        layout: the tokens.
        owner: index of the example of every token that predicts an answer.
        mean: mean outputs [layer, head, d_head].
        share: part of the way [example, layer, head].
    """
    rows = torch.tensor(layout.rows)
    places = torch.tensor(layout.places)

    def move(layer: int, z: Tensor) -> Tensor:
        where = rows.to(z.device), places.to(z.device)
        middle = mean[layer].to(z)
        part = share[owner.to(z.device), layer].to(z)[..., None]
        return z.index_put(where, middle + part * (z[where] - middle))

    return hooked(lm.model, lm.anatomy, move)


@torch.no_grad()
def _mean_outputs(lm: LM, examples: Sequence[TokenExample], labels: np.ndarray, batch_tokens: int | None) -> Tensor:
    """Return the mean z at the tokens that predict an answer, [layer, head, d_head].

    Every class has the same weight, and so has every example of a class.
    """
    counts = np.bincount(labels)
    weight = 1 / counts[labels] / (counts > 0).sum()
    mean = torch.zeros(lm.n_layers, lm.n_heads, lm.d_head, device=lm.device)
    bundles = [make_bundle([example]) for example in examples]
    budget = tokens_at_once(lm, batch_tokens)
    for _, batch in batches(bundles, 1, budget):
        texts = [bundles[i] for i in batch]
        lengths = [len(bundle.examples[0].target) for bundle in texts]
        weights = torch.tensor(np.repeat(weight[batch] / lengths, lengths), dtype=torch.float32)
        with halve_batch_on_oom(lm, budget):
            layout = lay_out(lm, texts)
            where = torch.tensor(layout.rows), torch.tensor(layout.places)

            def add(layer: int, z: Tensor, where: tuple[Tensor, Tensor] = where, weights: Tensor = weights) -> None:
                rows, places = (index.to(z.device) for index in where)
                total = torch.einsum("n,nhd->hd", weights.to(z.device), z[rows, places].float())
                mean[layer] += total.to(mean.device)

            with hooked(lm.model, lm.anatomy, add):
                logits_of(lm, layout, None)
    return mean
