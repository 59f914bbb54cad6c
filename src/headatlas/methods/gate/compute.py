"""Fit the gates of a task, and score every head's roles.

Seeds form a batch dimension, and so do the retain and the remove fit: each has its own gates, Adam moments and gradient
norm, so the result of a seed does not depend on the seeds that are fitted with it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headatlas.errors import BadArgument, CannotDo, brief, check_count, check_positive, is_number
from headatlas.methods._seeds import MAX_EXAMPLES, MAX_UPDATES
from headatlas.methods.gate import ROLE_THRESHOLD
from headatlas.methods.method import Part
from headatlas.models.gradients import frozen_float32_stream
from headatlas.models.lm import LM
from headatlas.models.log_probs import batched_log_probs, batches, log_probs
from headatlas.models.memory import halve_batch_on_oom, tokens_at_once
from headatlas.progress import FinishedParts, Progress, silent
from headatlas.tasks.baseline import measure_baseline
from headatlas.tasks.bundles import MatchedBundles, batches_of, held_out_bundles, prefetch
from headatlas.tasks.prompts import Task

MAX_THETA = 4.0  # the gate is nearly open or closed there, and the pressure on θ ends
MAX_GRADIENT_NORM = 1.0  # of the gradient of each fit
MAX_SEEDS_TOGETHER = 10
MIN_OPERATIONS = 5e13  # floating-point operations per update; with fewer, a GPU waits for the host
ROLES = ("facilitation", "interference", "irrelevance")
FITS = ("free", "retain", "remove")

Objective = Callable[[list[Tensor]], Tensor]
"""Maps log P [gate, example] of each task to the loss [gate, example]."""


@dataclass(frozen=True)
class Schedule:
    """Updates of Adam, with a learning rate that falls linearly from lr to lr_end."""

    updates: int
    lr: float
    lr_end: float


def make_schedules(updates: Any, free_lr: Any, pressed_lr: Any) -> dict[str, Schedule]:
    """Return the schedules of the free fit and of the pressed ones. updates: one number for both, or a pair."""
    pair = list(updates) if isinstance(updates, Sequence) and not isinstance(updates, str) else [updates, updates]
    if len(pair) != 2:
        raise BadArgument(
            f"updates is {brief(updates)}, expected one number, or two: for the free fit, and for retain and remove"
        )
    return {
        "free": make_schedule(pair[0], free_lr, "free_lr"),
        "pressed": make_schedule(pair[1], pressed_lr, "pressed_lr"),
    }


def make_schedule(updates: Any, rates: Any, argument: str) -> Schedule:
    """Check a number of updates and a pair of learning rates. argument: name of the rates in errors."""
    if not isinstance(rates, Sequence) or isinstance(rates, str) or len(rates) != 2:
        raise BadArgument(f"{argument} is {brief(rates)}, expected two numbers: the learning rate at start and end")
    first, last = (check_positive(argument, rate) for rate in rates)
    return Schedule(check_count("updates", updates, 1, MAX_UPDATES), first, last)


def check_fitting(strength: Any, batch: Any, low: Any) -> dict[str, Any]:
    """Check the options that all fits share, and return them by name as plain numbers."""
    if not is_number(low) or not 0 <= low < 1:
        raise BadArgument(f"low is {brief(low)}, expected a number from 0 to below 1: gates start from Uniform(low, 1)")
    return {
        "strength": check_positive("strength", strength, "it is the size of λ, the pressure on gates"),
        "batch": check_count("batch", batch, 1, MAX_EXAMPLES, "they must fit into memory together"),
        "low": float(low),
    }


def count_updates(schedules: Mapping[str, Schedule]) -> str:
    """Describe the number of updates of the fits: '24 + 30'."""
    return " + ".join(str(schedule.updates) for schedule in schedules.values())


def plain_settings(schedules: Mapping[str, Schedule]) -> dict[str, float]:
    """Return the numbers of schedules, and the largest norm of gradients, by their names in result files."""
    numbers = {f"{fit}_{name}": n for fit, schedule in schedules.items() for name, n in asdict(schedule).items()}
    return {**numbers, "norm": MAX_GRADIENT_NORM}


def half_of(task: Task, half: int) -> Task:
    """Return a task with half of its training examples, named after the half."""
    return replace(task.halves()[half], name=f"{task.name}, half {half}")


# --- the fit of gates


def negative_log_p(log_p: list[Tensor]) -> Tensor:
    """Return the objective of one task: −log P(target)."""
    return -log_p[0]


def draw_theta(lm: LM, seeds: Sequence[int], low: float = 0.0) -> Tensor:
    """Draw θ [seed, layer, head] of gates from Uniform(low, 1), for each seed by itself."""
    gates = [np.random.default_rng([1, seed]).uniform(low, 1, (lm.n_layers, lm.n_heads)) for seed in seeds]
    return torch.tensor(np.array(gates), dtype=torch.float32).logit().clamp(-MAX_THETA, MAX_THETA)


def loss_and_gradient(
    lm: LM, theta: Tensor, matched: Sequence[MatchedBundles], objective: Objective, tokens: int
) -> tuple[Tensor, Tensor]:
    """Return the mean objective over the examples [gate], and its gradient in θ [gate, layer, head]."""
    theta = theta.detach()
    loss = torch.zeros_like(theta[:, 0, 0])
    gradient = torch.zeros_like(theta)
    n_examples = sum(len(bundles[0].examples) for bundles in matched)
    tasks = range(len(matched[0]))
    # matched bundles must be in the same batch, so batches are made by the task with most tokens
    longest = max(tasks, key=lambda k: sum(bundles[k].size for bundles in matched))
    for gates, rows in batches([bundles[longest] for bundles in matched], len(theta), tokens // len(tasks)):
        with halve_batch_on_oom(lm, tokens), torch.enable_grad():
            part = theta[gates].requires_grad_()
            gate = part.sigmoid().to(lm.device)
            log_p = [log_probs(lm, [matched[i][k] for i in rows], gate, packed=True)[0] for k in tasks]
            part_loss = objective(log_p).sum(1) / n_examples
            # gates do not affect each other's loss, so the gradient of the sum has that of each
            (part_gradient,) = torch.autograd.grad(part_loss.sum(), part)
        loss[gates] += part_loss.detach().cpu()
        gradient[gates] += part_gradient
    return loss, gradient


def fit_gates(
    lm: LM,
    theta: Tensor,
    pressure: Tensor,
    data: Iterator[list[MatchedBundles]],
    schedule: Schedule,
    *,
    objective: Objective = negative_log_p,
    batch_tokens: int | None = None,
    label: str = "fit",
    progress: Progress = silent,
) -> Tensor:
    """Fit gates from θ [gate, layer, head], each under its own pressure λ [gate]; return the fitted θ."""
    theta = theta.clone()
    has_heads = lm.anatomy.has_heads[None, :, None]
    n_heads = int(has_heads.sum()) * lm.n_heads
    tokens = tokens_at_once(lm, batch_tokens)
    optimiser = torch.optim.Adam([theta.requires_grad_()], lr=schedule.lr)
    with frozen_float32_stream(lm), closing(prefetch(data)) as upcoming:
        for update in progress(range(schedule.updates), label):
            optimiser.param_groups[0]["lr"] = schedule.lr + (schedule.lr_end - schedule.lr) * update / schedule.updates
            loss, gradient = loss_and_gradient(lm, theta, next(upcoming), objective, tokens)
            pressed = (theta.detach().abs() <= MAX_THETA) & has_heads
            gradient = gradient - pressure[:, None, None] / n_heads * pressed
            _check_finite(loss, gradient, f"update {update + 1} of {schedule.updates}", label)
            # not clipped by torch's function, because each fit has its norm
            norm = gradient.flatten(1).norm(dim=1)[:, None, None]
            theta.grad = gradient * (MAX_GRADIENT_NORM / norm.clamp(min=MAX_GRADIENT_NORM))
            optimiser.step()
    return theta.detach()


def _check_finite(loss: Tensor, gradient: Tensor, when: str, label: str) -> None:
    finite = loss.isfinite() & gradient.flatten(1).isfinite().all(1)
    if not finite.all():
        gate = int((~finite).nonzero()[0])
        what = "the gradient is not finite" if loss[gate].isfinite() else f"loss is {loss[gate].item()}"
        raise CannotDo(
            f"{label}: {what} at {when}, gate {gate}; finished parts are kept"
            " (a model in float16 overflows easily: load it in bfloat16 or float32)"
        )


# --- the fits of a task: one part for each block of seeds


def split_seeds(lm: LM, task: Task, seeds: Sequence[int], batch: int) -> list[list[int]]:
    """Split seeds into blocks that are fitted together: large enough to fill a GPU, small enough to use several GPUs.

    Of a large model, one seed fills a GPU.
    """
    tokens = sum(bundle.size for (bundle,) in next(batches_of(lm, [task], batch, seed=0)))
    operations = 4 * tokens * sum(p.numel() for p in lm.model.parameters())
    together = min(MAX_SEEDS_TOGETHER, max(1, round(MIN_OPERATIONS / operations)))
    return [list(seeds[start : start + together]) for start in range(0, len(seeds), together)]


def part_name(task: Task, seeds: Sequence[int]) -> str:
    """Name the part that fits a task from these seeds."""
    return f"{task.name}, seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def stage_names(task: Task, seeds: Sequence[int]) -> tuple[str, str]:
    """Name the two outputs of the part: θ of the free fit, and of retain and remove."""
    return f"{part_name(task, seeds)}: free", f"{part_name(task, seeds)}: pressed"


def fit_part(task: Task, seeds: Sequence[int], fitting: Mapping[str, Any]) -> Part:
    """Return the part that fits a task from these seeds. fitting: the other arguments of `fit_task`."""
    return Part(
        name=part_name(task, seeds),
        do=fit_task,
        arguments={"task": task, "seeds": seeds, **fitting},
        outputs=stage_names(task, seeds),
    )


def fit_task(
    lm: LM,
    task: Task,
    seeds: Sequence[int],
    *,
    free: Schedule,
    pressed: Schedule,
    strength: float,
    batch: int,
    low: float,
    batch_tokens: int | None = None,
    done: FinishedParts | None = None,
    progress: Progress = silent,
) -> Tensor:
    """Make the three fits of a task, and return θ [fit, seed, layer, head].

    Finished stages are stored in `done`, and not fitted again if they are there.
    """
    done = {} if done is None else done
    fit = partial(fit_gates, lm, batch_tokens=batch_tokens, progress=progress)
    free_name, pressed_name = stage_names(task, seeds)
    if free_name not in done:
        data = batches_of(lm, [task], batch, seed=0)
        no_pressure = torch.zeros(len(seeds))
        theta = fit(draw_theta(lm, seeds, low), no_pressure, data, free, label=f"{task.name}: free")
        done[free_name] = (theta.numpy(),)
    if pressed_name not in done:
        data = batches_of(lm, [task], batch, seed=1)
        # clamped, because pressure would not move an idle head beyond ± MAX_THETA
        first = torch.from_numpy(done[free_name][0]).clamp(-MAX_THETA, MAX_THETA).repeat(2, 1, 1)
        pressure = torch.tensor([strength, -strength]).repeat_interleave(len(seeds))
        theta = fit(first, pressure, data, pressed, label=f"{task.name}: retain and remove")
        done[pressed_name] = (theta.numpy(),)
    return fitted_theta(done, task, seeds)


def fitted_theta(done: FinishedParts, task: Task, seeds: Sequence[int]) -> Tensor:
    """Return θ [fit, seed, layer, head] from the arrays that `fit_task` stored."""
    stages = [torch.from_numpy(done[name][0]) for name in stage_names(task, seeds)]
    return torch.cat(stages).unflatten(0, (len(FITS), len(seeds)))


# --- the result


def combine(
    lm: LM,
    *,
    groups: Sequence[Sequence[Task]],
    blocks: Mapping[str, Sequence[Sequence[int]]],
    held_out: int,
    batch_tokens: int | None,
    done: FinishedParts,
    progress: Progress,
) -> xr.Dataset:
    """Score the roles from the fitted gates.

    Args:
        lm: the model.
        groups: the tasks and, if they were fitted too, the tasks on each half of their examples.
        blocks: seeds that were fitted together, by task.
        held_out: number of held-out examples to measure gates on.
        batch_tokens: tokens run through the model at once.
        done: the fitted θ.
        progress: reports progress.
    """
    tasks, *half_groups = groups
    names = [task.name for task in tasks]
    evaluate = partial(evaluate_tasks, lm, blocks=blocks, held_out=held_out, batch_tokens=batch_tokens, done=done)
    result = evaluate(tasks)
    if half_groups:
        maps = [evaluate(half).assign_coords(task=names)[list(ROLES)].mean("seed") for half in half_groups]
        half_maps = xr.concat(maps, "half").assign_coords(half=["first", "second"])
        result = result.merge(half_maps.rename({role: f"{role}_half" for role in ROLES}))
    result.share.attrs["description"] = (
        f"Share of heads whose score is at least {ROLE_THRESHOLD}: lowest (always), highest (any) and mean over"
        f" {result.sizes['seed']} seeds. Compare always and any at the same number of seeds only."
    )
    return result


def evaluate_tasks(
    lm: LM,
    tasks: Sequence[Task],
    *,
    blocks: Mapping[str, Sequence[Sequence[int]]],
    held_out: int,
    batch_tokens: int | None,
    done: FinishedParts,
) -> xr.Dataset:
    """Return every task's gates, scores of roles, and −log P(target) on held-out examples under each fit's gates."""
    results = []
    for task in tasks:
        bundles = held_out_bundles(lm, task, held_out)
        quality = measure_baseline(lm, task, bundles, batch_tokens)
        gate = torch.cat([fitted_theta(done, task, seeds) for seeds in blocks[task.name]], dim=1).sigmoid()
        log_p, _ = batched_log_probs(lm, bundles, gate.flatten(0, 1), batch_tokens)
        gate[:, :, lm.layers_without_heads] = torch.nan
        variables = {
            "gate": (("fit", "seed", "layer", "head"), gate.numpy()),
            "nll": (("fit", "seed"), -log_p.mean(1).unflatten(0, (len(FITS), -1)).numpy()),
            **quality,
        }
        seeds = [seed for block in blocks[task.name] for seed in block]
        coords = {"fit": list(FITS), "seed": seeds, "layer": range(lm.n_layers), "head": range(lm.n_heads)}
        results.append(xr.Dataset(variables, coords))
    names = [task.name for task in tasks]
    gates = xr.concat(results, "task").assign_coords(task=names).transpose("fit", "task", "seed", ...)
    scores = score_roles(gates.gate)
    summary = summarise_seeds(scores)
    facilitation = summary.summary.sel(role="facilitation", drop=True)
    lowest, highest = (facilitation.sel(over=over, drop=True) for over in ("always", "any"))
    return gates.merge(scores).merge(summary).assign({"always": lowest, "any": highest})


def score_roles(gate: xr.DataArray) -> xr.Dataset:
    """Return facilitation, interference and irrelevance of gate(fit, …)."""
    retain, remove = (gate.sel(fit=fit, drop=True) for fit in ("retain", "remove"))
    return xr.Dataset(dict(zip(ROLES, (remove, 1 - retain, retain * (1 - remove)), strict=True)))


def summarise_seeds(scores: xr.Dataset) -> xr.Dataset:
    """Return `summary(role, over, …)` of the scores over seeds, and `share` of the heads that have the role."""
    score = scores.to_dataarray("role")
    statistics = {
        "always": score.min("seed"),
        "any": score.max("seed"),
        "mean": score.mean("seed"),
        "spread": score.std("seed"),
    }
    summary = xr.concat(list(statistics.values()), "over").assign_coords(over=list(statistics))
    summary = summary.transpose("role", "over", ...)
    n_heads = summary.notnull().sum(("layer", "head"))
    share = ((summary >= ROLE_THRESHOLD).sum(("layer", "head")) / n_heads).sel(over=["always", "any", "mean"])
    return xr.Dataset({"summary": summary, "share": share.rename(over="share_over")})


def sentences(result: xr.Dataset) -> list[str]:
    """Say how well the model does each task; imported gates do not have the numbers."""
    if not {"whole_accuracy", "guess_accuracy"} <= set(result):
        return []
    lines = []
    for task in result.task.values.tolist():
        accuracy = float(result.whole_accuracy.sel(task=task))
        guess = float(result.guess_accuracy.sel(task=task))
        lines.append(f"gate: the whole model gets {accuracy:.0%} of {task} right; the best guess {guess:.0%}")
    return lines
