"""What `ablate`, `taylor` and `ig` share: per-example effects [example, layer, head] of each task, averaged, over halves too."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from headatlas.errors import check_count
from headatlas.methods.method import Part, Work
from headatlas.models.cost import Cost, reading
from headatlas.models.lm import LM
from headatlas.models.targets import Asked, Sheet, make_sheet
from headatlas.progress import Done, Progress
from headatlas.tasks.baseline import baseline
from headatlas.tasks.prompts import Task, hash_tasks, held_out_sheets, load_tasks

SPAN = 8  # layers that are one part of a job


def effects_work(
    name: str,
    lm: LM,
    tasks: Any,
    do: Callable[..., None],
    cost: Callable[..., Cost],
    settings: Mapping[str, Any],
    *,
    limit: int,
    shots: int | None,
    batch_tokens: int | None,
    span: int | None = None,
) -> Work:
    """Work whose parts are do(lm, label, task, layers, limit, batch_tokens, settings). span: so many layers are a part; without it,
    a task is."""
    check_count("limit", limit, 2)
    chosen = load_tasks(lm, tasks, shots)
    layers = layer_spans(lm, span or lm.n_layers)
    parts = []
    for task in chosen:
        for some in layers:
            label = f"{task.name}: {name}" + (f", layers {some[0]} to {some[-1]}" if span else "")
            arguments = (label, task, some, limit, batch_tokens, dict(settings))
            parts.append(Part(label, do, arguments, cost=cost))
    return Work(
        f"{', '.join(t.name for t in chosen)}: {limit} examples each"
        + "".join(f", {k} {v}" for k, v in settings.items()),
        combine,
        (chosen, layers, [p.name for p in parts], limit, batch_tokens),
        parts,
        hash_tasks(chosen),
        {"limit": limit, **settings},
        cost=combine_cost,
    )


def combine(
    lm: LM,
    tasks: Sequence[Task],
    layers: Sequence[Sequence[int]],
    names: Sequence[str],
    limit: int,
    batch_tokens: int | None,
    *,
    done: Done,
    progress: Progress,
) -> xr.Dataset:
    """names: of the parts, task by task and for each the spans of layers."""
    found = []
    parts = iter(names)
    for task in tasks:
        held_out = held_out_sheets(lm, task, limit)
        whole = baseline(lm, task, held_out, batch_tokens)
        each = np.full((sum(len(s.asked) for s in held_out), lm.n_layers, lm.n_heads), np.nan, np.float32)
        for some in layers:
            (each[:, some],) = done[next(parts)]
        values = {
            "effect": (("layer", "head"), each.mean(0)),
            "importance": (("layer", "head"), np.abs(each).mean(0)),
            "effect_half": (("half", "layer", "head"), np.stack([_mean(each[0::2]), _mean(each[1::2])])),
            "baseline": ((), -whole.pop("whole_nll")),
        }
        found.append(xr.Dataset(values).assign(whole))
    names_of = {"task": [t.name for t in tasks], "half": ["first", "second"]}
    return xr.concat(found, "task").assign_coords(names_of | {"layer": range(lm.n_layers), "head": range(lm.n_heads)})


def combine_cost(lm: LM, tasks: Sequence[Task], layers: Any, names: Any, limit: int, batch_tokens: Any) -> Cost:
    return sum((reading(lm, held_out_sheets(lm, task, limit)) for task in tasks), Cost())


def questions_of(lm: LM, task: Task, limit: int) -> list[Asked]:
    return [a for sheet in held_out_sheets(lm, task, limit) for a in sheet.asked]


def alone(lm: LM, task: Task, limit: int) -> list[Sheet]:
    """Examples that each have a gate of their own, and so share nothing."""
    return [make_sheet([a]) for a in questions_of(lm, task, limit)]


def layer_spans(lm: Any, size: int = SPAN) -> list[list[int]]:
    """The layers that have heads, a few at a time. lm: an LM or `Parameters`."""
    there = [i for i, site in enumerate(lm.weights.anatomy.sites) if site is not None]
    return [there[a : a + size] for a in range(0, len(there), size)]


def _mean(each: np.ndarray) -> np.ndarray:
    return each.mean(0) if len(each) else np.full(each.shape[1:], np.nan)


def effect_tables(result: xr.Dataset, top: int = 5) -> dict[str, list[dict[str, Any]]]:
    """A row per task: what the whole model does, and the heads that help and hurt it most."""
    from headatlas.methods._tables import number, top_heads

    rows = []
    for name in result.task.values.tolist():
        one = result.sel(task=name)
        helps, hurts = top_heads(one.effect, top), top_heads(-one.effect, top)
        rows.append(
            {
                "task": name,
                "accuracy": number(one.whole_accuracy.item()),
                "log P": number(one.baseline.item()),
                "most needed": " ".join(f"{h} {v:.2f}" for h, v in helps) or "-",
                "most in the way": " ".join(f"{h} {-v:.2f}" for h, v in hurts) or "-",
            }
        )
    return {f"log P(target) lost without a head ({result.attrs.get('kind') or result.attrs['method']})": rows}


def ask_training(lm: LM, subject: str, limit: int = 6) -> list[Asked]:
    """Training examples of a built-in task: these maps were measured on held-out ones."""
    from dataclasses import replace

    (task,) = load_tasks(lm, subject)
    return questions_of(lm, replace(task, train=task.held_out, held_out=task.train), limit)
