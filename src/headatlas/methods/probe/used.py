"""How much of what each head gives out, beyond what it gives on average, an answer's log P depends on.

A probe reads what is there, whether or not anything uses it. Here heads go from their mean output to their own, all of
them together, at the tokens that predict the answer; a head's share is its gradient on the way (as in `ig`, which
starts from nothing). What no later part of the model reads has no gradient, however well a probe reads it.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager

import numpy as np
import torch
from torch import Tensor

from headatlas.models.gradients import for_gradients
from headatlas.models.hooks import hooked
from headatlas.models.lm import LM
from headatlas.models.log_probs import batches, score_targets
from headatlas.models.memory import halve_batch_on_oom, tokens_at_once
from headatlas.models.packing import Layout, lay_out, logits_of
from headatlas.models.tokens import TokenExample, make_bundle
from headatlas.progress import Progress, silent

STEPS = 4  # between the mean output and the head's own


def used(
    lm: LM,
    examples: Sequence[TokenExample],
    labels: np.ndarray,
    train: np.ndarray,
    test: np.ndarray,
    *,
    batch_tokens: int | None = None,
    progress: Progress = silent,
) -> np.ndarray:
    """[test example, head]: nats of the answer that a head's own output is worth over its mean in training examples.

    The sum over heads is about what log P would lose if all heads gave their means. Every class counts alike in these.
    Layers are those with heads.
    """
    mean = _mean_outputs(lm, [examples[i] for i in train], labels[train], batch_tokens)
    says = np.zeros((len(test), lm.n_layers, lm.n_heads))
    bundles, budget = [make_bundle([examples[i]]) for i in test], tokens_at_once(lm, batch_tokens)
    for _, chosen in progress(list(batches(bundles, 1, budget)), "what the answers use"):
        of = [bundles[i] for i in chosen]
        owner = torch.tensor([n for n, bundle in enumerate(of) for _ in bundle.examples[0].target])
        for step in range(STEPS):
            share = torch.full((len(of), lm.n_layers, lm.n_heads), (step + 0.5) / STEPS, device=lm.device)
            with for_gradients(lm), torch.enable_grad(), halve_batch_on_oom(lm, budget):
                layout = lay_out(lm, of)
                with _between(lm, layout, owner, mean, share.requires_grad_()):
                    log_p, _ = score_targets(logits_of(lm, layout, None), of)
                (slope,) = torch.autograd.grad(log_p.sum(), share)
            says[chosen] += slope.double().cpu().numpy() / STEPS
    return says[:, lm.layers_with_heads].reshape(len(test), -1)


def _between(lm: LM, layout: Layout, owner: Tensor, mean: Tensor, share: Tensor) -> AbstractContextManager[None]:
    """Heads give a share [example, layer, head] of the way from their mean output [layer, head, d_head] to their own,
    where an answer is predicted. owner: the example of every such token."""
    rows, places = torch.tensor(layout.rows), torch.tensor(layout.places)

    def move(layer: int, z: Tensor) -> Tensor:
        at = rows.to(z.device), places.to(z.device)
        middle = mean[layer].to(z)
        part = share[owner.to(z.device), layer].to(z)[..., None]
        return z.index_put(at, middle + part * (z[at] - middle))

    return hooked(lm.model, lm.anatomy, move)


@torch.no_grad()
def _mean_outputs(lm: LM, examples: Sequence[TokenExample], labels: np.ndarray, batch_tokens: int | None) -> Tensor:
    """z where an answer is predicted, on average: [layer, head, d_head]; every class and example counts alike."""
    counts = np.bincount(labels)
    weight = 1 / counts[labels] / (counts > 0).sum()
    mean = torch.zeros(lm.n_layers, lm.n_heads, lm.d_head, device=lm.device)
    bundles, budget = [make_bundle([a]) for a in examples], tokens_at_once(lm, batch_tokens)
    for _, chosen in batches(bundles, 1, budget):
        of = [bundles[i] for i in chosen]
        lengths = [len(bundle.examples[0].target) for bundle in of]
        each = torch.tensor(np.repeat(weight[chosen] / lengths, lengths), dtype=torch.float32)
        with halve_batch_on_oom(lm, budget):
            layout = lay_out(lm, of)
            rows, places = torch.tensor(layout.rows), torch.tensor(layout.places)

            def read(layer: int, z: Tensor, rows: Tensor = rows, places: Tensor = places, each: Tensor = each) -> None:
                at = rows.to(z.device), places.to(z.device)
                mean[layer] += torch.einsum("n,nhd->hd", each.to(z.device), z[at].float()).to(mean.device)

            with hooked(lm.model, lm.anatomy, read):
                logits_of(lm, layout, None)
    return mean
