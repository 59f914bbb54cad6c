"""What `compare_maps` does piece by piece: a map for every method and function, and the removal of its heads.

Maps are made from training questions, per answer token, and of every function with the same number of examples, so they
are not what a method's own call gives: this is the one place that knows how other methods compute.
"""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import xarray as xr

from headatlas.errors import BadArgument, CannotDo
from headatlas.evidence.selective import Trial, removal_results, remove_heads_of
from headatlas.methods import get_method
from headatlas.methods._gradients import gate_gradients
from headatlas.methods._inline import do_work
from headatlas.methods.ablate.removal import ablate
from headatlas.methods.dissociate import parts as dissociation
from headatlas.methods.dissociate.fits import Settings, fit
from headatlas.methods.gate import settings as gating
from headatlas.methods.gate.fits import fit_cost, fit_task
from headatlas.methods.method import Part, Work
from headatlas.models.cost import Cost, learning, reading
from headatlas.models.lm import LM
from headatlas.models.targets import TokenExample, make_bundle
from headatlas.progress import Done, Progress, doing
from headatlas.tasks.labelled import Labelled
from headatlas.tasks.prompts import Example, Task

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sizes:
    """Examples of each function that a map is made from; of gate, its settings."""

    taylor: int
    ablate: int
    gate: gating.Settings


_GATE = gating.PRESETS["quick"]
_GATE_FULL = replace(_GATE, free=gating.Schedule(60, 0.3, 0.1), pressed=gating.Schedule(120, 0.3, 0.1), batch=8)
SIZES = {"quick": Sizes(16, 8, _GATE), "full": Sizes(96, 48, _GATE_FULL)}


def comparison_work(
    lm: LM,
    data: Labelled,
    own: Mapping[str, np.ndarray],
    names: Sequence[str],
    preset: str,
    settings: Settings,
    probed: Mapping[str, Any],
    batch_tokens: int | None,
) -> Work:
    """own: maps [function, layer, head] that are given; names: of those to be made; probed: options of probe."""
    sizes = SIZES[preset]
    needed = [*names, *(["ablate"] if "ablate-own" in names and "ablate" not in (*own, *names) else [])]
    needed.sort(key=lambda name: name == "ablate-own")  # which is made from the others
    each, ranked = range(len(data.names)), [*own, *names]
    made = [
        Part(f"{name}: maps", keep_maps, (name, data, scores), _map_names(name, data)) for name, scores in own.items()
    ]
    for name in needed:
        if name == "probe":
            work = get_method("probe").function(lm, proof="none", batch_tokens=batch_tokens, **probed)
            made.append(Part("probe: maps", probe_maps, (data, work), _map_names(name, data)))
        elif name == "ablate-own":
            made.append(Part(f"{name}: maps", own_maps, (data,), _map_names(name, data), _map_names("ablate", data)))
        else:
            needs = (dissociation.BASELINE,) * (name == "dissociate")
            arguments = [(name, data, f, settings, sizes, batch_tokens) for f in each]
            made += [Part(map_name(name, data, f), make_map, arguments[f], (), needs, map_cost) for f in each]
    tests = [
        Part(
            removal_name(name, data, f),
            remove,
            (name, data, f, settings, batch_tokens),
            needs=(dissociation.BASELINE, map_name(name, data, f)),
            cost=removal_cost,
        )
        for name in ranked
        for f in each
    ]
    hashes = [f"{name} {hashlib.sha256(scores.tobytes()).hexdigest()[:16]}" for name, scores in own.items()]
    said = {"taylor": str(sizes.taylor), "ablate": str(sizes.ablate), "gate": str(sizes.gate), "own_maps": hashes}
    return Work(
        f"{', '.join(ranked)}: {len(data.names)} functions",
        combine,
        (data, ranked, settings),
        [dissociation.baseline_part(data, batch_tokens), *made, *tests],
        data.hash(),
        {"preset": preset, **settings.flat(), **said},
        {"maps": ranked},
    )


def map_name(name: str, data: Labelled, function: int) -> str:
    return f"{name}: map of {data.names[function]}"


def removal_name(name: str, data: Labelled, function: int) -> str:
    return f"{name}: removing heads of {data.names[function]}"


def _map_names(name: str, data: Labelled) -> tuple[str, ...]:
    return tuple(map_name(name, data, f) for f in range(len(data.names)))


# --- maps


def keep_maps(lm: LM, name: str, data: Labelled, scores: np.ndarray, *, done: Done, progress: Progress) -> None:
    """Maps [function, layer, head], one by one."""
    for f, score in enumerate(scores):
        done[map_name(name, data, f)] = (score,)


def probe_maps(lm: LM, data: Labelled, work: Work, *, done: Done, progress: Progress) -> None:
    result = do_work(lm, work, progress)
    scores = result.importance.sel(function=list(data.names)).transpose("function", "layer", "head").values
    keep_maps(lm, "probe", data, scores, done=done, progress=progress)


def own_maps(lm: LM, data: Labelled, *, done: Done, progress: Progress) -> None:
    """Those of ablate, less their mean over functions."""
    scores = np.stack([done[name][0] for name in _map_names("ablate", data)])
    keep_maps(lm, "ablate-own", data, scores - scores.mean(0), done=done, progress=progress)


def make_map(
    lm: LM,
    name: str,
    data: Labelled,
    function: int,
    settings: Settings,
    sizes: Sizes,
    batch_tokens: int | None,
    *,
    done: Done,
    progress: Progress,
) -> None:
    """One method's map of one function [layer, head], from training questions."""
    label = map_name(name, data, function)
    if name == "taylor":
        examples = _examples(data, function, sizes.taylor)
        slopes = gate_gradients(lm, examples, tokens=batch_tokens, label=label, progress=progress)
        score = (slopes / _lengths(examples)).mean(0).numpy()
    elif name == "ablate":
        examples = _examples(data, function, sizes.ablate)
        effects, _ = ablate(lm, examples, tokens=batch_tokens, label=label, progress=progress)
        score = (effects / _lengths(examples)).mean(0).numpy()
    elif name == "gate":
        seeds = range(sizes.gate.seeds)
        theta = fit_task(lm, _task(data, function), seeds, sizes.gate, tokens=batch_tokens, progress=progress)
        score = theta[-1].sigmoid().mean(0).numpy()  # facilitation: what stays open although shutting it pays
    else:
        score = _lost(lm, data, dissociation.baseline_of(done), function, settings, batch_tokens, progress)
    score[lm.layers_without_heads] = np.nan
    done[label] = (score,)


def map_cost(
    lm: LM, name: str, data: Labelled, function: int, settings: Settings, sizes: Sizes, batch_tokens: int | None
) -> Cost:
    if name == "taylor":
        return learning(lm, [make_bundle([a]) for a in _examples(data, function, sizes.taylor)])
    if name == "ablate":  # what lies below a head is not run again
        return reading(
            lm, [make_bundle([a]) for a in _examples(data, function, sizes.ablate)], lm.n_heads * lm.n_layers / 2
        )
    if name == "gate":
        return fit_cost(lm, _task(data, function), range(sizes.gate.seeds), sizes.gate, batch_tokens)
    return dissociation.fit_cost(lm, data, function, range(settings.seeds), settings, batch_tokens)


def _lost(
    lm: LM,
    data: Labelled,
    baseline: torch.Tensor,
    function: int,
    settings: Settings,
    batch_tokens: int | None,
    progress: Progress,
) -> np.ndarray:
    """What `dissociate` gives; a function whose fit diverges has no map, but the others have theirs."""
    options: dict[str, Any] = {"batch_tokens": batch_tokens, "progress": progress}
    try:
        gates = fit(lm, data, baseline, function, range(settings.seeds), settings, **options)
    except CannotDo as e:
        log.warning("dissociate has no map of it: %s", e)
        gates = torch.ones(1, lm.n_layers, lm.n_heads)
    return dissociation.candidates(1 - gates.numpy())


def _lengths(examples: Sequence[TokenExample]) -> torch.Tensor:
    """Answer tokens [example, 1, 1]: what is tested is the change per token."""
    return torch.tensor([len(a.target) for a in examples])[:, None, None]


def _examples(data: Labelled, function: int, n: int) -> list[TokenExample]:
    """Training examples of a function, the same ones every time."""
    order = np.random.default_rng(function).permutation(data.of("train", function))
    return [data.examples[i] for i in order[:n]]


def _task(data: Labelled, function: int) -> Task:
    """A function's training examples as a task; what gate holds out is not used."""
    examples = tuple(Example(data.examples[i].prompt, data.examples[i].target) for i in data.of("train", function))
    return Task(data.names[function], examples, examples[:1])


def checked_map(name: str, score: Any, data: Labelled, lm: LM) -> np.ndarray:
    """A map that is given, as an array [function, layer, head]."""
    if not isinstance(score, xr.DataArray) or set(score.dims) != {"function", "layer", "head"}:
        dims = getattr(score, "dims", type(score).__name__)
        raise BadArgument(f"maps[{name!r}] has dimensions {dims}, expected an array over (function, layer, head)")
    if missing := [f for f in data.names if f not in score["function"].values]:
        raise BadArgument(f"maps[{name!r}] lacks the function {missing[0]!r}")
    values = score.sel(function=list(data.names)).transpose("function", "layer", "head").values.astype(np.float32)
    if values.shape[1:] != (lm.n_layers, lm.n_heads):
        heads = f"{values.shape[1]} × {values.shape[2]} heads"
        raise BadArgument(f"maps[{name!r}] is of {heads}, the model has {lm.n_layers} × {lm.n_heads}")
    return values


# --- removal, and the result


def remove(
    lm: LM,
    name: str,
    data: Labelled,
    function: int,
    settings: Settings,
    batch_tokens: int | None,
    *,
    done: Done,
    progress: Progress,
) -> None:
    trial = Trial(lm, data, dissociation.baseline_of(done), batch_tokens)
    (score,) = done[map_name(name, data, function)]
    label = removal_name(name, data, function)
    with doing(progress, label):
        done[label] = remove_heads_of(trial, function, score, settings.steps, draws=settings.draws, always=True)


def removal_cost(
    lm: LM, name: str, data: Labelled, function: int, settings: Settings, batch_tokens: int | None
) -> Cost:
    return dissociation.removal_cost(lm, data, function, settings, batch_tokens)


def combine(
    lm: LM, data: Labelled, ranked: Sequence[str], settings: Settings, *, done: Done, progress: Progress
) -> xr.Dataset:
    each, shape = range(len(data.names)), (lm.n_layers, lm.n_heads)
    tested = [
        removal_results(data.names, shape, settings.steps, [done[removal_name(name, data, f)] for f in each])
        for name in ranked
    ]
    scores = [[done[map_name(name, data, f)][0].astype(np.float32) for f in each] for name in ranked]
    result = xr.concat(tested, "ranking")
    coords = {"ranking": list(ranked), "layer": range(lm.n_layers), "head": range(lm.n_heads)}
    return result.assign_coords(coords).assign(
        ranking_score=(("ranking", "function", "layer", "head"), np.array(scores)),
        selectivity=result.other_effect.mean("other") - result.effect,
        baseline=("function", dissociation.mean_baseline(data, done)),
    )
