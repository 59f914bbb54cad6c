"""The result of `gate`: gates and roles of every task, over seeds and halves, and what switching heads off does."""

from collections.abc import Sequence

import torch
import xarray as xr

from headatlas.evidence.control import correct_p, expected_draws
from headatlas.methods.gate.fits import FITS, ROLES, TaskFit, fit_task, over_seeds, roles
from headatlas.methods.gate.switching import DRAWS_PER_ROUND, switch_off
from headatlas.models.cost import Cost, reading
from headatlas.models.lm import LM
from headatlas.models.log_probs import batched_log_probs
from headatlas.progress import Done, Progress, silent
from headatlas.tasks.baseline import baseline
from headatlas.tasks.bundles import held_out_bundles


def combine(
    lm: LM, fits: Sequence[TaskFit], halves: Sequence[Sequence[TaskFit]], proof: bool, *, done: Done, progress: Progress
) -> xr.Dataset:
    """halves: every task on each half of its examples; none, if these are not wanted."""
    names = [of.task.name for of in fits]
    result = gate_tasks(lm, fits, done=done, progress=progress)
    if proof:
        curves = [switch_off(lm, result.sel(task=of.task.name), of, progress=progress) for of in fits]
        removal = xr.concat(curves, "task").assign_coords(task=names)
        result = result.merge(removal.assign(p_corrected=removal.p.copy(data=correct_p(removal.p.values))))
    if halves:
        parts = [gate_tasks(lm, half, done=done, progress=progress) for half in halves]
        both = xr.concat([p.assign_coords(task=names)[list(ROLES)].mean("seed") for p in parts], "half")
        both = both.assign_coords(half=["first", "second"])
        result = result.merge(both.rename({role: f"{role}_half" for role in ROLES}))
    return result


def combine_cost(lm: LM, fits: Sequence[TaskFit], halves: Sequence[Sequence[TaskFit]], proof: bool) -> Cost:
    cost = Cost()
    for of in (*fits, *(of for half in halves for of in half)):
        held_out, tokens = held_out_bundles(lm, of.task, of.settings.held_out), of.batch_tokens
        cost += reading(lm, held_out, 1 + len(FITS) * len(of.seeds), tokens=tokens)
    for of in fits if proof else ():
        held_out, tokens = held_out_bundles(lm, of.task, of.settings.switching), of.batch_tokens
        one, some = (reading(lm, held_out, 2 * sets, tokens=tokens) for sets in (1, DRAWS_PER_ROUND))  # off and on
        cost += len(ROLES) * len(of.settings.steps) * (one + expected_draws(of.settings.draws) / DRAWS_PER_ROUND * some)
    return cost


def gate_tasks(lm: LM, fits: Sequence[TaskFit], *, done: Done | None = None, progress: Progress = silent) -> xr.Dataset:
    """Every task's gates, the roles they give the heads, and −log P(target) on held-out examples under each of them."""
    results = []
    for of in fits:
        held_out = held_out_bundles(lm, of.task, of.settings.held_out)
        quality = baseline(lm, of.task, held_out, of.batch_tokens)
        theta = torch.cat([fit_task(lm, block, done=done, progress=progress) for block in of.blocks()], dim=1)
        gate = theta.sigmoid()
        log_p, _ = batched_log_probs(lm, held_out, gate.flatten(0, 1), of.batch_tokens)
        gate[:, :, lm.layers_without_heads] = torch.nan
        one = xr.Dataset(
            {
                "gate": (("fit", "seed", "layer", "head"), gate.numpy()),
                "nll": (("fit", "seed"), -log_p.mean(1).unflatten(0, (len(FITS), -1)).numpy()),
                **quality,
            },
            coords={"fit": list(FITS), "seed": list(of.seeds), "layer": range(lm.n_layers), "head": range(lm.n_heads)},
        )
        results.append(one)
    names = [of.task.name for of in fits]
    gates = xr.concat(results, "task").assign_coords(task=names).transpose("fit", "task", "seed", ...)
    scores = roles(gates.gate)
    summed = over_seeds(scores)
    facilitation = summed.summary.sel(role="facilitation", drop=True)
    always, most = (facilitation.sel(over=over, drop=True) for over in ("always", "any"))
    return gates.merge(scores).merge(summed).assign({"always": always, "any": most})
