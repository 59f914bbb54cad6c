"""Gates that are fitted, and the roles they give the heads.

All seeds, and retain beside remove, are one batch dimension: each has gates, Adam moments and a gradient norm of its
own, so a seed comes out the same whichever seeds are fitted beside it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headatlas.errors import CannotDo
from headatlas.methods.gate.settings import HAS_ROLE, Schedule, Settings
from headatlas.models.cost import SAMPLED, Cost, learning
from headatlas.models.gradients import for_gradients
from headatlas.models.lm import LM
from headatlas.models.log_probs import batches, log_probs
from headatlas.models.memory import halve_batch_on_oom, tokens_at_once
from headatlas.progress import Done, Progress, silent
from headatlas.tasks.bundles import MatchedBundles, ahead, batches_of
from headatlas.tasks.prompts import Task

CLIP = 4.0  # the pressure on θ ends where a gate is as good as open or shut
BLOCK = 10  # seeds fitted at once, at most
BUSY = 5e13  # operations of an update; with fewer, a GPU waits for the host
ROLES = ("facilitation", "interference", "irrelevance")
FITS = ("free", "retain", "remove")


Objective = Callable[[list[Tensor]], Tensor]
"""log P [gate, example] of each task → what to minimise [gate, example]."""


@dataclass(frozen=True)
class TaskFit:
    """The fits of one task, from each of these seeds."""

    task: Task
    seeds: Sequence[int]
    settings: Settings
    batch_tokens: int | None = None
    together: int = BLOCK  # seeds that are fitted at once

    @property
    def name(self) -> str:
        return f"{self.task.name}, seed{'s' * (len(self.seeds) > 1)} {', '.join(map(str, self.seeds))}"

    @property
    def stages(self) -> tuple[str, str]:
        """What `fit_task` calls its two stages."""
        return f"{self.name}: free", f"{self.name}: pressed"

    def blocks(self) -> list["TaskFit"]:
        """Seeds that are fitted together: enough to fill a GPU, few enough that several have something to do."""
        return [
            replace(self, seeds=self.seeds[a : a + self.together]) for a in range(0, len(self.seeds), self.together)
        ]


def seeds_together(lm: LM, task: Task, settings: Settings) -> int:
    """How many seeds keep a GPU busy in an update. Of a large model it is one: then each seed can have a GPU."""
    tokens = sum(bundle.size for (bundle,) in next(batches_of(lm, [task], settings.batch, seed=0)))
    operations = 4 * tokens * sum(p.numel() for p in lm.model.parameters())
    return min(BLOCK, max(1, round(BUSY / operations)))


def likelihood(log_p: list[Tensor]) -> Tensor:
    return -log_p[0]


def start(lm: LM, seeds: Sequence[int], low: float = 0.0) -> Tensor:
    """θ [seed, layer, head] of G ~ Uniform(low, 1); each seed's own draw."""
    drawn = [np.random.default_rng([1, seed]).uniform(low, 1, (lm.n_layers, lm.n_heads)) for seed in seeds]
    return torch.tensor(np.array(drawn), dtype=torch.float32).logit().clamp(-CLIP, CLIP)


def slope(
    lm: LM, theta: Tensor, matched: Sequence[MatchedBundles], objective: Objective, tokens: int
) -> tuple[Tensor, Tensor]:
    """The mean objective of each gate over the examples [gate], and its gradient in θ [gate, layer, head]."""
    theta = theta.detach()
    loss, total = torch.zeros_like(theta[:, 0, 0]), torch.zeros_like(theta)
    examples, sides = sum(len(s[0].examples) for s in matched), range(len(matched[0]))
    widest = max(sides, key=lambda k: sum(s[k].size for s in matched))
    for gates, chosen in batches([s[widest] for s in matched], len(theta), tokens // len(sides)):
        with halve_batch_on_oom(lm, tokens), torch.enable_grad():
            part = theta[gates].requires_grad_()
            gate = part.sigmoid().to(lm.device)
            log_p = [log_probs(lm, [matched[i][k] for i in chosen], gate, packed=True)[0] for k in sides]
            value = objective(log_p).sum(1) / examples
            (change,) = torch.autograd.grad(value.sum(), part)
        loss[gates] += value.detach().cpu()
        total[gates] += change
    return loss, total


def fit(
    lm: LM,
    theta: Tensor,
    pressure: Tensor,
    data: Iterator[list[MatchedBundles]],
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
    with_heads = lm.anatomy.has_heads[None, :, None]
    heads = int(with_heads.sum()) * lm.n_heads
    budget = tokens_at_once(lm, tokens)
    optimiser = torch.optim.Adam([theta.requires_grad_()], lr=schedule.lr)
    with for_gradients(lm), closing(ahead(data)) as upcoming:
        for update in progress(range(schedule.updates), label):
            optimiser.param_groups[0]["lr"] = schedule.lr + (schedule.lr_end - schedule.lr) * update / schedule.updates
            loss, grad = slope(lm, theta, next(upcoming), objective, budget)
            grad = grad - pressure[:, None, None] / heads * ((theta.detach().abs() <= CLIP) & with_heads)
            if not (loss.isfinite().all() and grad.isfinite().all()):
                bad = int((~(loss.isfinite() & grad.flatten(1).isfinite().all(1))).nonzero()[0])
                what = "the gradient is not finite" if loss[bad].isfinite() else f"loss is {loss[bad].item()}"
                raise CannotDo(
                    f"{label}: {what} at update {update + 1} of {schedule.updates}, gate {bad};"
                    " what was finished before is kept (a model in float16 overflows easily)"
                )
            size = grad.flatten(1).norm(dim=1)[:, None, None]
            theta.grad = grad * (norm / size.clamp(min=norm))
            optimiser.step()
    return theta.detach()


def fit_task(lm: LM, of: TaskFit, *, done: Done | None = None, progress: Progress = silent) -> Tensor:
    """The three fits of one task: θ [fit, seed, layer, head]. Finished stages are put into `done` and taken from it."""
    done = {} if done is None else done
    task, seeds, settings, (free_name, pressed_name) = of.task, of.seeds, of.settings, of.stages
    run = partial(fit, lm, norm=settings.norm, tokens=of.batch_tokens, progress=progress)
    if free_name not in done:
        data = batches_of(lm, [task], settings.batch, seed=0)
        first, pressure = start(lm, seeds, settings.low), torch.zeros(len(seeds))
        done[free_name] = (run(first, pressure, data, settings.free, label=f"{task.name}: free").numpy(),)
    free = torch.from_numpy(done[free_name][0])
    if pressed_name not in done:
        data = batches_of(lm, [task], settings.batch, seed=1)
        first = free.clamp(-CLIP, CLIP).repeat(2, 1, 1)  # beyond, no pressure would reach an idle head
        pressure = torch.tensor([settings.strength, -settings.strength]).repeat_interleave(len(seeds))
        label = f"{task.name}: retain and remove"
        done[pressed_name] = (run(first, pressure, data, settings.pressed, label=label).numpy(),)
    pressed = torch.from_numpy(done[pressed_name][0])
    return torch.cat([free, pressed]).unflatten(0, (3, len(seeds)))


def fit_cost(lm: LM, of: TaskFit) -> Cost:
    settings, tokens, cost = of.settings, of.batch_tokens, Cost()
    for matched in islice(batches_of(lm, [of.task], settings.batch, seed=0), SAMPLED):
        bundles = [bundle for (bundle,) in matched]
        free, pressed = (learning(lm, bundles, times * len(of.seeds), tokens=tokens) for times in (1, 2))
        cost += settings.free.updates * free + settings.pressed.updates * pressed
    return cost * (1 / SAMPLED)


def roles(gate: xr.DataArray) -> xr.Dataset:
    """facilitation, interference and irrelevance of gate(fit, …)."""
    retain, remove = (gate.sel(fit=fit, drop=True) for fit in ("retain", "remove"))
    return xr.Dataset(dict(zip(ROLES, (remove, 1 - retain, retain * (1 - remove)), strict=True)))


def over_seeds(scores: xr.Dataset) -> xr.Dataset:
    """What `roles` says, over seeds: `summary(role, over, …)` with over ∈ always, any, mean, spread; and, for the first
    three, the share of heads that have the role."""
    score = scores.to_dataarray("role")
    parts = {
        "always": score.min("seed"),
        "any": score.max("seed"),
        "mean": score.mean("seed"),
        "spread": score.std("seed"),
    }
    summary = xr.concat(list(parts.values()), "over").assign_coords(over=list(parts)).transpose("role", "over", ...)
    heads = summary.notnull().sum(("layer", "head"))
    share = ((summary >= HAS_ROLE).sum(("layer", "head")) / heads).sel(over=["always", "any", "mean"])
    return xr.Dataset({"summary": summary, "share": share.rename(over="share_over")})
