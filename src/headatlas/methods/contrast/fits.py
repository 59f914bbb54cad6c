"""Gates under which one task is done and another is not."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headatlas.methods.gate.fits import fit, start
from headatlas.methods.gate.settings import Schedule, Settings
from headatlas.models.cost import SAMPLED, Cost, learning, reading
from headatlas.models.lm import LM
from headatlas.models.log_probs import batched_log_probs
from headatlas.models.memory import tokens_at_once
from headatlas.progress import Done, Progress
from headatlas.tasks.baseline import baseline
from headatlas.tasks.bundles import batches_of, held_out_bundles
from headatlas.tasks.prompts import Task

GATES = "gates"  # the part that fits them, and what it leaves
MOST = 5.0  # nats by which the lost task may be worse than the kept one before it stops paying


@dataclass(frozen=True)
class PairFit:
    """The fit of two tasks, from each of these seeds. Example i of both asks the same."""

    keep: Task
    lose: Task
    seeds: Sequence[int]
    settings: Settings
    batch_tokens: int | None

    @property
    def name(self) -> str:
        return f"keep {self.keep.name}, lose {self.lose.name}"

    @property
    def updates(self) -> int:
        return self.settings.free.updates + self.settings.pressed.updates


def objective(log_p: list[Tensor]) -> Tensor:
    keep, lose = log_p
    return (lose - keep).clamp(min=-MOST)


def fit_pair(lm: LM, pair: PairFit, *, done: Done, progress: Progress) -> None:
    """Leaves θ [seed, layer, head]."""
    settings = pair.settings
    theta = fit(
        lm,
        start(lm, pair.seeds, settings.low),
        torch.full((len(pair.seeds),), -settings.strength),
        batches_of(lm, (pair.keep, pair.lose), settings.batch, seed=0),
        Schedule(pair.updates, settings.pressed.lr, settings.pressed.lr_end),
        objective=objective,
        norm=settings.norm,
        tokens=pair.batch_tokens,
        label=pair.name,
        progress=progress,
    )
    done[GATES] = (theta.numpy(),)


def fit_cost(lm: LM, pair: PairFit) -> Cost:
    cost, tokens = Cost(), max(1, tokens_at_once(lm, pair.batch_tokens) // 2)  # both sides at once
    for matched in islice(batches_of(lm, (pair.keep, pair.lose), pair.settings.batch, seed=0), SAMPLED):
        for bundles in zip(*matched, strict=True):  # of either task
            cost += learning(lm, bundles, len(pair.seeds), tokens=tokens)
    return cost * (pair.updates / SAMPLED)


def combine(lm: LM, pair: PairFit, *, done: Done, progress: Progress) -> xr.Dataset:
    gates = torch.from_numpy(done[GATES][0]).sigmoid()
    nll, accuracy = np.empty((2, 2, 3, len(pair.seeds)))
    for side, task in enumerate((pair.keep, pair.lose)):
        held_out = held_out_bundles(lm, task, pair.settings.held_out)
        quality = baseline(lm, task, held_out, pair.batch_tokens)
        nll[side, 0], accuracy[side, 0] = -quality["baseline"], quality["whole_accuracy"]
        for i, used in enumerate((gates, gates.round()), 1):
            log_p, right = batched_log_probs(lm, held_out, used, pair.batch_tokens)
            nll[side, i], accuracy[side, i] = -log_p.mean(1), right.float().mean(1)
    gates[:, lm.layers_without_heads] = torch.nan
    dims = ("task", "seed", "layer", "head")
    return xr.Dataset(
        {
            "gate": (dims, gates[None].numpy()),
            "lost": (dims, (1 - gates)[None].numpy()),
            "nll": (("side", "gates", "seed"), nll),
            "accuracy": (("side", "gates", "seed"), accuracy),
        },
        coords={"task": [f"{pair.keep.name} kept, {pair.lose.name} lost"], "seed": pair.seeds}
        | {"side": ["keep", "lose"], "gates": ["whole", "fitted", "rounded"]}
        | {"layer": range(lm.n_layers), "head": range(lm.n_heads)},
    )


def combine_cost(lm: LM, pair: PairFit) -> Cost:
    held_out = [held_out_bundles(lm, task, pair.settings.held_out) for task in (pair.keep, pair.lose)]
    every = [bundle for bundles in held_out for bundle in bundles]
    return reading(lm, every, 1 + 2 * len(pair.seeds), tokens=pair.batch_tokens)
