"""The result of `gate`: gates and roles of every task, over seeds and halves, and what switching heads off does."""

from collections.abc import Sequence
from typing import Any

import torch
import xarray as xr

from headatlas.evidence.removal import p_corrected
from headatlas.methods.gate.fits import FITS, ROLES, blocks, fit_task, over_seeds, roles
from headatlas.methods.gate.settings import Settings
from headatlas.methods.gate.switching import DRAWS, switch_off
from headatlas.models.cost import Cost, reading
from headatlas.models.lm import LM
from headatlas.models.targets import measure
from headatlas.progress import Done, Progress, silent
from headatlas.tasks.baseline import baseline
from headatlas.tasks.bundles import held_out_bundles
from headatlas.tasks.prompts import Task


def combine(
    lm: LM,
    tasks: Sequence[Task],
    halves: Sequence[Sequence[Task]],
    seeds: Sequence[int],
    settings: Settings,
    proof: bool,
    batch_tokens: int | None,
    *,
    done: Done,
    progress: Progress,
) -> xr.Dataset:
    """halves: every task on each half of its examples; none, if these are not wanted."""
    names = [t.name for t in tasks]
    result = gate_tasks(lm, tasks, seeds, settings, done=done, tokens=batch_tokens, progress=progress)
    if proof:
        curves = [
            switch_off(lm, result.sel(task=task.name), task, settings, tokens=batch_tokens, progress=progress)
            for task in tasks
        ]
        removal = xr.concat(curves, "task").assign_coords(task=names)
        result = result.merge(removal.assign(p_corrected=removal.p.copy(data=p_corrected(removal.p.values))))
    if halves:
        parts = [
            gate_tasks(lm, half, seeds, settings, done=done, tokens=batch_tokens, progress=progress) for half in halves
        ]
        both = xr.concat([p.assign_coords(task=names)[list(ROLES)].mean("seed") for p in parts], "half")
        both = both.assign_coords(half=["first", "second"])
        result = result.merge(both.rename({role: f"{role}_half" for role in ROLES}))
    return result


def combine_cost(
    lm: LM,
    tasks: Sequence[Task],
    halves: Sequence[Sequence[Task]],
    seeds: Sequence[int],
    settings: Settings,
    proof: bool,
    batch_tokens: int | None,
) -> Cost:
    cost = Cost()
    for task in (*tasks, *(t for half in halves for t in half)):
        cost += reading(lm, held_out_bundles(lm, task, settings.held_out), 1 + len(FITS) * len(seeds))
    for task in tasks if proof else ():
        sets = len(ROLES) * len(settings.steps) * (1 + DRAWS)
        cost += reading(lm, held_out_bundles(lm, task, settings.switching), 2 * sets)
    return cost


def gate_tasks(
    lm: LM,
    tasks: Sequence[Task],
    seeds: Sequence[int],
    settings: Settings,
    *,
    done: Done | None = None,
    tokens: int | None = None,
    progress: Progress = silent,
) -> xr.Dataset:
    """Every task's gates, the roles they give the heads, and −log P(target) on held-out examples under each of them."""
    results = []
    for task in tasks:
        held_out = held_out_bundles(lm, task, settings.held_out)
        quality = baseline(lm, task, held_out, tokens)
        options: dict[str, Any] = {"done": done, "tokens": tokens, "progress": progress}
        theta = torch.cat([fit_task(lm, task, block, settings, **options) for block in blocks(seeds)], dim=1)
        gate = theta.sigmoid()
        log_p, _ = measure(lm, held_out, gate.flatten(0, 1), tokens)
        gate[:, :, lm.layers_without_heads] = torch.nan
        one = xr.Dataset(
            {
                "gate": (("fit", "seed", "layer", "head"), gate.numpy()),
                "nll": (("fit", "seed"), -log_p.mean(1).unflatten(0, (len(FITS), -1)).numpy()),
                **quality,
            },
            coords={"fit": list(FITS), "seed": list(seeds), "layer": range(lm.n_layers), "head": range(lm.n_heads)},
        )
        results.append(one)
    gates = xr.concat(results, "task").assign_coords(task=[t.name for t in tasks]).transpose("fit", "task", "seed", ...)
    scores = roles(gates.gate)
    summed = over_seeds(scores)
    facilitation = summed.summary.sel(role="facilitation", drop=True)
    return (
        gates.merge(scores)
        .merge(summed)
        .assign(always=facilitation.sel(over="always", drop=True), any=facilitation.sel(over="any", drop=True))
    )
