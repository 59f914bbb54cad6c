"""What `ha.maps`, `ha.gate`, `ha.ablate` and the others are: load what is asked for, compute, check, stamp, save."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from itertools import chain
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import xarray as xr

from headatlas.errors import BadArgument, did_you_mean
from headatlas.headmap.files import check_folder
from headatlas.headmap.provenance import describe_run, flat
from headatlas.headmap.store import Finished, save
from headatlas.methods import ablate as ablation
from headatlas.methods import gradients
from headatlas.methods import pattern as patterns
from headatlas.methods.gate import PRESETS, ROLES, Settings, fit_contrast, gate_tasks, ungated
from headatlas.methods.maps import BASELINES, score_relations
from headatlas.methods.maps_dynamic import check_dynamic
from headatlas.models.default import DEFAULT_MODEL
from headatlas.models.lm import LM
from headatlas.models.loading import check_device, load, open_weights
from headatlas.models.targets import Asked, measure
from headatlas.progress import Progress, silent
from headatlas.tasks.prompts import Task, check_shots, hash_tasks, held_out_sheets, load_tasks
from headatlas.tasks.relations import Relation, hash_relations, load_relations
from headatlas.validation.relations import check_causal
from headatlas.validation.switching import switch_off_curves

Tasks = str | Path | Task | Iterable[Any]


def maps(
    model: LM | str | Path = DEFAULT_MODEL,
    relations: str | Path | Iterable[Relation | dict[str, Any]] | None = None,
    *,
    k: int | Literal["auto"] = "auto",
    threshold: float = 0.15,
    min_pairs: int = 30,
    first_mlp: bool = True,
    baselines: bool = True,
    dynamic: int = 0,
    causal: int = 0,
    device: str = "auto",
    seed: int = 0,
    out: str | Path | None = None,
    progress: Progress = silent,
) -> xr.Dataset:
    """Which relations every head implements, from its parameters alone (docs/maps.md).

    model: an LM, or anything `load` takes; then only the tensors needed are read from disk, layer by layer.
    relations: the 20 built-in ones, or a folder, a JSON or CSV file, or a list of your own.
    k: how many of the largest outputs count as a hit; 'auto' is the published rule.
    baselines: score shuffled and random weights beside it, to see what chance gives.
    dynamic, causal: check the scores in real runs, and by removing heads, on up to so many pairs a relation (0: not at all).
    out: a folder for maps.nc; interrupted work goes on there at the layer it had reached.
    """
    chosen = load_relations(relations)
    weights, tokenizer, name = open_weights(model)
    settings: dict[str, Any] = {"k": k, "min_pairs": min_pairs, "first_mlp": first_mlp, "seed": seed}
    stamp = {"model": name, "fingerprint": weights.fingerprint(), "data": hash_relations(chosen)}
    done = Finished(Path(out) / ".maps", stamp | settings) if out is not None else None
    found = score_relations(
        weights,
        tokenizer,
        chosen,
        **settings,
        threshold=threshold,
        baselines=tuple(BASELINES) if baselines else (),
        device=model.device if isinstance(model, LM) else check_device(device),
        done=done,
        progress=progress,
    )
    if dynamic or causal:
        lm = model if isinstance(model, LM) else load(model, device)
        if dynamic:
            found = found.merge(check_dynamic(lm, chosen, dynamic, **settings, progress=progress))
        if causal:
            found = found.merge(check_causal(lm, chosen, found, causal, seed=seed, progress=progress))
    found = found.set_xindex("category_name").assign_attrs(stamp | flat(describe_run()))
    if out is not None and done is not None:
        save(found, Path(out) / "maps.nc")
        done.clear()
    return found


def gate(
    model: LM | str | Path = DEFAULT_MODEL,
    tasks: Tasks | None = None,
    *,
    keep: Tasks | None = None,
    lose: Tasks | None = None,
    seeds: int | Sequence[int] | None = None,
    preset: str = "quick",
    shots: int | None = None,
    strength: float | None = None,
    updates: int | None = None,
    batch: int | None = None,
    tokens: int | None = None,
    halves: bool = False,
    device: str = "auto",
    out: str | Path | None = None,
    progress: Progress = silent,
) -> xr.Dataset:
    """Which heads a task needs, which it would be better without, which are idle (docs/gate.md).

    tasks: names of built-in ones (without any: math and syntax), JSON Lines or CSV files with prompt and target, 'hf:' addresses,
    or lists of your own.
    keep, lose: instead of tasks, two matched ones: find the heads that `lose` needs and `keep` can spare.
    seeds: how many, or which. preset: 'quick' for a laptop, 'full' is published. strength, updates, batch override it.
    shots: worked examples before each prompt (built-in tasks have their own number, your own have none).
    tokens: how many go through the model at once; lower it when memory runs out. halves: fit each half of the data too.
    out: a folder for gate.nc (contrast.nc for keep and lose); interrupted work goes on there at the last finished fit.
    """
    check_folder(out)
    settings = _settings(preset, strength, updates, batch)
    numbers = _seeds(settings.seeds if seeds is None else seeds)
    if (keep is None) != (lose is None):
        raise BadArgument(
            f"{'lose' if lose is None else 'keep'} is missing: contrastive gating needs both keep and lose"
        )
    if keep is not None and (tasks is not None or halves):
        raise BadArgument(
            f"{'tasks' if tasks is not None else 'halves'} does not go with keep and lose: give one or the other"
        )
    lm = model if isinstance(model, LM) else load(model, device)
    if keep is not None and lose is not None:
        return _contrast(lm, keep, lose, numbers, settings, shots, tokens, out, progress)
    chosen = load_tasks(lm, ("math", "syntax") if tasks is None else tasks, shots)
    split = [[replace(t.halves()[i], name=f"{t.name}, half {i}") for t in chosen] for i in (0, 1) if halves]
    for half in chain(*split):
        check_shots(half)
    stamp = _stamp(lm, chosen) | {"preset": preset, **_flat_settings(settings)}
    done = Finished(Path(out) / ".gate", stamp | {"seeds": numbers}) if out is not None else None
    names = [t.name for t in chosen]
    options: dict[str, Any] = {"tokens": tokens, "progress": progress}
    found = gate_tasks(lm, chosen, numbers, settings, done=done, **options)
    curves = []
    for task in chosen:
        one = found.sel(task=task.name)
        retained = torch.from_numpy(one.gate.sel(fit="retain").mean("seed").values)
        scores = one[list(ROLES)].mean("seed")
        held_out = held_out_sheets(lm, task, settings.switching)
        label = f"{task.name}: switching heads off"
        curves.append(switch_off_curves(lm, retained, scores, held_out, steps=settings.steps, label=label, **options))
    found = found.merge(xr.concat(curves, "task").assign_coords(task=names))
    if halves:
        parts = [
            gate_tasks(lm, half, numbers, settings, done=done, **options).assign_coords(task=names) for half in split
        ]
        both = xr.concat([p[list(ROLES)].mean("seed") for p in parts], "half").assign_coords(half=["first", "second"])
        found = found.merge(both.rename({role: f"{role}_half" for role in ROLES}))
    found = found.assign_attrs(stamp)
    if out is not None and done is not None:
        save(found, Path(out) / "gate.nc")
        done.clear()
    return found


def _contrast(
    lm: LM,
    keep: Tasks,
    lose: Tasks,
    seeds: list[int],
    settings: Settings,
    shots: int | None,
    tokens: int | None,
    out: str | Path | None,
    progress: Progress,
) -> xr.Dataset:
    pair: list[Task] = []
    for name, given in (("keep", keep), ("lose", lose)):
        loaded = load_tasks(lm, given, shots)
        if len(loaded) > 1:
            raise BadArgument(f"{name} has {len(loaded)} tasks, expected one")
        pair += loaded
    if pair[0].train == pair[1].train:
        raise BadArgument("keep and lose are the same examples: nothing tells them apart")
    theta = fit_contrast(lm, pair[0], pair[1], seeds, settings, tokens=tokens, progress=progress)
    gates = theta.sigmoid()
    nll, accuracy = np.empty((2, 2, 3, len(seeds)))
    for side, task in enumerate(pair):
        held_out = held_out_sheets(lm, task, settings.held_out)
        whole = ungated(lm, task, held_out, tokens)
        nll[side, 0], accuracy[side, 0] = whole["whole_nll"], whole["whole_accuracy"]
        for i, used in enumerate((gates, gates.round()), 1):
            log_p, right = measure(lm, held_out, used, tokens)
            nll[side, i], accuracy[side, i] = -log_p.mean(1), right.float().mean(1)
    gates[:, lm.layers_without_heads] = torch.nan
    found = xr.Dataset(
        {
            "gate": (("seed", "layer", "head"), gates.numpy()),
            "lost": (("seed", "layer", "head"), (1 - gates).numpy()),
            "nll": (("side", "gates", "seed"), nll),
            "accuracy": (("side", "gates", "seed"), accuracy),
        },
        coords={"side": ["keep", "lose"], "gates": ["whole", "fitted", "rounded"], "seed": seeds}
        | {"layer": range(lm.n_layers), "head": range(lm.n_heads)},
        attrs=_stamp(lm, pair) | _flat_settings(settings) | {"keep": pair[0].name, "lose": pair[1].name},
    )
    if out is not None:
        save(found, Path(out) / "contrast.nc")
    return found


def _settings(preset: Any, strength: Any, updates: Any, batch: Any) -> Settings:
    if preset not in PRESETS:
        raise BadArgument(f"preset is {preset!r}, expected one of {', '.join(PRESETS)}.{did_you_mean(preset, PRESETS)}")
    settings = PRESETS[preset]
    if strength is not None:
        if not isinstance(strength, float | int | np.number) or not 0 < strength < math.inf:
            raise BadArgument(
                f"strength is {strength!r}, expected a number above 0: it is the size of λ, which retain adds and remove takes away"
            )
        settings = replace(settings, strength=float(strength))
    for name, value in (("updates", updates), ("batch", batch)):
        if value is not None and (not isinstance(value, Integral) or value < 1):
            raise BadArgument(f"{name} is {value!r}, expected at least 1")
    if updates is not None:
        free, pressed = (replace(s, updates=int(updates)) for s in (settings.free, settings.pressed))
        settings = replace(settings, free=free, pressed=pressed)
    return settings if batch is None else replace(settings, batch=int(batch))


def _flat_settings(settings: Settings) -> dict[str, Any]:
    given = asdict(settings)
    stages = {f"{name}_{k}": v for name in ("free", "pressed") for k, v in given.pop(name).items()}
    del given["seeds"]
    return stages | {k: list(v) if isinstance(v, tuple) else v for k, v in given.items()}


def _seeds(seeds: int | Sequence[int]) -> list[int]:
    given: Any = range(int(seeds)) if isinstance(seeds, Integral) else seeds
    listed = [int(s) if isinstance(s, Integral) else -1 for s in given]
    if not listed or min(listed) < 0 or max(listed) >= 2**63 or len(set(listed)) < len(listed):
        raise BadArgument(f"seeds is {seeds!r}, expected a number above 0, or different numbers that are 0 or more")
    return listed


def _stamp(lm: LM, tasks: Sequence[Task]) -> dict[str, Any]:
    """What a file says about where it came from; no time of day, so that the same work gives the same file."""
    versions = {k: v for k, v in flat(describe_run()).items() if k != "time"}
    return {"model": lm.name, "fingerprint": lm.fingerprint(), "data": hash_tasks(tasks)} | versions


def ablate(
    model: LM | str | Path = DEFAULT_MODEL,
    tasks: Tasks = ("math", "syntax"),
    how: str = "zero",
    *,
    examples: int = 32,
    shots: int | None = None,
    tokens: int | None = None,
    device: str = "auto",
    out: str | Path | None = None,
    progress: Progress = silent,
) -> xr.Dataset:
    """What removing each head alone does: effect(task, layer, head) = mean log P(target), whole model minus without the head.

    how: a removed head's output is 'zero', its 'mean' over the data, or its value on another prompt ('resample').
    examples: how many held-out ones of each task. out: a folder for ablate.nc.
    """

    def effects(lm: LM, asked: list[Asked], label: str) -> np.ndarray:
        return ablation.ablate(lm, asked, how, tokens=tokens, label=label, progress=progress)[0].numpy()

    return _yardstick("ablate", model, tasks, effects, {"how": how}, examples, shots, tokens, device, out)


def taylor(
    model: LM | str | Path = DEFAULT_MODEL,
    tasks: Tasks = ("math", "syntax"),
    *,
    examples: int = 32,
    shots: int | None = None,
    tokens: int | None = None,
    device: str = "auto",
    out: str | Path | None = None,
    progress: Progress = silent,
) -> xr.Dataset:
    """`ablate` guessed from one gradient: effect = ∂ log P / ∂ gate at gate 1; importance = the mean of its absolute value."""

    def effects(lm: LM, asked: list[Asked], label: str) -> np.ndarray:
        return gradients.gate_gradients(lm, asked, tokens=tokens, label=label, progress=progress).numpy()

    return _yardstick("taylor", model, tasks, effects, {}, examples, shots, tokens, device, out)


def ig(
    model: LM | str | Path = DEFAULT_MODEL,
    tasks: Tasks = ("math", "syntax"),
    *,
    steps: int = gradients.STEPS,
    examples: int = 32,
    shots: int | None = None,
    tokens: int | None = None,
    device: str = "auto",
    out: str | Path | None = None,
    progress: Progress = silent,
) -> xr.Dataset:
    """`taylor` integrated while all gates go from 0 to 1 together: effects add up to what all heads contribute."""
    if steps < 1:
        raise BadArgument(f"steps is {steps}, expected at least 1")
    levels = gradients.midpoints(steps)

    def effects(lm: LM, asked: list[Asked], label: str) -> np.ndarray:
        return gradients.gate_gradients(lm, asked, levels, tokens=tokens, label=label, progress=progress).numpy()

    return _yardstick("ig", model, tasks, effects, {"steps": steps}, examples, shots, tokens, device, out)


def pattern(
    model: LM | str | Path = DEFAULT_MODEL,
    *,
    length: int | None = None,
    sequences: int = 8,
    seed: int = 0,
    device: str = "auto",
    out: str | Path | None = None,
) -> xr.Dataset:
    """Where heads look on random tokens said twice: score(pattern, layer, head) for induction, previous and duplicate."""
    check_folder(out)
    lm = model if isinstance(model, LM) else load(model, device)
    found = patterns.pattern(lm, length=length, sequences=sequences, seed=seed)
    found = found.assign_attrs(_stamp(lm, []))
    if out is not None:
        save(found, Path(out) / "pattern.nc")
    return found


def _yardstick(
    name: str,
    model: LM | str | Path,
    tasks: Tasks,
    effects: Callable[[LM, list[Asked], str], np.ndarray],
    settings: dict[str, Any],
    examples: int,
    shots: int | None,
    tokens: int | None,
    device: str,
    out: str | Path | None,
) -> xr.Dataset:
    """The same form for all: per-example effects [example, layer, head] of each task, averaged, over halves too."""
    check_folder(out)
    if examples < 2:
        raise BadArgument(f"examples is {examples}, expected at least 2")
    lm = model if isinstance(model, LM) else load(model, device)
    chosen = load_tasks(lm, tasks, shots)
    found = []
    for task in chosen:
        held_out = held_out_sheets(lm, task, examples)
        whole = ungated(lm, task, held_out, tokens)
        each = effects(lm, [a for sheet in held_out for a in sheet.asked], f"{task.name}: {name}")
        parts = {
            "effect": (("layer", "head"), each.mean(0)),
            "importance": (("layer", "head"), np.abs(each).mean(0)),
            "effect_half": (("half", "layer", "head"), np.stack([_mean(each[0::2]), _mean(each[1::2])])),
            "baseline": ((), -whole.pop("whole_nll")),
        }
        found.append(xr.Dataset(parts).assign(whole))
    names = {"task": [t.name for t in chosen], "half": ["first", "second"]}
    result = xr.concat(found, "task").assign_coords({**names, "layer": range(lm.n_layers), "head": range(lm.n_heads)})
    result = result.assign_attrs(_stamp(lm, chosen) | {"method": name} | settings)
    if out is not None:
        save(result, Path(out) / f"{name}.nc")
    return result


def _mean(each: np.ndarray) -> np.ndarray:
    return each.mean(0) if len(each) else np.full(each.shape[1:], np.nan)
