"""Make a map for every method and function, and remove its heads.

Maps are made from training questions, per answer token, and with the same number of examples of every function. So they
differ from those of a method's own call: only this module uses the code of other methods.
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
from headatlas.progress import FinishedParts, Progress, show_step
from headatlas.tasks.labelled import LabelledExamples
from headatlas.tasks.prompts import Example, Task

log = logging.getLogger(__name__)

FIT_OPTIONS = ("updates", "own", "others", "lr", "penalty", "sharp")  # of `dissociate`


@dataclass(frozen=True)
class Target:
    """A function whose heads the maps should find. options: those of `dissociate`."""

    data: LabelledExamples
    function: int
    options: Mapping[str, Any]
    batch_tokens: int | None

    @property
    def name(self) -> str:
        return self.data.names[self.function]

    def fitting(self) -> dict[str, Any]:
        """Return the arguments of a fit of gates."""
        seeds = range(self.options["seeds"])
        return {"seeds": seeds, **{k: self.options[k] for k in FIT_OPTIONS}, "batch_tokens": self.batch_tokens}


def options_of(name: str, preset: str) -> dict[str, Any]:
    """Return the options of another method in a preset, by name."""
    method = get_method(name)
    defaults = {option.name: option.default for option in method.options.values()}
    return defaults | dict(method.presets[preset])


def map_options(effort: str) -> dict[str, dict[str, Any]]:
    """Return the options of each map by method. limit: number of examples of each function."""
    full = effort == "full"
    gate = options_of("gate", "quick")
    if full:
        # less than gate's full preset, which would take hours
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
    data: LabelledExamples,
    user_maps: Mapping[str, np.ndarray],
    names: Sequence[str],
    effort: str,
    settings: Mapping[str, Any],
    probe_work: Work | None,
    batch_tokens: int | None,
) -> Work:
    """Plan maps and their test.

    Args:
        data: the examples of all functions.
        user_maps: the user's maps [function, layer, head], by name.
        names: methods to make maps with.
        effort: 'quick' or 'full'.
        settings: options of `dissociate`.
        probe_work: the work that makes the map of probe.
        batch_tokens: tokens run through the model at once.
    """
    options = map_options(effort)
    targets = [Target(data, f, settings, batch_tokens) for f in range(len(data.names))]
    ranked = [*user_maps, *names]
    required = list(names)
    if "ablate-own" in names and "ablate" not in ranked:
        required.append("ablate")
    # last, because it is made from the map of ablate
    required.sort(key=lambda name: name == "ablate-own")
    map_parts = _map_parts(data, user_maps, required, options, targets, probe_work)
    test_parts = [
        Part(
            name=removal_name(name, t),
            do=remove,
            arguments={"name": name, "target": t},
            inputs=(dissociation.BASELINE, map_name(name, t.name)),
        )
        for name in ranked
        for t in targets
    ]
    hashes = [f"{name} {hashlib.sha256(scores.tobytes()).hexdigest()[:16]}" for name, scores in user_maps.items()]
    map_settings = {name: str(options[name]) for name in ("taylor", "ablate", "gate")} | {"own_maps": hashes}
    return Work(
        summary=f"{', '.join(ranked)}: {len(data.names)} functions",
        combine=combine,
        arguments={"targets": targets, "ranked": ranked},
        parts=[dissociation.baseline_part(data, batch_tokens), *map_parts, *test_parts],
        data=data.hash(),
        settings={"effort": effort, **_flat_settings(settings), **map_settings},
        result_settings={"maps": ranked},
        used=data.used,
    )


def _flat_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the maps and their test as attributes of the result."""
    testing = {"steps": list(settings["steps"]), "draws": settings["draws"]}
    return {k: settings[k] for k in FIT_OPTIONS} | testing | dissociation.FIXED_SETTINGS


def _map_parts(
    data: LabelledExamples,
    user_maps: Mapping[str, np.ndarray],
    names: Sequence[str],
    options: Mapping[str, Mapping[str, Any]],
    targets: Sequence[Target],
    probe_work: Work | None,
) -> list[Part]:
    """Return the parts that store the user's maps, and those that make the named ones."""
    parts = [
        Part(
            name=f"{name}: maps",
            do=store_maps,
            arguments={"name": name, "data": data, "scores": scores},
            outputs=_map_names(name, data),
        )
        for name, scores in user_maps.items()
    ]
    for name in names:
        if name == "probe":
            parts.append(
                Part(
                    name=f"{name}: maps",
                    do=probe_maps,
                    arguments={"data": data, "work": probe_work},
                    outputs=_map_names(name, data),
                )
            )
        elif name == "ablate-own":
            parts.append(
                Part(
                    name=f"{name}: maps",
                    do=ablate_own_maps,
                    arguments={"data": data},
                    outputs=_map_names(name, data),
                    inputs=_map_names("ablate", data),
                )
            )
        else:
            inputs = (dissociation.BASELINE,) if name == "dissociate" else ()
            for target in targets:
                arguments = {"target": target, **options[name]}
                part_name = map_name(name, target.name)
                parts.append(Part(name=part_name, do=MAP_FUNCTIONS[name], arguments=arguments, inputs=inputs))
    return parts


def map_name(name: str, function: str) -> str:
    """Name one function's map, and the part that makes it."""
    return f"{name}: map of {function}"


def removal_name(name: str, target: Target) -> str:
    """Name the part that removes a map's heads of one function."""
    return f"{name}: {dissociation.removal_part(target.name)}"


def _map_names(name: str, data: LabelledExamples) -> tuple[str, ...]:
    return tuple(map_name(name, function) for function in data.names)


# --- maps


def store_maps(
    lm: LM, *, name: str, data: LabelledExamples, scores: np.ndarray, done: FinishedParts, progress: Progress
) -> None:
    """Store maps [function, layer, head] one by one."""
    for label, score in zip(_map_names(name, data), scores, strict=True):
        done[label] = (score,)


def probe_maps(lm: LM, *, data: LabelledExamples, work: Work, done: FinishedParts, progress: Progress) -> None:
    """Run probe, and store its maps."""
    result = do_work(lm, work, progress)
    scores = result.importance.sel(function=list(data.names)).transpose("function", "layer", "head").values
    store_maps(lm, name="probe", data=data, scores=scores, done=done, progress=progress)


def ablate_own_maps(lm: LM, *, data: LabelledExamples, done: FinishedParts, progress: Progress) -> None:
    """Store the maps of ablate minus their mean over functions."""
    scores = np.stack([done[name][0] for name in _map_names("ablate", data)])
    store_maps(lm, name="ablate-own", data=data, scores=scores - scores.mean(0), done=done, progress=progress)


def taylor_map(lm: LM, *, target: Target, limit: int, done: FinishedParts, progress: Progress) -> None:
    """Store the mean gradient per answer token."""
    label = map_name("taylor", target.name)
    examples = _examples(target, limit)
    gradients = gate_gradients(lm, examples, tokens=target.batch_tokens, label=label, progress=progress)
    _store_map(lm, label, (gradients / _lengths(examples)).mean(0).numpy(), done)


def ablate_map(lm: LM, *, target: Target, limit: int, done: FinishedParts, progress: Progress) -> None:
    """Store the mean fall of log P per answer token without each head."""
    label = map_name("ablate", target.name)
    examples = _examples(target, limit)
    effects, _ = ablate_heads(lm, examples, tokens=target.batch_tokens, label=label, progress=progress)
    _store_map(lm, label, (effects / _lengths(examples)).mean(0).numpy(), done)


def gate_map(lm: LM, *, target: Target, done: FinishedParts, progress: Progress, **fitting: Any) -> None:
    """Store the mean facilitation over seeds: the gates of the remove fit, which is the last."""
    theta = fit_task(lm, _gate_task(target), **fitting, batch_tokens=target.batch_tokens, progress=progress)
    _store_map(lm, map_name("gate", target.name), theta[-1].sigmoid().mean(0).numpy(), done)


def dissociate_map(lm: LM, *, target: Target, done: FinishedParts, progress: Progress) -> None:
    """Store the candidates of `dissociate`; a function whose fit diverges gets an empty map, with a warning."""
    baseline = dissociation.stored_baseline(done)
    options = target.fitting()
    try:
        gates = dissociation.fit(lm, target.data, baseline, target.function, **options, progress=progress).numpy()
    except CannotDo as e:
        log.warning("dissociate has no map of %s: %s", target.name, e)
        gates = np.ones((1, lm.n_layers, lm.n_heads), np.float32)
    _store_map(lm, map_name("dissociate", target.name), dissociation.candidates(1 - gates), done)


MAP_FUNCTIONS: dict[str, Callable[..., None]] = {
    "taylor": taylor_map,
    "ablate": ablate_map,
    "gate": gate_map,
    "dissociate": dissociate_map,
}
"""What makes one map of one function [layer, head], from training questions."""


def _store_map(lm: LM, label: str, score: np.ndarray, done: FinishedParts) -> None:
    score[lm.layers_without_heads] = np.nan
    done[label] = (score,)


def _lengths(examples: Sequence[TokenExample]) -> torch.Tensor:
    """Return the numbers of answer tokens [example, 1, 1]; maps are per token, as their test is."""
    return torch.tensor([len(example.target) for example in examples])[:, None, None]


def _examples(target: Target, n: int) -> list[TokenExample]:
    """Draw at most n training examples of a function, the same ones for every method."""
    order = np.random.default_rng(target.function).permutation(target.data.indices_in("train", target.function))
    return [target.data.examples[i] for i in order[:n]]


def _gate_task(target: Target) -> Task:
    """Return a function's training examples as a task for gate."""
    training = (target.data.examples[i] for i in target.data.indices_in("train", target.function))
    examples = tuple(Example(example.prompt, example.target) for example in training)
    # a task needs held-out examples; the fit does not use them
    return Task(target.name, examples, examples[:1])


def checked_map(name: str, score: Any, data: LabelledExamples, lm: LM) -> np.ndarray:
    """Check a user's map, and return it as an array [function, layer, head]."""
    if not isinstance(score, xr.DataArray) or set(score.dims) != {"function", "layer", "head"}:
        dims = getattr(score, "dims", type(score).__name__)
        raise BadArgument(f"maps[{name!r}] has dimensions {dims}, expected an array over (function, layer, head)")
    if missing := [f for f in data.names if f not in score["function"].values]:
        raise BadArgument(f"maps[{name!r}] lacks the function {missing[0]!r}")
    values = score.sel(function=list(data.names)).transpose("function", "layer", "head").values.astype(np.float32)
    if values.shape[1:] != (lm.n_layers, lm.n_heads):
        heads = f"{values.shape[1]} × {values.shape[2]} heads"
        raise BadArgument(f"maps[{name!r}] has {heads}, the model has {lm.n_layers} × {lm.n_heads}")
    return values


# --- removal, and the result


def remove(lm: LM, *, name: str, target: Target, done: FinishedParts, progress: Progress) -> None:
    """Remove a map's heads of one function, and store the outcome."""
    label = removal_name(name, target)
    (score,) = done[map_name(name, target.name)]
    with show_step(progress, label):
        trial = Trial(lm, target.data, dissociation.stored_baseline(done), target.batch_tokens)
        steps = target.options["steps"]
        draws = target.options["draws"]
        done[label] = remove_heads_of(trial, target.function, score, steps, draws=draws, always=True)


def combine(
    lm: LM, *, targets: Sequence[Target], ranked: Sequence[str], done: FinishedParts, progress: Progress
) -> xr.Dataset:
    """Join maps and the outcomes of their tests. ranked: names of the maps."""
    data = targets[0].data
    steps = targets[0].options["steps"]
    shape = (lm.n_layers, lm.n_heads)
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
