"""Contributions of every head to each task, averaged over examples, for `ablate`, `taylor` and `ig`.

Each of these methods brings a function that computes the contributions [example, layer, head] of some layers to one
task. The parts and the result are the same.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import xarray as xr

from headatlas.errors import check_count
from headatlas.methods.method import Part, Work
from headatlas.models.lm import LM
from headatlas.models.log_probs import batched_log_probs
from headatlas.models.tokens import TokenExample
from headatlas.progress import FinishedParts, Progress
from headatlas.tasks.baseline import measure_baseline
from headatlas.tasks.bundles import held_out_bundles, held_out_rows
from headatlas.tasks.prompts import Task, hash_tasks, load_tasks
from headatlas.tasks.used import used_rows

SUM_TOLERANCE = 0.1  # relative difference of the sum of contributions from what all heads contribute together
MAX_TEST_QUESTIONS = 24  # of a test on a real model


def contribution_work(
    name: str,
    lm: LM,
    tasks: Any,
    *,
    compute: Callable[..., None],
    limit: int,
    shots: int | None,
    batch_tokens: int | None,
    settings: Mapping[str, Any] | None = None,
    layers_per_part: int | None = None,
    without_heads: bool = False,
) -> Work:
    """Plan the contributions of all heads to each task.

    Args:
        name: name of the method.
        lm: the model.
        tasks: the tasks, as the user gave them.
        compute: `compute(lm, part=…, task=…, layers=…, limit=…, batch_tokens=…, **settings, done=…, progress=…)` puts
            the contributions [example, layer, head] of the heads of these layers into `done[part]`.
        limit: maximum number of held-out examples of each task.
        shots: number of few-shot examples (default: that of each task).
        batch_tokens: tokens run through the model at once.
        settings: the method-specific options.
        layers_per_part: number of layers with heads in one part; None for all.
        without_heads: whether to measure log P(target) without any head too, for contributions that should add up.
    """
    check_count("limit", limit, 2)
    loaded = load_tasks(lm, tasks, shots)
    settings = settings or {}
    groups = lm.anatomy.layer_groups(layers_per_part or lm.n_layers)

    def part_name(task: Task, layers: Sequence[int]) -> str:
        name_of_task = f"{task.name}: {name}"
        return name_of_task if layers_per_part is None else f"{name_of_task}, layers {layers[0]} to {layers[-1]}"

    layers_by_part = {task.name: {part_name(task, layers): layers for layers in groups} for task in loaded}
    common = {"limit": limit, "batch_tokens": batch_tokens}
    parts = [
        Part(
            name=part,
            do=compute,
            arguments={"part": part, "task": task, "layers": layers, **common, **settings},
        )
        for task in loaded
        for part, layers in layers_by_part[task.name].items()
    ]
    variant = "".join(f", {option} {value}" for option, value in settings.items())
    return Work(
        summary=f"{', '.join(t.name for t in loaded)}: {limit} examples each{variant}",
        combine=_combine,
        arguments={"tasks": loaded, "layers_by_part": layers_by_part, "without_heads": without_heads, **common},
        parts=parts,
        data=hash_tasks(loaded),
        settings={"limit": limit, **settings},
        used=used_rows(loaded, (row for task in loaded for row in held_out_rows(task, limit))),
        subjects={task.name: task for task in loaded},
    )


def _combine(
    lm: LM,
    *,
    tasks: Sequence[Task],
    layers_by_part: Mapping[str, Mapping[str, Sequence[int]]],
    limit: int,
    batch_tokens: int | None,
    without_heads: bool,
    done: FinishedParts,
    progress: Progress,
) -> xr.Dataset:
    """Average the contributions over examples. layers_by_part: the layers of each part, by task and part."""
    results = []
    for task in tasks:
        held_out = held_out_bundles(lm, task, limit)
        n_examples = sum(len(bundle.examples) for bundle in held_out)
        contributions = np.full((n_examples, lm.n_layers, lm.n_heads), np.nan, np.float32)
        for part, layers in layers_by_part[task.name].items():
            (contributions[:, layers],) = done[part]
        result = xr.Dataset(
            {
                "contribution": (("layer", "head"), contributions.mean(0)),
                "importance": (("layer", "head"), np.abs(contributions).mean(0)),
                "by_example": (("example", "layer", "head"), contributions),
            },
            # An index, because tasks may have different numbers of examples.
            coords={"example": range(n_examples)},
        )
        if without_heads:
            closed = torch.zeros(1, lm.n_layers, lm.n_heads)
            result["without_heads"] = batched_log_probs(lm, held_out, closed, batch_tokens)[0].mean().item()
        results.append(result.assign(measure_baseline(lm, task, held_out, batch_tokens)))
    return xr.concat(results, "task").assign_coords(
        task=[task.name for task in tasks], layer=range(lm.n_layers), head=range(lm.n_heads)
    )


def held_out_questions(lm: LM, task: Task, limit: int) -> list[TokenExample]:
    """Return at most `limit` held-out examples of a task as tokens."""
    return [example for bundle in held_out_bundles(lm, task, limit) for example in bundle.examples]


def sum_sentences(result: xr.Dataset) -> list[str]:
    """Return a warning for every task whose contributions do not add up to that of all heads together."""
    if "without_heads" not in result:
        return []
    sentences = []
    for name in result.task.values.tolist():
        of_task = result.sel(task=name)
        total = float(of_task.contribution.sum())
        expected = float(of_task.baseline - of_task.without_heads)
        # written so that NaN warns too
        if not abs(total - expected) <= SUM_TOLERANCE * abs(expected):
            sentences.append(
                f"{name}: contributions add up to {total:.1f}, but all heads together contribute {expected:.1f}:"
                f" too few steps for reliable contributions (headatlas {result.attrs['method']} --steps)"
            )
    return sentences


def ask_held_out(lm: LM, subject: str) -> list[TokenExample]:
    """Return held-out examples of a built-in task: for maps that were fitted to training ones."""
    (task,) = load_tasks(lm, subject)
    return held_out_questions(lm, task, MAX_TEST_QUESTIONS)


def ask_training(lm: LM, subject: str) -> list[TokenExample]:
    """Return training examples of a built-in task: for maps that were measured on held-out ones."""
    (task,) = load_tasks(lm, subject)
    swapped = replace(task, train=task.held_out, held_out=task.train)
    return held_out_questions(lm, swapped, MAX_TEST_QUESTIONS)
