"""What `dissociate` does piece by piece: the baseline, each function's gates, the removal of its heads, the result."""

from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
import xarray as xr

from headatlas.evidence.control import DRAWS_PER_ROUND, expected_draws
from headatlas.evidence.selective import Trial, removal_results, remove_heads_of
from headatlas.methods._effects import ASK, held_out_questions
from headatlas.methods.dissociate.fits import Settings, drawn, fit
from headatlas.methods.method import Part, Work
from headatlas.models.cost import SAMPLED, Cost, learning, reading
from headatlas.models.lm import LM
from headatlas.models.tokens import TokenExample
from headatlas.progress import Done, Progress, doing
from headatlas.tasks.built_in import FUNCTIONS
from headatlas.tasks.labelled import Labelled, log_p_per_token, named_task
from headatlas.tasks.questions import load_questions, with_answer

BASELINE = "baseline"
SHUT = 0.5  # a head whose gate was below this in some seed may be chosen


@dataclass(frozen=True)
class Target:
    """A function whose heads are looked for, beside the others of the data."""

    data: Labelled
    function: int
    settings: Settings
    batch_tokens: int | None

    @property
    def name(self) -> str:
        return self.data.names[self.function]

    @property
    def gates_part(self) -> str:
        """The part that fits its gates."""
        return f"gates of {self.name}"

    @property
    def removal_part(self) -> str:
        """The part that removes its heads."""
        return f"removing heads of {self.name}"


def targets_of(data: Labelled, settings: Settings, batch_tokens: int | None) -> list[Target]:
    """One for each function."""
    return [Target(data, f, settings, batch_tokens) for f in range(len(data.names))]


def dissociation_work(
    data: Labelled, settings: Settings, *, preset: str = "", proof: bool = True, batch_tokens: int | None = None
) -> Work:
    targets, seeds = targets_of(data, settings, batch_tokens), list(settings.seeds)
    parts = [baseline_part(data, batch_tokens)]
    parts += [Part(name=t.gates_part, do=fit_gates, arguments=(t,), inputs=(BASELINE,), cost=fit_cost) for t in targets]
    if proof:
        parts += [
            Part(name=t.removal_part, do=remove, arguments=(t,), inputs=(BASELINE, t.gates_part), cost=removal_cost)
            for t in targets
        ]
    return Work(
        summary=f"{len(data.names)} functions, {len(seeds)} seed{'s' * (len(seeds) != 1)},"
        f" {settings.updates} updates each",
        combine=combine,
        arguments=(targets, proof),
        parts=parts,
        data=data.hash(),
        settings={"preset": preset, **settings.flat(), "seeds": seeds},
        result_settings={"proof": int(proof)},
        used=data.used,
    )


# --- baseline


def baseline_part(data: Labelled, batch_tokens: int | None) -> Part:
    return Part(name=BASELINE, do=measure_baseline, arguments=(data, batch_tokens), cost=baseline_cost)


def measure_baseline(lm: LM, data: Labelled, batch_tokens: int | None, *, done: Done, progress: Progress) -> None:
    done[BASELINE] = (log_p_per_token(lm, data, batch_tokens=batch_tokens)[0].numpy(),)


def baseline_cost(lm: LM, data: Labelled, batch_tokens: int | None) -> Cost:
    return reading(lm, data.bundles(range(len(data.examples)))[0], tokens=batch_tokens)


def baseline_of(done: Done) -> torch.Tensor:
    return torch.from_numpy(done[BASELINE][0])


# --- gates


def fit_gates(lm: LM, target: Target, *, done: Done, progress: Progress) -> None:
    done[target.gates_part] = (gates_of(lm, target, done, progress),)


def gates_of(lm: LM, target: Target, done: Done, progress: Progress) -> np.ndarray:
    """Gates that lose the function and keep the others: [seed, layer, head]."""
    data, function, settings, batch_tokens = target.data, target.function, target.settings, target.batch_tokens
    baseline = baseline_of(done)
    return fit(lm, data, baseline, function, settings, batch_tokens=batch_tokens, progress=progress).numpy()


def fit_cost(lm: LM, target: Target) -> Cost:
    data, settings, cost = target.data, target.settings, Cost()
    of_seeds = (drawn(data, target.function, settings, seed) for seed in settings.seeds)
    for together in islice(zip(*of_seeds, strict=True), SAMPLED):  # the examples of each seed
        bundles = [bundle for examples in together for bundle in data.bundles(examples)[0]]
        cost += learning(lm, bundles, tokens=target.batch_tokens)
    return cost * (settings.updates / SAMPLED)


def score_of(lm: LM, target: Target, done: Done) -> np.ndarray:
    """How far each head was shut: [seed, layer, head]."""
    score = np.clip(1 - done[target.gates_part][0], 0, 1)  # a mean of open gates may be above 1 by rounding
    score[:, lm.layers_without_heads] = np.nan
    return score


def candidates(score: np.ndarray) -> np.ndarray:
    """The mean over seeds [layer, head] of heads that some seed shut, NaN of the others. score: [seed, layer, head]."""
    return np.where(score.max(0) > SHUT, score.mean(0), np.nan)


# --- removal


def remove(lm: LM, target: Target, *, done: Done, progress: Progress) -> None:
    with doing(progress, target.removal_part):
        done[target.removal_part] = remove_top(lm, target, candidates(score_of(lm, target, done)), done)


def remove_top(lm: LM, target: Target, score: np.ndarray, done: Done, always: bool = False) -> tuple[np.ndarray, ...]:
    """`remove_heads_of` for the highest of a map [layer, head]."""
    trial = Trial(lm, target.data, baseline_of(done), target.batch_tokens)
    settings = target.settings
    return remove_heads_of(trial, target.function, score, settings.steps, draws=settings.draws, always=always)


def removal_cost(lm: LM, target: Target) -> Cost:
    data, settings = target.data, target.settings
    tried = [bundle for split in ("validation", "test") for bundle in data.bundles(data.of(split))[0]]
    tested = data.bundles(data.of("test", target.function))[0]
    tokens, rounds = target.batch_tokens, expected_draws(settings.draws) / DRAWS_PER_ROUND
    random = reading(lm, tested, DRAWS_PER_ROUND, tokens=tokens)
    return reading(lm, tried, len(settings.steps), tokens=tokens) + rounds * random


# --- result


def combine(lm: LM, targets: list[Target], proof: bool, *, done: Done, progress: Progress) -> xr.Dataset:
    data, settings = targets[0].data, targets[0].settings
    result = _map(lm, targets, done).assign(baseline=("function", mean_baseline(data, done)))
    if not proof:
        return result
    removed = [done[t.removal_part] for t in targets]
    return result.merge(removal_results(data.names, (lm.n_layers, lm.n_heads), settings.steps, removed))


def mean_baseline(data: Labelled, done: Done) -> list[float]:
    """Of each function, on test questions."""
    baseline = baseline_of(done)
    return [float(baseline[data.of("test", f)].mean()) for f in range(len(data.names))]


def _map(lm: LM, targets: list[Target], done: Done) -> xr.Dataset:
    """`score` [function, seed, layer, head], over seeds `always`, the least, `any`, the most, and `importance`, which
    sums to 1."""
    score = np.stack([score_of(lm, target, done) for target in targets])
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
            "function": [target.name for target in targets],
            "seed": list(targets[0].settings.seeds),
            "layer": range(lm.n_layers),
            "head": range(lm.n_heads),
        },
    )


# --- where no truth is known


def ask_test(lm: LM, subject: str) -> list[TokenExample]:
    """Examples of a built-in task, relation or function to which no gate was fitted and on which nothing was chosen."""
    if subject in FUNCTIONS:
        questions = [q for q in load_questions() if q.function == subject and q.split == "test"]
        return [with_answer(lm, q, q.answer) for q in questions[:ASK]]
    return held_out_questions(lm, named_task(lm, "", subject), ASK)
