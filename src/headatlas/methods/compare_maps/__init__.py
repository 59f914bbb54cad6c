"""`ha.compare_maps`: which method's map of a function is of heads that the function needs and the others do not?

Every map is made from training questions, gets its number of heads by the same rule on validation questions, and is tested with
the same test questions, against random heads of the layers that its own heads are in.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from headatlas.errors import BadArgument, CannotDo, brief, check_choice, check_names
from headatlas.results.files import check_folder
from headatlas.methods.ablate.removal import ablate
from headatlas.methods.dissociate.fits import PRESETS, Settings, fit, reference
from headatlas.methods.gate.fits import PRESETS as GATES
from headatlas.methods.gate.fits import Schedule, fit_task
from headatlas.methods._gradients import gate_gradients
from headatlas.models.default import DEFAULT_MODEL
from headatlas.models.lm import LM
from headatlas.models.targets import Asked
from headatlas.progress import Done, Progress, doing, silent
from headatlas.runs.job import Job, loaded, method, stamp_of
from headatlas.methods.dissociate import candidates, check_limit, flat_settings
from headatlas.methods.probe import probe
from headatlas.tasks.labelled import Labelled, are_questions, check_data, load_labelled
from headatlas.tasks.prompts import Example, Task
from headatlas.evidence.selective import Trial, put_to_the_test

log = logging.getLogger(__name__)

SIZES: dict[str, dict[str, Any]] = {  # examples of each function for the yardsticks; gate's settings
    "quick": {"taylor": 16, "ablate": 8, "gate": GATES["quick"]},
    "full": {
        "taylor": 96,
        "ablate": 48,
        "gate": replace(GATES["quick"], free=Schedule(60, 0.3, 0.1), pressed=Schedule(120, 0.3, 0.1), batch=8),
    },
}
MAPS = ("probe", "taylor", "ablate", "ablate-own", "gate", "dissociate")


@method
def compare_maps(
    model: LM | str | Path = DEFAULT_MODEL,
    data: Any = None,
    *,
    maps: Mapping[str, xr.DataArray] | None = None,
    methods: Sequence[str] | None = None,
    test: str | Path | Sequence[Any] | None = None,
    functions: Sequence[str] | str | None = None,
    preset: str = "quick",
    context: str = "retrieval",
    limit: int | None = None,
    shots: int | None = None,
    template: bool = True,
    tokens: int | None = None,
    device: str = "auto",
    out: str | Path | None = None,
    progress: Progress = silent,
) -> Job:
    """Remove each map's heads of each function: what does the function lose, what the others? (docs/dissociate.md)

    data and its options: as in `dissociate`. methods: some of probe (of questions only), taylor, ablate, ablate-own (less the mean
    over functions), gate, dissociate. maps: your own beside them, by name, each over (function, layer, head), made without the
    test questions. preset: 'quick' for a laptop (it takes long), 'full' for a GPU.
    out: a folder for compare_maps.nc; interrupted work goes on there, map by map and function by function.
    """
    check_folder(out)
    check_limit(limit)
    check_choice("preset", preset, SIZES)
    if maps is not None and not isinstance(maps, Mapping):
        raise BadArgument(f"maps is {brief(maps)}, expected maps by name, each over (function, layer, head)")
    if methods is not None and (not maps or not isinstance(methods, Sized) or len(methods)):  # maps alone will do
        methods = check_names("methods", methods, MAPS)
    settings = PRESETS[preset]
    data = list(data) if isinstance(data, Iterator) else data
    check_data(data, shots)
    lm = loaded(model, device, progress)
    given: dict[str, Any] = {"functions": functions, "context": context, "shots": shots, "template": template}
    with doing(progress, "reading the questions"):
        asked = load_labelled(lm, data, test, limit=limit, each=settings.each, **given)
    of_questions = data is None or are_questions(data)
    wanted = [m for m in MAPS if m != "probe" or of_questions] if methods is None else list(dict.fromkeys(methods))
    if "probe" in wanted and not of_questions:
        raise BadArgument("methods has 'probe', which reads questions in the CogQA layout: data are tasks")
    own = {name: _checked(name, score, asked, lm) for name, score in (maps or {}).items()}
    if not own and not wanted:
        raise BadArgument(f"methods is empty: name some of {', '.join(MAPS)}, or give maps")
    names = list(asked.names)

    def read(progress: Progress) -> np.ndarray:
        options: dict[str, Any] = {"context": context, "limit": limit, "template": template, "tokens": tokens}
        found = probe(lm, data, test=test, functions=names, preset=preset, proof="none", progress=progress, **options)
        return found.importance.sel(function=names).transpose("function", "layer", "head").values

    def work(done: Done, progress: Progress) -> xr.Dataset:
        if "reference" not in done:
            done["reference"] = (reference(lm, asked, tokens).numpy(),)
        whole = torch.from_numpy(done["reference"][0])
        scores = dict(own)
        for name in (m for m in wanted if m not in scores):
            scores[name] = _score(name, lm, asked, whole, settings, SIZES[preset], read, done, tokens, progress)
        trial = Trial(lm, asked, whole, tokens)
        options: dict[str, Any] = {"draws": settings.draws, "always": True, "done": done, "progress": progress}
        tested = [
            put_to_the_test(trial, score, settings.steps, label=f"{name}: removing heads", **options)
            for name, score in scores.items()
        ]
        found = xr.concat(tested, "ranking").assign_coords(ranking=list(scores))
        found = found.assign_coords(layer=range(lm.n_layers), head=range(lm.n_heads))
        return found.assign(
            ranking_score=(
                ("ranking", "function", "layer", "head"),
                np.stack([s.astype(np.float32) for s in scores.values()]),
            ),
            selectivity=found.other_effect.mean("other") - found.own_effect,
        )

    sizes = {name: str(size) for name, size in SIZES[preset].items()}
    maps_given = [f"{name} {hashlib.sha256(s.tobytes()).hexdigest()[:16]}" for name, s in own.items()]
    return Job(
        "compare_maps",
        f"{', '.join([*own, *wanted])}: {len(names)} functions",
        stamp_of(lm, asked.hash(), progress)
        | {"preset": preset, **flat_settings(settings), **sizes, "given": maps_given},
        work,
        {"maps": [*own, *wanted]},
        None if out is None else Path(out),
        progress,
    )


def _score(
    name: str,
    lm: LM,
    data: Labelled,
    whole: torch.Tensor,
    settings: Settings,
    sizes: dict[str, Any],
    read: Callable[[Progress], np.ndarray],
    done: Done,
    tokens: int | None,
    progress: Progress,
) -> np.ndarray:
    """One method's map of every function [function, layer, head], from training questions."""
    if name == "probe":
        if name not in done:
            done[name] = (read(progress),)
        return done[name][0]
    if name == "ablate-own":
        single = _score("ablate", lm, data, whole, settings, sizes, read, done, tokens, progress)
        return single - single.mean(0)
    found = []
    for f, function in enumerate(data.names):
        if f"{name} {function}" not in done:
            options: dict[str, Any] = {"tokens": tokens, "label": f"{name}: {function}", "progress": progress}
            if name == "taylor":
                asked = _some(data, f, sizes[name])
                score = (gate_gradients(lm, asked, **options) / _lengths(asked)).mean(0)
            elif name == "ablate":
                asked = _some(data, f, sizes[name])
                score = (ablate(lm, asked, **options)[0] / _lengths(asked)).mean(0)
            elif name == "gate":
                gates = sizes["gate"]
                theta = fit_task(lm, _task(data, f), range(gates.seeds), gates, tokens=tokens, progress=progress)
                score = theta[-1].sigmoid().mean(0)  # facilitation: what stays open although shutting it pays
            else:
                score = _lost(lm, data, whole, f, settings, tokens, progress)
            done[f"{name} {function}"] = (score.numpy(),)
        found.append(done[f"{name} {function}"][0])
    stacked = np.stack(found)
    stacked[:, lm.layers_without_heads] = np.nan
    return stacked


def _lost(
    lm: LM, data: Labelled, whole: torch.Tensor, f: int, settings: Settings, tokens: int | None, progress: Progress
) -> torch.Tensor:
    """What `dissociate` gives; a function whose fit diverges has no map, but the others have theirs."""
    try:
        gate = fit(lm, data, whole, f, range(settings.seeds), settings, tokens=tokens, progress=progress)
    except CannotDo as e:
        log.warning("dissociate has no map of it: %s", e)
        gate = torch.ones(1, lm.n_layers, lm.n_heads)
    return torch.from_numpy(candidates(1 - gate[None].numpy())[0])


def _lengths(asked: Sequence[Asked]) -> torch.Tensor:
    """Answer tokens [example, 1, 1]: what is tested is the change per token."""
    return torch.tensor([len(a.target) for a in asked])[:, None, None]


def _some(data: Labelled, function: int, n: int) -> list[Asked]:
    """Training examples of a function, the same ones every time."""
    order = np.random.default_rng(function).permutation(data.of("train", function))
    return [data.asked[i] for i in order[:n]]


def _task(data: Labelled, function: int) -> Task:
    """A function's training examples as a task; what gate holds out is not used."""
    examples = tuple(Example(data.asked[i].prompt, data.asked[i].target) for i in data.of("train", function))
    return Task(data.names[function], examples, examples[:1])


def _checked(name: str, score: Any, data: Labelled, lm: LM) -> np.ndarray:
    if not isinstance(score, xr.DataArray) or set(score.dims) != {"function", "layer", "head"}:
        dims = getattr(score, "dims", type(score).__name__)
        raise BadArgument(f"maps[{name!r}] has dimensions {dims}, expected an array over (function, layer, head)")
    if missing := [f for f in data.names if f not in score["function"].values]:
        raise BadArgument(f"maps[{name!r}] lacks the function {missing[0]!r}")
    values = score.sel(function=list(data.names)).transpose("function", "layer", "head").values.astype(np.float32)
    if values.shape[1:] != (lm.n_layers, lm.n_heads):
        raise BadArgument(
            f"maps[{name!r}] is of {values.shape[1]} × {values.shape[2]} heads, the model has {lm.n_layers} × {lm.n_heads}"
        )
    return values
