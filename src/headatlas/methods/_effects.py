"""What `ablate`, `taylor` and `ig` share: effects [example, layer, head] of each task, averaged, over halves too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headatlas.errors import check_count
from headatlas.methods.method import Part, Work

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

    from headatlas.models.cost import Cost
    from headatlas.models.lm import LM
    from headatlas.models.targets import TokenExample
    from headatlas.progress import Done, Progress
    from headatlas.tasks.prompts import Task

    Effects = Callable[..., np.ndarray]
    Costs = Callable[[LM, Sequence[TokenExample], Sequence[int]], Cost]

SPAN = 8  # layers that are one part of a job
ASK = 6  # questions of a removal test where no truth is known
LABEL = "log P lost without the head"


def effects_work(
    name: str,
    lm: LM,
    tasks: Any,
    effects: Effects,
    cost: Costs,
    *,
    limit: int,
    shots: int | None,
    batch_tokens: int | None,
    span: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Work:
    """effects(lm, questions, layers, tokens=…, label=…, progress=…): [example, layer, head] of these layers.

    It and cost(lm, questions, layers) are module-level functions, or a `partial` of one, for they go to workers.
    span: so many layers are a part; without it, a task is.
    """
    from headatlas.tasks.prompts import hash_tasks, load_tasks

    check_count("limit", limit, 2)
    chosen = load_tasks(lm, tasks, shots)
    spans = layer_spans(lm, span or lm.n_layers)
    parts = []
    for task in chosen:
        for layers in spans:
            label = f"{task.name}: {name}" + (f", layers {layers[0]} to {layers[-1]}" if span else "")
            parts.append(Part(label, _measure, (effects, cost, label, task, layers, limit, batch_tokens), cost=_cost))
    variant = "".join(f", {k} {v}" for k, v in (settings or {}).items())
    return Work(
        f"{', '.join(t.name for t in chosen)}: {limit} examples each{variant}",
        _combine,
        (chosen, spans, [p.name for p in parts], limit, batch_tokens),
        parts,
        hash_tasks(chosen),
        {"limit": limit, **(settings or {})},
        cost=_combine_cost,
    )


def _measure(
    lm: LM,
    effects: Effects,
    cost: Costs,
    label: str,
    task: Task,
    layers: Sequence[int],
    limit: int,
    batch_tokens: int | None,
    *,
    done: Done,
    progress: Progress,
) -> None:
    questions = held_out_questions(lm, task, limit)
    done[label] = (effects(lm, questions, layers, tokens=batch_tokens, label=label, progress=progress),)


def _cost(lm: LM, effects: Any, cost: Costs, label: str, task: Task, layers: Sequence[int], limit: int, _: Any) -> Cost:
    return cost(lm, held_out_questions(lm, task, limit), layers)


def _combine(
    lm: LM,
    tasks: Sequence[Task],
    spans: Sequence[Sequence[int]],
    names: Sequence[str],
    limit: int,
    batch_tokens: int | None,
    *,
    done: Done,
    progress: Progress,
) -> xr.Dataset:
    """names: of the parts, task by task and for each the spans of layers."""
    import numpy as np
    import xarray as xr

    from headatlas.tasks.baseline import baseline
    from headatlas.tasks.bundles import held_out_bundles

    results = []
    parts = iter(names)
    for task in tasks:
        held_out = held_out_bundles(lm, task, limit)
        each = np.full((sum(len(s.examples) for s in held_out), lm.n_layers, lm.n_heads), np.nan, np.float32)
        for layers in spans:
            (each[:, layers],) = done[next(parts)]
        halves = [half.mean(0) if len(half) else np.full(half.shape[1:], np.nan) for half in (each[0::2], each[1::2])]
        one = xr.Dataset(
            {
                "effect": (("layer", "head"), each.mean(0)),
                "importance": (("layer", "head"), np.abs(each).mean(0)),
                "effect_half": (("half", "layer", "head"), np.stack(halves)),
            }
        )
        results.append(one.assign(baseline(lm, task, held_out, batch_tokens)))
    return xr.concat(results, "task").assign_coords(
        task=[t.name for t in tasks], half=["first", "second"], layer=range(lm.n_layers), head=range(lm.n_heads)
    )


def _combine_cost(lm: LM, tasks: Sequence[Task], spans: Any, names: Any, limit: int, batch_tokens: Any) -> Cost:
    from headatlas.models.cost import Cost, reading
    from headatlas.tasks.bundles import held_out_bundles

    return sum((reading(lm, held_out_bundles(lm, task, limit)) for task in tasks), Cost())


def held_out_questions(lm: LM, task: Task, limit: int) -> list[TokenExample]:
    from headatlas.tasks.bundles import held_out_bundles

    return [a for bundle in held_out_bundles(lm, task, limit) for a in bundle.examples]


def layer_spans(lm: Any, size: int = SPAN) -> list[list[int]]:
    """The layers that have heads, a few at a time. lm: an LM or `Parameters`."""
    layers = [i for i, site in enumerate(lm.weights.anatomy.sites) if site is not None]
    return [layers[a : a + size] for a in range(0, len(layers), size)]


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


def ask_held_out(lm: LM, subject: str) -> list[TokenExample]:
    """Held-out examples of a built-in task: for maps that were fitted to training ones."""
    from headatlas.tasks.prompts import load_tasks

    (task,) = load_tasks(lm, subject)
    return held_out_questions(lm, task, ASK)


def ask_training(lm: LM, subject: str) -> list[TokenExample]:
    """Training examples of a built-in task: for maps that were measured on held-out ones."""
    from headatlas.tasks.prompts import load_tasks

    (task,) = load_tasks(lm, subject)
    return held_out_questions(lm, replace(task, train=task.held_out, held_out=task.train), ASK)
