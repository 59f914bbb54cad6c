"""What `compare_maps` does piece by piece: a map for every method and function, and the removal of its heads.

Maps are made from training questions, per answer token, and of every function with the same number of examples, so they
are not what a method's own call gives: this is the one place that knows how other methods compute.
"""

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr

from headatlas.errors import BadArgument, CannotDo
from headatlas.evidence.selective import Trial, removal_results, remove_heads_of
from headatlas.methods import get_method
from headatlas.methods._inline import do_work
from headatlas.methods.ablate.compute import ablate_heads
from headatlas.methods.dissociate import compute as dissociation
from headatlas.methods.gate.compute import fit_task, make_schedules
from headatlas.methods.method import Part, Work
from headatlas.models.gradients import gate_gradients
from headatlas.models.lm import LM
from headatlas.models.tokens import TokenExample
from headatlas.progress import Done, Progress, doing
from headatlas.tasks.labelled import Labelled
from headatlas.tasks.prompts import Example, Task

log = logging.getLogger(__name__)

FITTING = ("updates", "own", "others", "lr", "penalty", "sharp")


@dataclass(frozen=True)
class Target:
    """A function whose heads are looked for. options: those of `dissociate`."""

    data: Labelled
    function: int
    options: Mapping[str, Any]
    batch_tokens: int | None

    @property
    def name(self) -> str:
        return self.data.names[self.function]

    def fitting(self) -> dict[str, Any]:
        """The arguments of a fit of gates."""
        seeds = range(self.options["seeds"])
        return {"seeds": seeds, **{k: self.options[k] for k in FITTING}, "batch_tokens": self.batch_tokens}


def options_of(name: str, preset: str) -> dict[str, Any]:
    """The options of another method in a preset, by name."""
    method = get_method(name)
    defaults = {option.name: option.default for option in method.options.values()}
    return defaults | dict(method.presets[preset])


def making(effort: str) -> dict[str, dict[str, Any]]:
    """By method, what its map is made with. limit: examples of each function."""
    full = effort == "full"
    gate = options_of("gate", "quick")
    if full:  # less than gate's own full preset, which would take hours
        gate |= {"updates": (60, 120), "free_lr": (0.3, 0.1), "pressed_lr": (0.3, 0.1), "batch": 8}
    return {
        "taylor": {"limit": 96 if full else 16},
        "ablate": {"limit": 48 if full else 8},
        "gate": {
            "seeds": range(gate["seeds"]),
            **make_schedules(gate["updates"], gate["free_lr"], gate["pressed_lr"]),
            **{name: gate[name] for name in ("strength", "batch", "low")},
        },
        "dissociate": {},
    }


def comparison_work(
    data: Labelled,
    own: Mapping[str, np.ndarray],
    names: Sequence[str],
    effort: str,
    settings: Mapping[str, Any],
    probe: Work | None,
    batch_tokens: int | None,
) -> Work:
    """Plan maps and their test.

    Args:
        own: the user's maps [function, layer, head].
        names: of the maps to be made.
        effort: 'quick' or 'full'.
        settings: options of `dissociate`.
        probe: the work that makes the map of probe.
    """
    made_with = making(effort)
    targets = [Target(data, f, settings, batch_tokens) for f in range(len(data.names))]
    needed = [*names, *(["ablate"] if "ablate-own" in names and "ablate" not in (*own, *names) else [])]
    needed.sort(key=lambda name: name == "ablate-own")  # which is made from the others
    ranked = [*own, *names]
    made = _map_parts(data, own, needed, made_with, targets, probe)
    tests = [
        Part(
            name=removal_name(name, t),
            do=remove,
            arguments={"name": name, "target": t},
            inputs=(dissociation.BASELINE, map_name(name, t.name)),
        )
        for name in ranked
        for t in targets
    ]
    hashes = [f"{name} {hashlib.sha256(scores.tobytes()).hexdigest()[:16]}" for name, scores in own.items()]
    made_from = {name: str(made_with[name]) for name in ("taylor", "ablate", "gate")} | {"own_maps": hashes}
    return Work(
        summary=f"{', '.join(ranked)}: {len(data.names)} functions",
        combine=combine,
        arguments={"targets": targets, "ranked": ranked},
        parts=[dissociation.baseline_part(data, batch_tokens), *made, *tests],
        data=data.hash(),
        settings={"effort": effort, **_flat(settings), **made_from},
        result_settings={"maps": ranked},
        used=data.used,
    )


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What maps and tests depend on, as attributes."""
    testing = {"steps": list(settings["steps"]), "draws": settings["draws"]}
    return {k: settings[k] for k in FITTING} | testing | dissociation.FIXED_SETTINGS


def _map_parts(
    data: Labelled,
    own: Mapping[str, np.ndarray],
    needed: Sequence[str],
    made_with: Mapping[str, Mapping[str, Any]],
    targets: Sequence[Target],
    probe: Work | None,
) -> list[Part]:
    """The parts that make maps, or keep the user's."""
    made = [
        Part(
            name=f"{name}: maps",
            do=keep_maps,
            arguments={"name": name, "data": data, "scores": scores},
            outputs=_map_names(name, data),
        )
        for name, scores in own.items()
    ]
    for name in needed:
        if name == "probe":
            asked = {"data": data, "work": probe}
            made.append(Part(name="probe: maps", do=probe_maps, arguments=asked, outputs=_map_names(name, data)))
        elif name == "ablate-own":
            made.append(
                Part(
                    name=f"{name}: maps",
                    do=own_maps,
                    arguments={"data": data},
                    outputs=_map_names(name, data),
                    inputs=_map_names("ablate", data),
                )
            )
        else:
            needs = (dissociation.BASELINE,) * (name == "dissociate")
            for t in targets:
                given = {"target": t, **made_with[name]}
                made.append(Part(name=map_name(name, t.name), do=MAKERS[name], arguments=given, inputs=needs))
    return made


def map_name(name: str, function: str) -> str:
    return f"{name}: map of {function}"


def removal_name(name: str, target: Target) -> str:
    return f"{name}: {dissociation.removal_part(target.name)}"


def _map_names(name: str, data: Labelled) -> tuple[str, ...]:
    return tuple(map_name(name, function) for function in data.names)


# --- maps


def keep_maps(lm: LM, *, name: str, data: Labelled, scores: np.ndarray, done: Done, progress: Progress) -> None:
    """Maps [function, layer, head], one by one."""
    for label, score in zip(_map_names(name, data), scores, strict=True):
        done[label] = (score,)


def probe_maps(lm: LM, *, data: Labelled, work: Work, done: Done, progress: Progress) -> None:
    result = do_work(lm, work, progress)
    scores = result.importance.sel(function=list(data.names)).transpose("function", "layer", "head").values
    keep_maps(lm, name="probe", data=data, scores=scores, done=done, progress=progress)


def own_maps(lm: LM, *, data: Labelled, done: Done, progress: Progress) -> None:
    """Those of ablate, less their mean over functions."""
    scores = np.stack([done[name][0] for name in _map_names("ablate", data)])
    keep_maps(lm, name="ablate-own", data=data, scores=scores - scores.mean(0), done=done, progress=progress)


def taylor_map(lm: LM, *, target: Target, limit: int, done: Done, progress: Progress) -> None:
    label, examples = map_name("taylor", target.name), _examples(target, limit)
    slopes = gate_gradients(lm, examples, tokens=target.batch_tokens, label=label, progress=progress)
    _keep_map(lm, label, (slopes / _lengths(examples)).mean(0).numpy(), done)


def ablate_map(lm: LM, *, target: Target, limit: int, done: Done, progress: Progress) -> None:
    label, examples = map_name("ablate", target.name), _examples(target, limit)
    effects, _ = ablate_heads(lm, examples, tokens=target.batch_tokens, label=label, progress=progress)
    _keep_map(lm, label, (effects / _lengths(examples)).mean(0).numpy(), done)


def gate_map(lm: LM, *, target: Target, done: Done, progress: Progress, **fitting: Any) -> None:
    """Its facilitation: what stays open although shutting it pays."""
    theta = fit_task(lm, _gate_task(target), **fitting, batch_tokens=target.batch_tokens, progress=progress)
    _keep_map(lm, map_name("gate", target.name), theta[-1].sigmoid().mean(0).numpy(), done)


def dissociate_map(lm: LM, *, target: Target, done: Done, progress: Progress) -> None:
    """What `dissociate` gives; a function whose fit diverges has no map, but the others have theirs."""
    baseline, options = dissociation.stored_baseline(done), target.fitting()
    try:
        gates = dissociation.fit(lm, target.data, baseline, target.function, **options, progress=progress).numpy()
    except CannotDo as e:
        log.warning("dissociate has no map of it: %s", e)
        gates = np.ones((1, lm.n_layers, lm.n_heads), np.float32)
    _keep_map(lm, map_name("dissociate", target.name), dissociation.candidates(1 - gates), done)


MAKERS: dict[str, Callable[..., None]] = {
    "taylor": taylor_map,
    "ablate": ablate_map,
    "gate": gate_map,
    "dissociate": dissociate_map,
}
"""The parts that make one map of one function [layer, head], from training questions."""


def _keep_map(lm: LM, label: str, score: np.ndarray, done: Done) -> None:
    score[lm.layers_without_heads] = np.nan
    done[label] = (score,)


def _lengths(examples: Sequence[TokenExample]) -> torch.Tensor:
    """Answer tokens [example, 1, 1]: what is tested is the change per token."""
    return torch.tensor([len(a.target) for a in examples])[:, None, None]


def _examples(target: Target, n: int) -> list[TokenExample]:
    """Training examples of a function, the same ones every time."""
    order = np.random.default_rng(target.function).permutation(target.data.of("train", target.function))
    return [target.data.examples[i] for i in order[:n]]


def _gate_task(target: Target) -> Task:
    """A function's training examples as a task for gate; what that holds out is not used."""
    training = (target.data.examples[i] for i in target.data.of("train", target.function))
    examples = tuple(Example(a.prompt, a.target) for a in training)
    return Task(target.name, examples, examples[:1])


def checked_map(name: str, score: Any, data: Labelled, lm: LM) -> np.ndarray:
    """A user's map as an array [function, layer, head]."""
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


def remove(lm: LM, *, name: str, target: Target, done: Done, progress: Progress) -> None:
    label, (score,) = removal_name(name, target), done[map_name(name, target.name)]
    with doing(progress, label):
        trial = Trial(lm, target.data, dissociation.stored_baseline(done), target.batch_tokens)
        steps, draws = target.options["steps"], target.options["draws"]
        done[label] = remove_heads_of(trial, target.function, score, steps, draws=draws, always=True)


def combine(lm: LM, *, targets: Sequence[Target], ranked: Sequence[str], done: Done, progress: Progress) -> xr.Dataset:
    data, steps, shape = targets[0].data, targets[0].options["steps"], (lm.n_layers, lm.n_heads)
    tested = [
        removal_results(data.names, shape, steps, [done[removal_name(name, t)] for t in targets]) for name in ranked
    ]
    scores = [[done[label][0].astype(np.float32) for label in _map_names(name, data)] for name in ranked]
    result = xr.concat(tested, "ranking")
    coords = {"ranking": list(ranked), "layer": range(lm.n_layers), "head": range(lm.n_heads)}
    return result.assign_coords(coords).assign(
        ranking_score=(("ranking", "function", "layer", "head"), np.array(scores)),
        selectivity=result.other_effect.mean("other") - result.effect,
        baseline=("function", dissociation.mean_baseline(data, done)),
    )
