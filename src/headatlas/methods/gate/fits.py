"""gate: which heads a task needs, which it would be better without, and which are idle (Nam et al. 2025, arXiv 2505.13737).

1. Gates G[l, h] = sigmoid(θ[l, h]) multiply every head's output z at every position. Weights are frozen; only θ learns.
2. *free*: from G ~ Uniform(0, 1), minimise −log P(target | prompt).
3. *retain* and *remove*: both from there, minimise −log P(target | prompt) − λ · mean(clip(θ, −4, 4)), with λ > 0 (pressure
   towards 1) for retain, which gives G⁺, and λ < 0 (pressure towards 0) for remove, which gives G⁻.
4. facilitation = G⁻: kept although dropping it would pay. interference = 1 − G⁺: dropped although keeping it would pay.
   irrelevance = G⁺ · (1 − G⁻): goes whichever way it is pushed.

All seeds, and retain beside remove, are one batch dimension: each has gates, Adam moments and a gradient norm of its own, so a
seed comes out the same whichever seeds are fitted beside it.

Contrastive (two matched tasks, keep A and lose B): one fit from there with λ < 0 that minimises max(NLL_A − NLL_B, −5).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headatlas.errors import BadArgument, CannotDo
from headatlas.models.lm import LM
from headatlas.models.targets import Sheet, batches, frozen, log_probs, measure, telling_memory, tokens_at_once
from headatlas.progress import Done, Progress, silent
from headatlas.tasks.baseline import baseline
from headatlas.tasks.prompts import Strands, Task, batches_of, held_out_sheets

CLIP = 4.0  # the pressure on θ ends where a gate is as good as open or shut
CONTRAST = 5.0  # nats by which B may be worse than A before it stops paying
BLOCK = 5  # seeds fitted at once
ROLES = ("facilitation", "interference", "irrelevance")
HAS_ROLE = 0.5
FITS = ("free", "retain", "remove")


@dataclass(frozen=True)
class Schedule:
    """So many updates of Adam, with a learning rate that falls linearly."""

    updates: int
    lr: float
    lr_end: float


@dataclass(frozen=True)
class Settings:
    free: Schedule
    pressed: Schedule
    strength: float  # |λ|
    batch: int  # examples an update
    seeds: int
    held_out: int  # examples that results are measured on
    switching: int  # examples that heads are switched off on
    steps: tuple[int, ...]  # how many heads are switched off at once
    low: float = 0.0  # gates start from Uniform(low, 1)
    norm: float = 1.0  # gradients are clipped to it, seed by seed


PRESETS = {
    "full": Settings(
        free=Schedule(500, 0.1, 0.01),
        pressed=Schedule(500, 0.5, 0.1),
        strength=0.1,
        batch=64,
        seeds=10,
        held_out=128,
        switching=64,
        steps=(1, 2, 4, 8, 16, 32),
    ),
    "quick": Settings(
        free=Schedule(12, 0.4, 0.1),
        pressed=Schedule(45, 0.4, 0.1),
        strength=0.3,
        batch=2,
        seeds=3,
        held_out=32,
        switching=8,
        steps=(32,),
        low=0.5,  # a model with half its heads shut takes more updates to mend than there are
    ),
}

Objective = Callable[[list[Tensor]], Tensor]
"""log P [gate, example] of each strand → what to minimise [gate, example]."""


def likelihood(log_p: list[Tensor]) -> Tensor:
    return -log_p[0]


def contrast(log_p: list[Tensor]) -> Tensor:
    keep, lose = log_p
    return (lose - keep).clamp(min=-CONTRAST)


def start(lm: LM, seeds: Sequence[int], low: float = 0.0) -> Tensor:
    """θ [seed, layer, head] of G ~ Uniform(low, 1); each seed's own draw."""
    drawn = [np.random.default_rng([1, seed]).uniform(low, 1, (lm.n_layers, lm.n_heads)) for seed in seeds]
    return torch.tensor(np.array(drawn), dtype=torch.float32).logit().clamp(-CLIP, CLIP)


def slope(
    lm: LM, theta: Tensor, strands: Sequence[Strands], objective: Objective, tokens: int
) -> tuple[Tensor, Tensor]:
    """The mean objective of each gate over the examples [gate], and its gradient in θ [gate, layer, head]."""
    theta = theta.detach()
    loss, total = torch.zeros_like(theta[:, 0, 0]), torch.zeros_like(theta)
    examples = sum(len(s[0].asked) for s in strands)
    widest = max(range(len(strands[0])), key=lambda k: sum(s[k].size for s in strands))
    for some, chosen in batches([s[widest] for s in strands], len(theta), tokens // len(strands[0])):
        with telling_memory(lm, tokens), torch.enable_grad():
            part = theta[some].requires_grad_()
            gate = part.sigmoid().to(lm.device)
            log_p = [
                log_probs(lm, [strands[i][k] for i in chosen], gate, packed=True)[0] for k in range(len(strands[0]))
            ]
            value = objective(log_p).sum(1) / examples
            (change,) = torch.autograd.grad(value.sum(), part)
        loss[some] += value.detach().cpu()
        total[some] += change
    return loss, total


def fit(
    lm: LM,
    theta: Tensor,
    pressure: Tensor,
    data: Iterator[list[Strands]],
    schedule: Schedule,
    *,
    objective: Objective = likelihood,
    norm: float = 1.0,
    tokens: int | None = None,
    label: str = "fit",
    progress: Progress = silent,
) -> Tensor:
    """Fit gates from θ [gate, layer, head], each under its own pressure λ [gate]; returns the fitted θ."""
    theta = theta.clone()
    there = torch.tensor([i not in lm.layers_without_heads for i in range(lm.n_layers)])[None, :, None]
    heads = int(there.sum()) * lm.n_heads
    budget = tokens_at_once(lm, tokens)
    optimiser = torch.optim.Adam([theta.requires_grad_()], lr=schedule.lr)
    with frozen(lm):
        for update in progress(range(schedule.updates), label):
            optimiser.param_groups[0]["lr"] = schedule.lr + (schedule.lr_end - schedule.lr) * update / schedule.updates
            loss, grad = slope(lm, theta, next(data), objective, budget)
            grad = grad - pressure[:, None, None] / heads * ((theta.detach().abs() <= CLIP) & there)
            if not (loss.isfinite().all() and grad.isfinite().all()):
                bad = int((~(loss.isfinite() & grad.flatten(1).isfinite().all(1))).nonzero()[0])
                what = "the gradient is not finite" if loss[bad].isfinite() else f"loss is {loss[bad].item()}"
                raise CannotDo(
                    f"{label}: {what} at update {update + 1} of {schedule.updates}, gate {bad}; what was finished before is kept"
                    " (a model in float16 overflows easily)"
                )
            size = grad.flatten(1).norm(dim=1)[:, None, None]
            theta.grad = grad * (norm / size.clamp(min=norm))
            optimiser.step()
    return theta.detach()


def fit_task(
    lm: LM,
    task: Task,
    seeds: Sequence[int],
    settings: Settings,
    *,
    done: Done | None = None,
    tokens: int | None = None,
    progress: Progress = silent,
) -> Tensor:
    """The three fits of one task: θ [fit, seed, layer, head]. Finished stages are put into `done` and taken from it."""
    done = {} if done is None else done
    free_name, pressed_name = fit_names(task, seeds)
    options: dict[str, Any] = {"norm": settings.norm, "tokens": tokens, "progress": progress}
    if free_name not in done:
        data = batches_of(lm, [task], settings.batch, seed=0)
        free = fit(
            lm,
            start(lm, seeds, settings.low),
            torch.zeros(len(seeds)),
            data,
            settings.free,
            label=f"{task.name}: free",
            **options,
        )
        done[free_name] = (free.numpy(),)
    free = torch.from_numpy(done[free_name][0])
    if pressed_name not in done:
        pressure = torch.tensor([settings.strength, -settings.strength]).repeat_interleave(len(seeds))
        data = batches_of(lm, [task], settings.batch, seed=1)
        label = f"{task.name}: retain and remove"
        first = free.clamp(-CLIP, CLIP)  # beyond, no pressure would reach an idle head
        pressed = fit(lm, first.repeat(2, 1, 1), pressure, data, settings.pressed, label=label, **options)
        done[pressed_name] = (pressed.numpy(),)
    pressed = torch.from_numpy(done[pressed_name][0])
    return torch.cat([free, pressed]).unflatten(0, (3, len(seeds)))


def fit_names(task: Task, seeds: Sequence[int]) -> tuple[str, str]:
    """What `fit_task` calls its two stages."""
    which = f"{task.name}, {said_seeds(seeds)}"
    return f"{which}: free", f"{which}: pressed"


def said_seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def blocks(seeds: Sequence[int]) -> list[Sequence[int]]:
    """Seeds that are fitted together: enough to fill a GPU, few enough that several have something to do."""
    return [seeds[a : a + BLOCK] for a in range(0, len(seeds), BLOCK)]


def fit_contrast(
    lm: LM,
    keep: Task,
    lose: Task,
    seeds: Sequence[int],
    settings: Settings,
    *,
    tokens: int | None = None,
    progress: Progress = silent,
) -> Tensor:
    """Gates under which `keep` is done and `lose` is not: θ [seed, layer, head]. Example i of both must ask the same."""
    for split in ("train", "held_out"):
        a, b = (len(getattr(t, split)) for t in (keep, lose))
        if a != b:
            raise BadArgument(
                f"keep has {a} {split} examples and lose has {b}: they must match, example by example, in the same order"
            )
    both = settings.free.updates + settings.pressed.updates
    schedule = Schedule(both, settings.pressed.lr, settings.pressed.lr_end)
    return fit(
        lm,
        start(lm, seeds, settings.low),
        torch.full((len(seeds),), -settings.strength),
        batches_of(lm, [keep, lose], settings.batch, seed=0),
        schedule,
        objective=contrast,
        norm=settings.norm,
        tokens=tokens,
        label=f"keep {keep.name}, lose {lose.name}",
        progress=progress,
    )


# --- as labelled arrays


def roles(gate: xr.DataArray) -> xr.Dataset:
    """facilitation, interference and irrelevance of gate(fit, …)."""
    retain, remove = (gate.sel(fit=fit, drop=True) for fit in ("retain", "remove"))
    return xr.Dataset(dict(zip(ROLES, (remove, 1 - retain, retain * (1 - remove)), strict=True)))


def over_seeds(scores: xr.Dataset) -> xr.Dataset:
    """What `roles` found, over seeds: `summary(role, over, …)` with over ∈ always, any, mean, spread; and, for the first three,
    the share of heads that have the role."""
    score = scores.to_dataarray("role")
    parts = {
        "always": score.min("seed"),
        "any": score.max("seed"),
        "mean": score.mean("seed"),
        "spread": score.std("seed"),
    }
    summary = xr.concat(list(parts.values()), "over").assign_coords(over=list(parts)).transpose("role", "over", ...)
    there = summary.notnull().sum(("layer", "head"))
    share = ((summary >= HAS_ROLE).sum(("layer", "head")) / there).sel(over=["always", "any", "mean"])
    return xr.Dataset({"summary": summary, "share": share.rename(over="share_over")})


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
    found = []
    for task in tasks:
        held_out = held_out_sheets(lm, task, settings.held_out)
        whole = baseline(lm, task, held_out, tokens)
        options: dict[str, Any] = {"done": done, "tokens": tokens, "progress": progress}
        theta = torch.cat([fit_task(lm, task, block, settings, **options) for block in blocks(seeds)], dim=1)
        gate = theta.sigmoid()
        log_p, _ = measure(lm, held_out, gate.flatten(0, 1), tokens)
        gate[:, :, lm.layers_without_heads] = torch.nan
        one = xr.Dataset(
            {
                "gate": (("fit", "seed", "layer", "head"), gate.numpy()),
                "nll": (("fit", "seed"), -log_p.mean(1).unflatten(0, (3, -1)).numpy()),
                **whole,
            },
            coords={"fit": list(FITS), "seed": list(seeds), "layer": range(lm.n_layers), "head": range(lm.n_heads)},
        )
        found.append(one)
    gates = xr.concat(found, "task").assign_coords(task=[t.name for t in tasks]).transpose("fit", "task", "seed", ...)
    scores = roles(gates.gate)
    summed = over_seeds(scores)
    facilitation = summed.summary.sel(role="facilitation", drop=True)
    return (
        gates.merge(scores)
        .merge(summed)
        .assign(always=facilitation.sel(over="always", drop=True), any=facilitation.sel(over="any", drop=True))
    )
