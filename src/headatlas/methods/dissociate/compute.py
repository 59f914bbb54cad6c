"""Fit gates that lose one function and keep the others: contrastive gating, one function against the rest.

Gates g[l, h] = sigmoid(θ[l, h] / T) multiply every head's output z at every position; weights are frozen. For each
function f they start open (θ = 3) and minimise, with Δ = −log P under the gates minus that of the whole model, per
answer token,

    w · mean Δ of the others − mean of min(Δ, cap) of f + λ / 40 · Σ (1 − g).

Four details prevent the fit from finding no heads, or the wrong ones:

1. λ is 0 at first, then grows. A function that the model does confidently is lost only when several heads are closed,
   and none of them may be pushed open before all are found. A head's result is the mean of its gate while λ is above 0,
   which shows how much pressure it withstood.
2. T falls from 1 to `sharp`, so that gates end open or closed, and removing the heads has the effect of the gates.
3. The others count only while their running mean loss is above 0. Otherwise gates gain more by improving the others
   (for example, by changing the model's answer style) than by losing f, and the heads they find are not those of f.
4. Each seed draws its examples, and prefers examples of the others from the same groups as those of f, so that the
   examples differ in the function alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headatlas.errors import BadArgument, CannotDo, brief, check_count, check_positive, is_number
from headatlas.methods._effects import MAX_TEST_QUESTIONS, held_out_questions
from headatlas.methods._seeds import MAX_EXAMPLES, MAX_UPDATES
from headatlas.methods.method import Part
from headatlas.models.gradients import frozen_float32_stream
from headatlas.models.lm import LM
from headatlas.models.log_probs import batches, log_probs
from headatlas.models.memory import halve_batch_on_oom, tokens_at_once
from headatlas.models.tokens import TokenExample
from headatlas.progress import FinishedParts, Progress, silent
from headatlas.tasks.built_in import FUNCTIONS
from headatlas.tasks.labelled import LabelledExamples, log_p_per_token, named_task
from headatlas.tasks.questions import load_questions, with_answer

BASELINE = "baseline"
INITIAL_THETA = 3.0  # a gate that is nearly open
HEADS_PER_PENALTY = 40  # closed heads that cost λ together
MAX_LOSS = 2.0  # the largest loss of the function that counts, in nats per token
WEIGHT = 3.0  # of the others' loss
GROWTH = (0.3, 0.7)  # λ grows between these shares of the updates
DECAY = 0.8  # weight of earlier updates in the running mean of the others' loss
FIXED_SETTINGS = {"weight": WEIGHT, "cap": MAX_LOSS, "grows": list(GROWTH)}


def gates_part(function: str) -> str:
    """Name the part that fits the gates of a function."""
    return f"gates of {function}"


def check_fitting(
    *, updates: int, own: int, others: int, lr: float, penalty: float, sharp: float
) -> dict[str, int | float]:
    """Check the options of `fit`, and return them by name."""
    counts = {
        "updates": check_count("updates", updates, 1, MAX_UPDATES),
        "own": check_count("own", own, 1, MAX_EXAMPLES),
        "others": check_count("others", others, 1, MAX_EXAMPLES),
    }
    if not is_number(penalty) or not penalty >= 0:
        raise BadArgument(f"penalty is {brief(penalty)}, expected a number that is 0 or more")
    if not is_number(sharp) or not 0 < sharp <= 1:
        raise BadArgument(f"sharp is {brief(sharp)}, expected a number above 0, up to 1")
    return counts | {"lr": check_positive("lr", lr), "penalty": float(penalty), "sharp": float(sharp)}


# --- parts


def fit_parts(
    data: LabelledExamples, seeds: Sequence[int], fitting: Mapping[str, Any], batch_tokens: int | None
) -> list[Part]:
    """Return the parts that measure the baseline and fit the gates of each function. fitting: options of `fit`."""
    parts = [baseline_part(data, batch_tokens)]
    for function, name in enumerate(data.names):
        arguments = {"data": data, "function": function, "seeds": seeds, **fitting, "batch_tokens": batch_tokens}
        parts.append(Part(name=gates_part(name), do=fit_gates, arguments=arguments, inputs=(BASELINE,)))
    return parts


def baseline_part(data: LabelledExamples, batch_tokens: int | None) -> Part:
    arguments = {"data": data, "batch_tokens": batch_tokens}
    return Part(name=BASELINE, do=measure_baseline, arguments=arguments)


def measure_baseline(
    lm: LM, data: LabelledExamples, batch_tokens: int | None, *, done: FinishedParts, progress: Progress
) -> None:
    """Store the whole model's mean log P per answer token [example]."""
    done[BASELINE] = (log_p_per_token(lm, data, batch_tokens=batch_tokens)[0].numpy(),)


def stored_baseline(done: FinishedParts) -> Tensor:
    return torch.from_numpy(done[BASELINE][0])


def fit_gates(
    lm: LM, data: LabelledExamples, function: int, *, done: FinishedParts, progress: Progress, **fitting: Any
) -> None:
    """Store the gates that lose the function and keep the others [seed, layer, head]."""
    gates = fit(lm, data, stored_baseline(done), function, progress=progress, **fitting)
    done[gates_part(data.names[function])] = (gates.numpy(),)


# --- the fit


def training_examples(
    data: LabelledExamples, function: int, seeds: Sequence[int], *, own: int, others: int
) -> Iterator[tuple[list[int], ...]]:
    """Yield the training examples of each seed, for one update after the other."""
    return zip(*(_examples_of_seed(data, function, seed, own, others) for seed in seeds), strict=True)


def _examples_of_seed(data: LabelledExamples, function: int, seed: int, own: int, others: int) -> Iterator[list[int]]:
    """Yield some examples of the function, in an order given by the seed, and some of each other function."""
    generator = np.random.default_rng([seed, function])
    pools = [np.array(data.indices_in("train", f)) for f in range(len(data.names))]
    queue: list[int] = []
    while True:
        while len(queue) < own:
            queue += generator.permutation(pools[function]).tolist()
        target_examples = queue[:own]
        queue = queue[own:]
        # where two permutations meet, an example may occur twice
        examples = list(dict.fromkeys(target_examples))
        for other in range(len(data.names)):
            if other != function:
                pool = generator.permutation(pools[other])
                same_group = np.isin(data.group[pool], data.group[target_examples])
                examples += pool[np.argsort(~same_group, kind="stable")][:others].tolist()
        yield examples


def fit(
    lm: LM,
    data: LabelledExamples,
    baseline: Tensor,
    function: int,
    *,
    seeds: Sequence[int],
    updates: int,
    own: int,
    others: int,
    lr: float,
    penalty: float,
    sharp: float,
    weight: float = WEIGHT,
    growth: tuple[float, float] = GROWTH,
    batch_tokens: int | None = None,
    progress: Progress = silent,
) -> Tensor:
    """Fit gates that lose one function and keep the others; return their mean while λ > 0 [seed, layer, head].

    Args:
        lm: the model.
        data: the examples of all functions.
        baseline: mean log P per answer token of the whole model [example].
        function: index of the function to lose.
        seeds: seeds of the draws of examples.
        updates: number of updates.
        own: examples of the function per update.
        others: examples of each other function per update.
        lr: learning rate.
        penalty: final λ.
        sharp: final T.
        weight: w, the weight of the others.
        growth: λ grows from 0 between these shares of the updates.
        batch_tokens: tokens run through the model at once.
        progress: reports the updates.
    """
    name = data.names[function]
    has_heads = lm.anatomy.has_heads[None, :, None]
    theta = torch.full((len(seeds), lm.n_layers, lm.n_heads), INITIAL_THETA).requires_grad_()
    optimiser = torch.optim.Adam([theta], lr=lr)
    examples = training_examples(data, function, seeds, own=own, others=others)
    recent_loss = torch.zeros(len(seeds))  # running mean of the others' loss
    under_pressure = range(int(growth[0] * updates), updates)
    mean_gates = torch.zeros_like(theta.detach())
    budget = tokens_at_once(lm, batch_tokens)
    with frozen_float32_stream(lm):
        for update in progress(range(updates), f"{name}: losing it, keeping the others"):
            elapsed = update / updates
            temperature = sharp**elapsed
            current_penalty = penalty * float(np.interp(elapsed, growth, (0, 1)))
            gradient, loss_of_others = objective_gradient(
                lm,
                data,
                baseline,
                function,
                next(examples),
                theta=theta.detach() / temperature,
                counts_others=recent_loss > 0,
                weight=weight,
                budget=budget,
            )
            closed = torch.sigmoid(-theta.detach() / temperature)
            # the derivatives of λ / 40 · Σ (1 − g) and of θ / T in θ, without autograd
            pressure = current_penalty / HEADS_PER_PENALTY * closed * (1 - closed) / temperature * has_heads
            gradient = gradient / temperature - pressure
            recent_loss = DECAY * recent_loss + (1 - DECAY) * loss_of_others if update else loss_of_others
            _check_fit(f"{name}, update {update + 1} of {updates}", gradient, loss_of_others, closed, has_heads)
            theta.grad = gradient
            optimiser.step()
            if update in under_pressure:
                mean_gates += torch.sigmoid(theta.detach() / temperature) / len(under_pressure)
    return mean_gates


def objective_gradient(
    lm: LM,
    data: LabelledExamples,
    baseline: Tensor,
    function: int,
    examples: Sequence[Sequence[int]],
    *,
    theta: Tensor,
    counts_others: Tensor,
    weight: float,
    budget: int,
    cap: float = MAX_LOSS,
) -> tuple[Tensor, Tensor]:
    """Return the gradient in θ [seed, layer, head] of the objective without λ, and the loss of the others [seed].

    Args:
        lm: the model.
        data: the examples of all functions.
        baseline: mean log P per answer token of the whole model [example].
        function: index of the function to lose.
        examples: indices of the examples of each seed.
        theta: θ / T [seed, layer, head].
        counts_others: whether the others count [seed].
        weight: w, the weight of the others.
        budget: tokens run through the model at once.
        cap: the largest loss of the function that counts.
    """
    pieces = [
        (seed, bundle, members)
        for seed, seed_examples in enumerate(examples)
        for bundle, members in zip(*data.bundles(seed_examples), strict=True)
    ]
    shares = _shares(data, function, examples)
    gradient = torch.zeros_like(theta)
    loss_of_others = torch.zeros(len(theta))
    for _, indices in batches([bundle for _, bundle, _ in pieces], 1, budget):
        batch = [pieces[i] for i in indices]
        entries = [(seed, example) for seed, _, members in batch for example in members]
        seed_index, example_index = (torch.tensor(values) for values in zip(*entries, strict=True))
        is_target = torch.from_numpy(data.function)[example_index] == function
        share = torch.tensor([shares[seed][example] for seed, example in entries])
        length = torch.tensor([len(data.examples[example].target) for _, example in entries])
        with halve_batch_on_oom(lm, budget), torch.enable_grad():
            point = theta.clone().requires_grad_()
            gates = point.sigmoid().to(lm.device)
            gate_of_bundle = [seed for seed, _, _ in batch]
            log_p, _ = log_probs(lm, [bundle for _, bundle, _ in batch], gates, packed=True, under=gate_of_bundle)
            loss = baseline[example_index] - log_p[0].float().cpu() / length
            loss_to_keep = weight * loss * counts_others[seed_index]
            objective = (share * torch.where(is_target, -loss.clamp(max=cap), loss_to_keep)).sum()
            (batch_gradient,) = torch.autograd.grad(objective, point)
        gradient += batch_gradient
        loss_of_others.index_add_(0, seed_index, torch.where(is_target, 0.0, share * loss.detach()))
    return gradient, loss_of_others


def _shares(data: LabelledExamples, function: int, examples: Sequence[Sequence[int]]) -> list[dict[int, float]]:
    """Return by seed the weight of each example: other functions count the same, and together like the function."""
    shares = []
    for seed_examples in examples:
        counts = np.bincount(data.function[list(seed_examples)], minlength=len(data.names))
        weights = 1 / np.maximum(counts, 1) / np.where(np.arange(len(counts)) == function, 1, len(counts) - 1)
        shares.append({i: float(weights[data.function[i]]) for i in seed_examples})
    return shares


def _check_fit(where: str, gradient: Tensor, loss: Tensor, closed: Tensor, has_heads: Tensor) -> None:
    if not (gradient.isfinite().all() and loss.isfinite().all()):
        raise CannotDo(f"{where}: the loss or its gradient is not finite (a model in float16 overflows easily)")
    if ((closed > 0.5) | ~has_heads).flatten(1).all(1).any():
        raise CannotDo(f"{where}: the fit diverged, all gates are closed: use fewer updates, or a higher penalty")


# --- the result


def combine(
    lm: LM, data: LabelledExamples, seeds: Sequence[int], *, done: FinishedParts, progress: Progress
) -> xr.Dataset:
    """Make the map from the fitted gates."""
    return _make_map(lm, data, seeds, done).assign(baseline=("function", mean_baseline(data, done)))


def closed_share(lm: LM, gates: np.ndarray) -> np.ndarray:
    """Return how far each head was closed [seed, layer, head], NaN in layers without heads."""
    # clipped, because rounding may lift a mean of open gates above 1
    score = np.clip(1 - gates, 0, 1)
    score[:, lm.layers_without_heads] = np.nan
    return score


def mean_baseline(data: LabelledExamples, done: FinishedParts) -> list[float]:
    """Return the mean log P per answer token of the whole model on each function's test questions."""
    baseline = stored_baseline(done)
    return [float(baseline[data.indices_in("test", f)].mean()) for f in range(len(data.names))]


def _make_map(lm: LM, data: LabelledExamples, seeds: Sequence[int], done: FinishedParts) -> xr.Dataset:
    score = np.stack([closed_share(lm, done[gates_part(name)][0]) for name in data.names])
    mean = score.mean(1)
    total = np.nansum(mean, axis=(1, 2), keepdims=True)
    dims = ("function", "layer", "head")
    return xr.Dataset(
        {
            "score": (("function", "seed", "layer", "head"), score),
            "importance": (dims, mean / np.where(total > 0, total, 1)),
            "always": (dims, score.min(1)),
            "any": (dims, score.max(1)),
        },
        coords={
            "function": list(data.names),
            "seed": list(seeds),
            "layer": range(lm.n_layers),
            "head": range(lm.n_heads),
        },
    )


def ask_test(lm: LM, subject: str) -> list[TokenExample]:
    """Return examples of a built-in task, relation or function that gates are not fitted to."""
    if subject in FUNCTIONS:
        questions = [q for q in load_questions() if q.function == subject and q.split == "test"]
        return [with_answer(lm, q, q.answer) for q in questions[:MAX_TEST_QUESTIONS]]
    return held_out_questions(lm, named_task(lm, "", subject), MAX_TEST_QUESTIONS)
