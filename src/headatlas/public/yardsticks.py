"""`ha.ablate`, `ha.taylor`, `ha.ig` and `ha.pattern`."""

from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from headatlas.errors import check_choice, check_count
from headatlas.headmap.files import check_folder
from headatlas.methods import ablate as ablation
from headatlas.methods import gradients
from headatlas.methods import pattern as patterns
from headatlas.methods.gate import ungated
from headatlas.models.cost import Cost, learning, reading
from headatlas.models.default import DEFAULT_MODEL
from headatlas.models.lm import LM
from headatlas.models.targets import Asked, Sheet, make_sheet
from headatlas.progress import Done, Progress, silent
from headatlas.public.common import SPAN, Job, Part, Tasks, loaded, method, spans, stamp_of, with_tasks
from headatlas.tasks.prompts import Task, hash_tasks, held_out_sheets

MOST_STEPS, MOST_SEQUENCES = 10_000, 10_000  # more is a mistake


@method
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
) -> Job:
    """What removing each head alone does: effect(task, layer, head) = mean log P(target), whole model minus without the head.

    how: a removed head's output is 'zero', its 'mean' over the data, or its value on another prompt ('resample').
    examples: how many held-out ones of each task. out: a folder for ablate.nc.
    """
    check_choice("how", how, ablation.HOW)

    def effects(lm: LM, asked: list[Asked], layers: list[int], label: str, progress: Progress) -> np.ndarray:
        options: dict[str, Any] = {"layers": layers, "tokens": tokens, "label": label, "progress": progress}
        return ablation.ablate(lm, asked, how, **options)[0][:, layers].numpy()

    def cost(lm: LM, sheets: list[Sheet], layers: list[int]) -> Cost:
        above = sum(lm.n_layers - layer for layer in layers) / lm.n_layers  # what lies below a head is not run again
        return reading(lm, _alone(sheets), 1 + lm.n_heads * above)

    return _yardstick(
        "ablate", model, tasks, effects, {"how": how}, examples, shots, tokens, device, out, progress, cost, SPAN
    )


@method
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
) -> Job:
    """`ablate` guessed from one gradient: effect = ∂ log P / ∂ gate at gate 1; importance = the mean of its absolute value."""

    def effects(lm: LM, asked: list[Asked], layers: list[int], label: str, progress: Progress) -> np.ndarray:
        found = gradients.gate_gradients(lm, asked, tokens=tokens, label=label, progress=progress)
        return found[:, layers].numpy()

    def cost(lm: LM, sheets: list[Sheet], layers: list[int]) -> Cost:
        return learning(lm, _alone(sheets))

    return _yardstick("taylor", model, tasks, effects, {}, examples, shots, tokens, device, out, progress, cost)


@method
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
) -> Job:
    """`taylor` integrated while all gates go from 0 to 1 together: effects add up to what all heads contribute."""
    check_count("steps", steps, 1, MOST_STEPS)
    levels = gradients.midpoints(steps)

    def effects(lm: LM, asked: list[Asked], layers: list[int], label: str, progress: Progress) -> np.ndarray:
        found = gradients.gate_gradients(lm, asked, levels, tokens=tokens, label=label, progress=progress)
        return found[:, layers].numpy()

    def cost(lm: LM, sheets: list[Sheet], layers: list[int]) -> Cost:
        return learning(lm, _alone(sheets), steps)

    return _yardstick(
        "ig", model, tasks, effects, {"steps": steps}, examples, shots, tokens, device, out, progress, cost
    )


@method
def pattern(
    model: LM | str | Path = DEFAULT_MODEL,
    *,
    length: int | None = None,
    sequences: int = 8,
    seed: int = 0,
    device: str = "auto",
    out: str | Path | None = None,
    progress: Progress = silent,
) -> Job:
    """Where heads look on random tokens said twice: score(pattern, layer, head) for induction, previous and duplicate."""
    check_folder(out)
    check_count("sequences", sequences, 1, MOST_SEQUENCES)
    check_count("seed", seed, 0, 2**63 - 1)
    lm = loaded(model, device, progress)

    def work(done: Done, progress: Progress) -> xr.Dataset:
        return patterns.pattern(lm, length=length, sequences=sequences, seed=seed)

    settings = {"length": length or 0, "sequences": sequences, "seed": seed}
    said = f"{sequences} sequences of random tokens, said twice"
    where = None if out is None else Path(out)
    cost = Cost(tokens=6.0 * sequences * (length or 50), passes=3)
    return Job(
        "pattern", said, stamp_of(lm, "", progress) | settings, work, out=where, progress=progress, cost=lambda: cost
    )


def _yardstick(
    name: str,
    model: LM | str | Path,
    tasks: Tasks,
    effects: Callable[[LM, list[Asked], list[int], str, Progress], np.ndarray],
    settings: dict[str, Any],
    examples: int,
    shots: int | None,
    tokens: int | None,
    device: str,
    out: str | Path | None,
    progress: Progress,
    cost: Callable[[LM, list[Sheet], list[int]], Cost],
    span: int | None = None,
) -> Job:
    """The same form for all: per-example effects [example, layer, head] of each task, averaged, over halves too.

    span: so many layers are a part; without it, a task is.
    """
    check_folder(out)
    check_count("examples", examples, 2)
    lm, chosen = with_tasks(model, tasks, shots, device, progress)
    layers = spans(lm, span or lm.n_layers)

    def part(task: Task, some: list[int]) -> Part:
        label = f"{task.name}: {name}" + (f", layers {some[0]} to {some[-1]}" if span else "")

        def do(done: Done, progress: Progress) -> None:
            asked = [a for sheet in held_out_sheets(lm, task, examples) for a in sheet.asked]
            done[label] = (effects(lm, asked, some, label, progress),)

        return Part(label, (label,), do, cost=lambda: cost(lm, held_out_sheets(lm, task, examples), some))

    parts = {task.name: [part(task, some) for some in layers] for task in chosen}

    def work(done: Done, progress: Progress) -> xr.Dataset:
        found = []
        for task in chosen:
            held_out = held_out_sheets(lm, task, examples)
            whole = ungated(lm, task, held_out, tokens)
            each = np.full((sum(len(s.asked) for s in held_out), lm.n_layers, lm.n_heads), np.nan, np.float32)
            for some, found_there in zip(layers, parts[task.name], strict=True):
                (each[:, some],) = done[found_there.name]
            values = {
                "effect": (("layer", "head"), each.mean(0)),
                "importance": (("layer", "head"), np.abs(each).mean(0)),
                "effect_half": (("half", "layer", "head"), np.stack([_mean(each[0::2]), _mean(each[1::2])])),
                "baseline": ((), -whole.pop("whole_nll")),
            }
            found.append(xr.Dataset(values).assign(whole))
        names = {"task": [t.name for t in chosen], "half": ["first", "second"]}
        return xr.concat(found, "task").assign_coords(names | {"layer": range(lm.n_layers), "head": range(lm.n_heads)})

    said = f"{', '.join(t.name for t in chosen)}: {examples} examples each"
    said += "".join(f", {k} {v}" for k, v in settings.items())
    stamp = stamp_of(lm, hash_tasks(chosen), progress) | {"examples": examples} | settings
    everything = list(chain(*parts.values()))

    def measured() -> Cost:
        return sum((reading(lm, held_out_sheets(lm, task, examples)) for task in chosen), Cost())

    return Job(name, said, stamp, work, {}, None if out is None else Path(out), progress, everything, measured)


def _alone(sheets: list[Sheet]) -> list[Sheet]:
    """Examples that each have a gate of their own, and so share nothing."""
    return [make_sheet([a]) for sheet in sheets for a in sheet.asked]


def _mean(each: np.ndarray) -> np.ndarray:
    return each.mean(0) if len(each) else np.full(each.shape[1:], np.nan)
