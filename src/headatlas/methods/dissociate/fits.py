"""Gates that lose one function and keep the others: contrastive gating, one function against the rest.

Gates g[l, h] = sigmoid(θ[l, h] / T) multiply every head's output z at every position; weights are frozen. For each
function f they start open (θ = 3) and minimise, with Δ = −log P under the gates minus that of the whole model, per
answer token,

    w · mean Δ of the others − mean of min(Δ, cap) of f + λ / 40 · Σ (1 − g).

Four things keep this from finding nothing, or what is not asked for:

1. λ is 0 at first, then grows: a function that the model is sure of is lost only when several heads are, and none of
   them may be pushed back before the others are found. A head's gate is its mean from there on: how much pressure it
   withstood.
2. T falls from 1 to `sharp`: in the end gates are open or shut, so that heads removed for good do what the gates did.
3. The others count only while they have been losing lately. Otherwise gates earn more by making the others better (a
   model that is bad at its answers' style has much to gain there) than by losing f, and no head of theirs is of f.
4. Each seed draws examples of its own, and the others' from the same groups as f's: what differs is then the function.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headatlas.errors import BadArgument, CannotDo, check_choice, check_count
from headatlas.methods._seeds import MOST_EXAMPLES, MOST_UPDATES, seed_numbers
from headatlas.models.gradients import for_gradients
from headatlas.models.lm import LM
from headatlas.models.log_probs import batches, log_probs
from headatlas.models.memory import halve_batch_on_oom, tokens_at_once
from headatlas.progress import Progress, silent
from headatlas.tasks.labelled import Labelled

START = 3.0  # θ of a gate that is as good as open
PER = 40  # heads over which λ is spread
LATELY = 0.8  # how slowly the running mean of what the others lose forgets


@dataclass(frozen=True)
class Settings:
    updates: int
    own: int  # examples of the function an update
    others: int  # … and of each of the others
    seeds: Sequence[int]
    each: int | None  # examples of each function that are used, of every split its share
    steps: tuple[int, ...]  # numbers of heads that are tried; random draws would often hit upon fewer than four
    draws: int  # of random heads, at most: one function of four must be able to reach p < 0.05 after correction
    lr: float = 0.2
    weight: float = 3.0  # w: the others may lose a third of what the function loses
    cap: float = 2.0  # nats a token that losing the function is worth
    penalty: float = 1.0  # λ, in the end
    grows: tuple[float, float] = (0.3, 0.7)  # shares of the updates between which λ grows from 0
    sharp: float = 0.2  # T, in the end

    def flat(self) -> dict[str, Any]:
        """As attributes of a file; seeds and examples are told by themselves."""
        values = {k: v for k, v in asdict(self).items() if k not in ("seeds", "each")}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


PRESETS = {
    "quick": Settings(
        updates=30, own=3, others=1, seeds=range(1), each=40, steps=(4, 8, 16, 32), draws=80, lr=0.4, sharp=0.4
    ),
    "full": Settings(updates=160, own=16, others=3, seeds=range(4), each=None, steps=(4, 8, 12, 16, 24, 32), draws=199),
}


def settings_of(
    preset: str, seeds: Any = None, updates: int | None = None, penalty: float | None = None, own: int | None = None
) -> Settings:
    """Those of a preset, but for what is not None."""
    check_choice("preset", preset, PRESETS)
    settings = PRESETS[preset]
    if updates is not None:
        settings = replace(settings, updates=check_count("updates", updates, 1, MOST_UPDATES))
    if own is not None:
        settings = replace(settings, own=check_count("own", own, 1, MOST_EXAMPLES))
    if penalty is not None:
        if not isinstance(penalty, float | int | np.number) or not 0 <= penalty < math.inf:
            raise BadArgument(f"penalty is {penalty!r}, expected a number that is 0 or more")
        settings = replace(settings, penalty=float(penalty))
    return settings if seeds is None else replace(settings, seeds=seed_numbers(seeds))


def drawn(data: Labelled, function: int, settings: Settings, seed: int) -> Iterator[list[int]]:
    """Training examples for update after update: some of the function, in an order of this seed, and some of each other
    one."""
    generator = np.random.default_rng([seed, function])
    pools = [np.array(data.of("train", f)) for f in range(len(data.names))]
    left: list[int] = []
    while True:
        while len(left) < settings.own:
            left += generator.permutation(pools[function]).tolist()
        own, left = left[: settings.own], left[settings.own :]
        chosen = list(dict.fromkeys(own))
        for f in (f for f in range(len(data.names)) if f != function):
            pool = generator.permutation(pools[f])
            beside = np.isin(data.group[pool], data.group[own])
            chosen += pool[np.argsort(~beside, kind="stable")][: settings.others].tolist()
        yield chosen


def fit(
    lm: LM,
    data: Labelled,
    baseline: Tensor,
    function: int,
    settings: Settings,
    *,
    batch_tokens: int | None = None,
    progress: Progress = silent,
) -> Tensor:
    """Gates [seed, layer, head] that lose one function and keep the others: their mean while λ grows and stays.

    baseline: mean log P per answer token of the whole model [example].
    """
    name, seeds = data.names[function], settings.seeds
    with_heads = lm.anatomy.has_heads[None, :, None]
    theta = torch.full((len(seeds), lm.n_layers, lm.n_heads), START).requires_grad_()
    optimiser = torch.optim.Adam([theta], lr=settings.lr)
    examples = [drawn(data, function, settings, seed) for seed in seeds]
    lately = torch.zeros(len(seeds))  # what the others lose
    under_pressure = range(int(settings.grows[0] * settings.updates), settings.updates)
    mean = torch.zeros_like(theta.detach())
    budget = tokens_at_once(lm, batch_tokens)
    with for_gradients(lm):
        for update in progress(range(settings.updates), f"{name}: losing it, keeping the others"):
            part = update / settings.updates
            heat = settings.sharp**part
            penalty = settings.penalty * float(np.interp(part, settings.grows, (0, 1)))
            now = [next(e) for e in examples]
            grad, lost = _slope(lm, data, baseline, function, now, theta.detach() / heat, lately > 0, settings, budget)
            shut = torch.sigmoid(-theta.detach() / heat)
            grad = grad / heat - penalty / PER * shut * (1 - shut) / heat * with_heads
            lately = LATELY * lately + (1 - LATELY) * lost if update else lost
            _check(f"{name}, update {update + 1} of {settings.updates}", grad, lost, shut, with_heads)
            theta.grad = grad
            optimiser.step()
            if update in under_pressure:
                mean += torch.sigmoid(theta.detach() / heat) / len(under_pressure)
    return mean


def _slope(
    lm: LM,
    data: Labelled,
    baseline: Tensor,
    function: int,
    now: Sequence[Sequence[int]],
    theta: Tensor,
    harmed: Tensor,
    settings: Settings,
    budget: int,
) -> tuple[Tensor, Tensor]:
    """The objective's gradient in θ [seed, layer, head], and what the others lose [seed]. harmed [seed]: whether they
    count."""
    pieces = [
        (seed, bundle, on)
        for seed, examples in enumerate(now)
        for bundle, on in zip(*data.bundles(examples), strict=True)
    ]
    share = _shares(data, function, now)
    grad, lost = torch.zeros_like(theta), torch.zeros(len(theta))
    for _, chosen in batches([bundle for _, bundle, _ in pieces], 1, budget):
        batch = [pieces[i] for i in chosen]
        places = [(seed, example) for seed, _, on in batch for example in on]
        seeds, examples = (torch.tensor(x) for x in zip(*places, strict=True))
        own = torch.from_numpy(data.function)[examples] == function
        part = torch.tensor([share[s][e] for s, e in places])
        length = torch.tensor([len(data.examples[e].target) for _, e in places])
        with halve_batch_on_oom(lm, budget), torch.enable_grad():
            at = theta.clone().requires_grad_()
            gates, under = at.sigmoid().to(lm.device), [seed for seed, _, _ in batch]
            log_p, _ = log_probs(lm, [bundle for _, bundle, _ in batch], gates, packed=True, under=under)
            worse = baseline[examples] - log_p[0].float().cpu() / length
            others = settings.weight * worse * harmed[seeds]
            value = (part * torch.where(own, -worse.clamp(max=settings.cap), others)).sum()
            (change,) = torch.autograd.grad(value, at)
        grad += change
        lost.index_add_(0, seeds, torch.where(own, 0.0, part * worse.detach()))
    return grad, lost


def _shares(data: Labelled, function: int, now: Sequence[Sequence[int]]) -> list[dict[int, float]]:
    """How much each example counts: every function as much as another, and the others together as much as the one."""
    shares = []
    for examples in now:
        counts = np.bincount(data.function[list(examples)], minlength=len(data.names))
        each = 1 / np.maximum(counts, 1) / np.where(np.arange(len(counts)) == function, 1, len(counts) - 1)
        shares.append({i: float(each[data.function[i]]) for i in examples})
    return shares


def _check(at: str, grad: Tensor, lost: Tensor, shut: Tensor, with_heads: Tensor) -> None:
    if not (grad.isfinite().all() and lost.isfinite().all()):
        raise CannotDo(f"{at}: the loss or its gradient is not finite (a model in float16 overflows easily)")
    if ((shut > 0.5) | ~with_heads).flatten(1).all(1).any():
        raise CannotDo(f"{at}: diverged, all heads are lost: ask for fewer updates, or a higher penalty")
