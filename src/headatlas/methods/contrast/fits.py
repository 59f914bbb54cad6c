"""Gates under which one task is done and another is not."""

from collections.abc import Sequence
from itertools import islice

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headatlas.methods.gate.fits import fit, start
from headatlas.methods.gate.settings import Schedule, Settings
from headatlas.models.cost import Cost, learning, reading
from headatlas.models.lm import LM
from headatlas.models.targets import measure
from headatlas.progress import Done, Progress
from headatlas.tasks.baseline import baseline
from headatlas.tasks.bundles import batches_of, held_out_bundles
from headatlas.tasks.prompts import Task

MOST = 5.0  # nats by which the lost task may be worse than the kept one before it stops paying
Pair = tuple[Task, Task]
"""The task to keep, and the one to lose. Example i of both asks the same."""


def objective(log_p: list[Tensor]) -> Tensor:
    keep, lose = log_p
    return (lose - keep).clamp(min=-MOST)


def fit_part(
    lm: LM,
    pair: Pair,
    seeds: Sequence[int],
    settings: Settings,
    batch_tokens: int | None,
    *,
    done: Done,
    progress: Progress,
) -> None:
    """Leaves θ [seed, layer, head]."""
    theta = fit(
        lm,
        start(lm, seeds, settings.low),
        torch.full((len(seeds),), -settings.strength),
        batches_of(lm, pair, settings.batch, seed=0),
        Schedule(_updates(settings), settings.pressed.lr, settings.pressed.lr_end),
        objective=objective,
        norm=settings.norm,
        tokens=batch_tokens,
        label=f"keep {pair[0].name}, lose {pair[1].name}",
        progress=progress,
    )
    done["gates"] = (theta.numpy(),)


def fit_cost(lm: LM, pair: Pair, seeds: Sequence[int], settings: Settings, batch_tokens: int | None) -> Cost:
    updates = islice(batches_of(lm, pair, settings.batch, seed=0), 3)
    bundles = [bundle for matched in updates for both in matched for bundle in both]
    return learning(lm, bundles, len(seeds) / 3) * _updates(settings)


def _updates(settings: Settings) -> int:
    return settings.free.updates + settings.pressed.updates


def combine(
    lm: LM,
    pair: Pair,
    seeds: Sequence[int],
    settings: Settings,
    batch_tokens: int | None,
    *,
    done: Done,
    progress: Progress,
) -> xr.Dataset:
    gates = torch.from_numpy(done["gates"][0]).sigmoid()
    nll, accuracy = np.empty((2, 2, 3, len(seeds)))
    for side, task in enumerate(pair):
        held_out = held_out_bundles(lm, task, settings.held_out)
        quality = baseline(lm, task, held_out, batch_tokens)
        nll[side, 0], accuracy[side, 0] = -quality["baseline"], quality["whole_accuracy"]
        for i, used in enumerate((gates, gates.round()), 1):
            log_p, right = measure(lm, held_out, used, batch_tokens)
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
        coords={"task": [f"{pair[0].name} kept, {pair[1].name} lost"], "seed": seeds}
        | {"side": ["keep", "lose"], "gates": ["whole", "fitted", "rounded"]}
        | {"layer": range(lm.n_layers), "head": range(lm.n_heads)},
    )


def combine_cost(lm: LM, pair: Pair, seeds: Sequence[int], settings: Settings, batch_tokens: int | None) -> Cost:
    bundles = [bundle for task in pair for bundle in held_out_bundles(lm, task, settings.held_out)]
    return reading(lm, bundles, 1 + 2 * len(seeds))
