"""Fit gates that keep one task and lose another."""

from collections.abc import Sequence

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headatlas.methods.gate.compute import Schedule, draw_theta, fit_gates
from headatlas.models.lm import LM
from headatlas.models.log_probs import batched_log_probs
from headatlas.progress import FinishedParts, Progress
from headatlas.tasks.baseline import measure_baseline
from headatlas.tasks.bundles import batches_of, held_out_bundles
from headatlas.tasks.prompts import Task

GATES = "gates"  # the part that fits them, and its array
MAX_GAP = 5.0  # nats; the loss does not fall any further when the lost task is worse than the kept one by more

Pair = tuple[Task, Task]
"""The task to keep and the task to lose; example i of both asks the same."""


def pair_name(pair: Pair) -> str:
    """Name a pair of tasks: the label of its map."""
    keep, lose = pair
    return f"{keep.name} kept, {lose.name} lost"


def capped_gap(log_p: list[Tensor]) -> Tensor:
    """Return the objective: −log P of the kept task minus that of the lost one, at least −MAX_GAP."""
    keep, lose = log_p
    return (lose - keep).clamp(min=-MAX_GAP)


def fit_pair(
    lm: LM,
    *,
    pair: Pair,
    seeds: Sequence[int],
    schedule: Schedule,
    strength: float,
    batch: int,
    low: float,
    batch_tokens: int | None,
    done: FinishedParts,
    progress: Progress,
) -> None:
    """Fit the gates of a pair of tasks; store θ [seed, layer, head]."""
    keep, lose = pair
    theta = fit_gates(
        lm,
        draw_theta(lm, seeds, low),
        torch.full((len(seeds),), -strength),
        batches_of(lm, pair, batch, seed=0),
        schedule,
        objective=capped_gap,
        batch_tokens=batch_tokens,
        label=f"keep {keep.name}, lose {lose.name}",
        progress=progress,
    )
    done[GATES] = (theta.numpy(),)


def combine(
    lm: LM,
    *,
    pair: Pair,
    seeds: Sequence[int],
    held_out: int,
    batch_tokens: int | None,
    done: FinishedParts,
    progress: Progress,
) -> xr.Dataset:
    """Measure both tasks on held-out examples: with the whole model, and under the fitted and the rounded gates."""
    gate = torch.from_numpy(done[GATES][0]).sigmoid()
    nll = np.empty((2, 3, len(seeds)))
    accuracy = np.empty((2, 3, len(seeds)))
    for side, task in enumerate(pair):
        bundles = held_out_bundles(lm, task, held_out)
        quality = measure_baseline(lm, task, bundles, batch_tokens)
        nll[side, 0] = -quality["baseline"]
        accuracy[side, 0] = quality["whole_accuracy"]
        for row, gates in enumerate((gate, gate.round()), 1):
            log_p, right = batched_log_probs(lm, bundles, gates, batch_tokens)
            nll[side, row] = -log_p.mean(1)
            accuracy[side, row] = right.float().mean(1)
    gate[:, lm.layers_without_heads] = torch.nan
    dims = ("task", "seed", "layer", "head")
    return xr.Dataset(
        {
            "gate": (dims, gate[None].numpy()),
            "lost": (dims, (1 - gate)[None].numpy()),
            "nll": (("side", "gates", "seed"), nll),
            "accuracy": (("side", "gates", "seed"), accuracy),
        },
        coords={
            "task": [pair_name(pair)],
            "seed": seeds,
            "side": ["keep", "lose"],
            "gates": ["whole", "fitted", "rounded"],
            "layer": range(lm.n_layers),
            "head": range(lm.n_heads),
        },
    )
