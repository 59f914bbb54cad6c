"""What `dissociate` does piece by piece: the baseline, each function's gates, the removal of its heads, and the
result."""

from collections.abc import Sequence
from itertools import islice

import numpy as np
import torch
import xarray as xr

from headatlas.evidence.selective import Trial, removal_results, remove_heads_of
from headatlas.methods.dissociate.fits import Settings, drawn, fit
from headatlas.methods.method import Part, Work
from headatlas.models.cost import Cost, learning, reading
from headatlas.models.lm import LM
from headatlas.progress import Done, Progress, doing
from headatlas.tasks.labelled import Labelled, log_p_per_token

BASELINE = "baseline"
SHUT = 0.5  # a head whose gate was below this in some seed may be chosen


def dissociation_work(
    data: Labelled,
    seeds: Sequence[int],
    settings: Settings,
    *,
    preset: str = "",
    proof: bool = True,
    batch_tokens: int | None = None,
) -> Work:
    parts = [baseline_part(data, batch_tokens)]
    for f in range(len(data.names)):
        fitted = (data, f, seeds, settings, batch_tokens)
        parts.append(Part(gates_name(data, f), fit_gates, fitted, needs=(BASELINE,), cost=fit_cost))
    for f in range(len(data.names)) if proof else ():
        needs = (BASELINE, gates_name(data, f))
        tested = (data, f, settings, batch_tokens)
        parts.append(Part(removal_name(data, f), remove, tested, needs=needs, cost=removal_cost))
    return Work(
        f"{len(data.names)} functions, {len(seeds)} seed{'s' * (len(seeds) != 1)}, {settings.updates} updates each",
        combine,
        (data, seeds, settings, proof),
        parts,
        data.hash(),
        {"preset": preset, **settings.flat(), "seeds": list(seeds)},
        {"proof": int(proof)},
    )


def gates_name(data: Labelled, function: int) -> str:
    return f"gates of {data.names[function]}"


def removal_name(data: Labelled, function: int) -> str:
    return f"removing heads of {data.names[function]}"


# --- baseline


def baseline_part(data: Labelled, batch_tokens: int | None) -> Part:
    return Part(BASELINE, measure_baseline, (data, batch_tokens), cost=baseline_cost)


def measure_baseline(lm: LM, data: Labelled, batch_tokens: int | None, *, done: Done, progress: Progress) -> None:
    done[BASELINE] = (log_p_per_token(lm, data, batch_tokens=batch_tokens)[0].numpy(),)


def baseline_cost(lm: LM, data: Labelled, batch_tokens: int | None) -> Cost:
    return reading(lm, data.bundles(range(len(data.examples)))[0])


def baseline_of(done: Done) -> torch.Tensor:
    return torch.from_numpy(done[BASELINE][0])


# --- gates


def fit_gates(
    lm: LM,
    data: Labelled,
    function: int,
    seeds: Sequence[int],
    settings: Settings,
    batch_tokens: int | None,
    *,
    done: Done,
    progress: Progress,
) -> None:
    gates = fit(lm, data, baseline_of(done), function, seeds, settings, batch_tokens=batch_tokens, progress=progress)
    done[gates_name(data, function)] = (gates.numpy(),)


def fit_cost(
    lm: LM, data: Labelled, function: int, seeds: Sequence[int], settings: Settings, batch_tokens: int | None
) -> Cost:
    updates = islice(drawn(data, function, settings, 0), 3)
    bundles = [bundle for examples in updates for bundle in data.bundles(examples)[0]]
    return learning(lm, bundles, len(seeds) / 3) * settings.updates


def score_of(lm: LM, data: Labelled, function: int, done: Done) -> np.ndarray:
    """How far each head was shut: [seed, layer, head]."""
    score = 1 - done[gates_name(data, function)][0]
    score[:, lm.layers_without_heads] = np.nan
    return score


def candidates(score: np.ndarray) -> np.ndarray:
    """The mean over seeds [layer, head] of heads that some seed shut, NaN of the others. score: [seed, layer, head]."""
    return np.where(score.max(0) > SHUT, score.mean(0), np.nan)


# --- removal


def remove(
    lm: LM,
    data: Labelled,
    function: int,
    settings: Settings,
    batch_tokens: int | None,
    *,
    done: Done,
    progress: Progress,
) -> None:
    trial = Trial(lm, data, baseline_of(done), batch_tokens)
    name = removal_name(data, function)
    with doing(progress, name):
        score = candidates(score_of(lm, data, function, done))
        done[name] = remove_heads_of(trial, function, score, settings.steps, draws=settings.draws)


def removal_cost(lm: LM, data: Labelled, function: int, settings: Settings, batch_tokens: int | None) -> Cost:
    tried = [bundle for split in ("validation", "test") for bundle in data.bundles(data.of(split))[0]]
    tested = data.bundles(data.of("test", function))[0]
    return reading(lm, tried, len(settings.steps)) + reading(lm, tested, settings.draws)


# --- result


def combine(
    lm: LM,
    data: Labelled,
    seeds: Sequence[int],
    settings: Settings,
    proof: bool,
    *,
    done: Done,
    progress: Progress,
) -> xr.Dataset:
    each = range(len(data.names))
    score = np.stack([score_of(lm, data, f, done) for f in each])
    result = _map(score, data.names, seeds).assign(baseline=("function", mean_baseline(data, done)))
    if not proof:
        return result
    removed = [done[removal_name(data, f)] for f in each]
    return result.merge(removal_results(data.names, (lm.n_layers, lm.n_heads), settings.steps, removed))


def mean_baseline(data: Labelled, done: Done) -> list[float]:
    """Of each function, on test questions."""
    baseline = baseline_of(done)
    return [float(baseline[data.of("test", f)].mean()) for f in range(len(data.names))]


def _map(score: np.ndarray, names: Sequence[str], seeds: Sequence[int]) -> xr.Dataset:
    """`score` [function, seed, layer, head], over seeds `always`, the least, `any`, the most, and `importance`, which
    sums to 1."""
    dims = ("layer", "head")
    mean = score.mean(1)
    total = np.nansum(mean, axis=(1, 2), keepdims=True)
    return xr.Dataset(
        {
            "score": (("function", "seed", *dims), score),
            "importance": (("function", *dims), mean / np.where(total > 0, total, 1)),
            "always": (("function", *dims), score.min(1)),
            "any": (("function", *dims), score.max(1)),
        },
        coords={
            "function": list(names),
            "seed": list(seeds),
            "layer": range(score.shape[2]),
            "head": range(score.shape[3]),
        },
    )
