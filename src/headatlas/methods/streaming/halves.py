"""Test a streaming map on other texts: half of the KV heads streams, and random halves."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from headatlas.evidence.control import Heads, compare_with_random, gates_without, same_layers
from headatlas.evidence.inference import detectable, interval
from headatlas.methods.method import Part
from headatlas.methods.streaming.compute import log_p_of_sets, need_of_kv_heads
from headatlas.methods.streaming.texts import ScoredText, Window
from headatlas.models.lm import LM
from headatlas.progress import FinishedParts, Progress

MIN_ACCURACY = 0.2  # a model that gets fewer scored tokens right can lose little


def test_part(task: str, arrays: Mapping[str, Sequence[int]], draws: int, arguments: Mapping[str, Any]) -> Part:
    """Return the part that tests the map of a task. arguments: the other arguments of `stream_halves`."""
    name = f"{task}: streaming, test with {draws} draws"
    return Part(
        name=name,
        do=stream_halves,
        arguments={"name": name, "arrays": arrays, "draws": draws, **arguments},
        inputs=tuple(arrays),
    )


def stream_halves(
    lm: LM,
    *,
    name: str,
    texts: Sequence[ScoredText],
    window: Window,
    arrays: Mapping[str, Sequence[int]],
    draws: int,
    batch_tokens: int | None,
    done: FinishedParts,
    progress: Progress,
) -> None:
    """Measure how log P changes while KV heads stream.

    Leaves the change with the half of the map with the lowest need, with random halves like it [draw], p, the changes
    with the other half and with all KV heads, and how many the half has.

    Args:
        name: of the part, and of its arrays.
        arrays: names of the arrays of the map, and the layers that each is of.
    """
    generator = np.random.default_rng(0)
    lower, upper = split_by_need(need_of_kv_heads(lm, arrays, done).mean(0), generator)

    measured: list[np.ndarray] = []  # log P by text: whole model, lower half, random halves

    def log_p_streaming(sets: Sequence[Heads]) -> np.ndarray:
        alpha = gates_without(sets, (lm.n_layers, lm.n_kv_heads))
        log_p = log_p_of_sets(lm, texts, window, alpha, batch_tokens=batch_tokens, label=name, progress=progress)
        measured.extend(log_p.double().numpy())
        return np.asarray(log_p.mean(1).numpy())

    control = compare_with_random(
        log_p_streaming,
        [lower],
        same_layers(lm.n_kv_heads, generator),
        draws=draws,
        direction="higher",
        draws_per_round=draws,
        stop_early=False,
        reference=[],
    )
    beyond_random = measured[1] - np.mean(measured[2:], axis=0)
    texts_apart = range(len(beyond_random))
    low, high = interval(beyond_random, texts_apart)
    seen = detectable(beyond_random, texts_apart)
    others = log_p_streaming([upper, lower + upper]) - control.reference
    done[name] = (
        control.effect[0],
        control.random_effect[0],
        control.p[0],
        others,
        np.array(len(lower)),
        np.array([low, high, seen]),
    )


def split_by_need(need: np.ndarray, generator: np.random.Generator) -> tuple[Heads, Heads]:
    """Return the half of a map [layer, kv_head] with the lowest need, and the rest. Ties are broken at random."""
    heads = [(int(layer), int(head)) for layer, head in zip(*np.nonzero(np.isfinite(need)), strict=True)]
    order = np.lexsort((generator.random(len(heads)), [need[head] for head in heads]))
    ordered = [heads[i] for i in order]
    return ordered[: len(heads) // 2], ordered[len(heads) // 2 :]


def sentences(result: xr.Dataset) -> list[str]:
    """Say, for each task, how well half of the KV heads can stream, and whether the model can do the task."""
    lines = []
    for task in result.task.values.tolist():
        row = result.sel(task=task)
        accuracy = float(row.whole_accuracy)
        if accuracy < MIN_ACCURACY:
            lines.append(
                f"{task}: the whole model gets {accuracy:.0%} of the scored tokens right:"
                " there is little that streaming could lose"
            )
        if "effect" in row:
            effect, random_effect, all_effect = (
                float(values) for values in (row.effect, row.random_effect.mean(), row.all_effect)
            )
            lines.append(
                f"{task}: with the {int(row.n_removed)} KV heads that need it least streaming, log P per token of other"
                f" texts changes by {effect:+.2f} (random ones {random_effect:+.2f}, p {float(row.p):.2f};"
                f" all {all_effect:+.2f}): {row.outcome.item()}"
            )
    return lines
