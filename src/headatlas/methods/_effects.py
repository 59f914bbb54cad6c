"""What `ablate`, `taylor` and `ig` share: effects [example, layer, head] of each task, averaged, over halves too."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
import xarray as xr

from headatlas.errors import check_count
from headatlas.methods.method import Part, Work
from headatlas.models.cost import Cost, reading
from headatlas.models.lm import LM
from headatlas.models.log_probs import batched_log_probs
from headatlas.models.tokens import TokenExample
from headatlas.progress import Done, Progress
from headatlas.tasks.baseline import baseline
from headatlas.tasks.bundles import held_out_bundles, held_out_rows
from headatlas.tasks.prompts import Task, hash_tasks, load_tasks
from headatlas.tasks.used import used_rows

OFF = 0.1  # share of what heads are worth that effects may be off by
ASK = 24  # questions of the tests where no truth is known


@dataclass(frozen=True)
class Piece:
    """A part of the work: one task, some layers."""

    name: str
    effects: "Effects"
    task: Task
    layers: Sequence[int]
    limit: int
    batch_tokens: int | None

    def questions(self, lm: LM) -> list[TokenExample]:
        return held_out_questions(lm, self.task, self.limit)


class Effects(Protocol):
    """How the effects of heads are measured, or estimated. It goes to workers, so it is plain data."""

    def measure(self, lm: LM, piece: Piece, progress: Progress) -> np.ndarray:
        """Effects of the heads of the piece's layers: [example, layer, head]."""

    def cost(self, lm: LM, piece: Piece) -> Cost: ...


def effects_work(
    name: str,
    lm: LM,
    tasks: Any,
    effects: Effects,
    limit: int,
    shots: int | None,
    batch_tokens: int | None,
    *,
    span: int | None = None,
    settings: Mapping[str, Any] | None = None,
    without_heads: bool = False,
) -> Work:
    """span: so many layers are a part; without it, a task is. settings: what the effects depend on. without_heads: also
    measure log P(target) without any head, for effects that claim to add up."""
    check_count("limit", limit, 2)
    chosen, settings = load_tasks(lm, tasks, shots), settings or {}

    def piece(task: Task, layers: Sequence[int]) -> Piece:
        label = f"{task.name}: {name}" + (f", layers {layers[0]} to {layers[-1]}" if span else "")
        return Piece(label, effects, task, layers, limit, batch_tokens)

    pieces = [[piece(task, layers) for layers in lm.anatomy.layer_groups(span or lm.n_layers)] for task in chosen]
    variant = "".join(f", {k} {v}" for k, v in settings.items())
    return Work(
        summary=f"{', '.join(t.name for t in chosen)}: {limit} examples each{variant}",
        combine=_combine,
        arguments=(pieces, without_heads),
        parts=[Part(name=p.name, do=_measure, arguments=(p,), cost=_cost) for of_task in pieces for p in of_task],
        data=hash_tasks(chosen),
        settings={"limit": limit, **settings},
        cost=_combine_cost,
        used=used_rows(chosen, (row for task in chosen for row in held_out_rows(task, limit))),
    )


def _measure(lm: LM, piece: Piece, *, done: Done, progress: Progress) -> None:
    done[piece.name] = (piece.effects.measure(lm, piece, progress),)


def _cost(lm: LM, piece: Piece) -> Cost:
    return piece.effects.cost(lm, piece)


def _combine(
    lm: LM, pieces: Sequence[Sequence[Piece]], without_heads: bool, *, done: Done, progress: Progress
) -> xr.Dataset:
    """pieces: those of each task."""
    results = []
    for of_task in pieces:
        task, limit, batch_tokens = of_task[0].task, of_task[0].limit, of_task[0].batch_tokens
        held_out = held_out_bundles(lm, task, limit)
        each = np.full((sum(len(s.examples) for s in held_out), lm.n_layers, lm.n_heads), np.nan, np.float32)
        for piece in of_task:
            (each[:, piece.layers],) = done[piece.name]
        one = xr.Dataset(
            {
                "effect": (("layer", "head"), each.mean(0)),
                "importance": (("layer", "head"), np.abs(each).mean(0)),
                "effect_half": (("half", "layer", "head"), halves(each)),
            }
        )
        if without_heads:
            shut = torch.zeros(1, lm.n_layers, lm.n_heads)
            one["without_heads"] = batched_log_probs(lm, held_out, shut, batch_tokens)[0].mean().item()
        results.append(one.assign(baseline(lm, task, held_out, batch_tokens)))
    names = [of_task[0].task.name for of_task in pieces]
    return xr.concat(results, "task").assign_coords(
        task=names, half=["first", "second"], layer=range(lm.n_layers), head=range(lm.n_heads)
    )


def halves(each: np.ndarray) -> np.ndarray:
    """Means over every other example, [half, …], of values [example, …]; NaN for a half without any."""
    return np.stack(
        [half.mean(0) if len(half) else np.full(half.shape[1:], np.nan) for half in (each[0::2], each[1::2])]
    )


def _combine_cost(lm: LM, pieces: Sequence[Sequence[Piece]], without_heads: bool) -> Cost:
    once = Cost()
    for first, *_ in pieces:
        once += reading(lm, held_out_bundles(lm, first.task, first.limit), tokens=first.batch_tokens)
    return once + once if without_heads else once


def held_out_questions(lm: LM, task: Task, limit: int) -> list[TokenExample]:
    return [a for bundle in held_out_bundles(lm, task, limit) for a in bundle.examples]


def adds_up(result: xr.Dataset) -> list[str]:
    """A sentence for every task whose effects do not add up to what all heads together are worth."""
    if "without_heads" not in result:
        return []
    lines = []
    for name in result.task.values.tolist():
        one = result.sel(task=name)
        total, worth = float(one.effect.sum()), float(one.baseline - one.without_heads)
        if not abs(total - worth) <= OFF * abs(worth):
            lines.append(
                f"{name}: effects add up to {total:.1f}, but all heads together are worth {worth:.1f}:"
                f" with so few steps, do not trust them (headatlas {result.attrs['method']} --steps)"
            )
    return lines


def ask_held_out(lm: LM, subject: str) -> list[TokenExample]:
    """Held-out examples of a built-in task: for maps that were fitted to training ones."""
    (task,) = load_tasks(lm, subject)
    return held_out_questions(lm, task, ASK)


def ask_training(lm: LM, subject: str) -> list[TokenExample]:
    """Training examples of a built-in task: for maps that were measured on held-out ones."""
    (task,) = load_tasks(lm, subject)
    return held_out_questions(lm, replace(task, train=task.held_out, held_out=task.train), ASK)
