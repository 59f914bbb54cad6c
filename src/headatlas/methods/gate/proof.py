"""Test a gate map: switch heads off and on, in the order of each role, on held-out data.

From the retained gates G⁺, the top heads of a role are set to 0, and to 1. The effect is log P(target) at 0 minus that
at 1. It must fall for facilitating heads, stay for irrelevant ones and rise for interfering ones, each more so than for
random heads.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headatlas.evidence.control import (
    Heads,
    cached_by_heads,
    compare_with_random,
    same_layers,
    top_heads,
)
from headatlas.models.lm import LM
from headatlas.models.log_probs import batched_log_probs
from headatlas.models.tokens import Bundle
from headatlas.progress import Progress, silent
from headatlas.tasks.bundles import held_out_bundles
from headatlas.tasks.prompts import Task

EXPECTED_CHANGE = {"facilitation": "lower", "interference": "higher", "irrelevance": "nearer zero"}
"""What switching off the heads of a role should do to log P(target)."""
DRAWS_PER_ROUND = 10  # fewer than usual: every set is measured twice, off and on


def switch_off(
    lm: LM,
    task: Task,
    gates: xr.Dataset,
    *,
    examples: int,
    steps: Sequence[int],
    draws: int,
    batch_tokens: int | None = None,
    progress: Progress = silent,
) -> xr.Dataset:
    """Return `effect(role, n_removed)`, the same for random heads (…, draw), and the p-value of each.

    Args:
        gates: the gates and scores of this task.
        examples: held-out examples to measure on.
        steps: how many heads to switch off at once.
        draws: random sets of heads for each test, at most.
    """
    max_heads = len(lm.layers_with_heads) * lm.n_heads // 2  # as many random ones must be left
    steps = [n for n in steps if n <= max_heads] or [max(1, max_heads // 4)]
    retained = torch.from_numpy(gates.gate.sel(fit="retain").mean("seed").values)
    held_out = held_out_bundles(lm, task, examples)
    value = cached_by_heads(partial(_off_minus_on, lm, retained, held_out, batch_tokens))
    draw = same_layers(lm.n_heads, np.random.default_rng(0))
    tests = []
    for role, n in progress(
        [(role, n) for role in EXPECTED_CHANGE for n in steps], f"{task.name}: switching heads off"
    ):
        top = top_heads(gates[role].mean("seed").values, n)
        direction = EXPECTED_CHANGE[role]
        test = compare_with_random(
            value, [top], draw, draws=draws, direction=direction, draws_per_round=DRAWS_PER_ROUND
        )
        tests.append(test)
    dims = ("role", "n_removed")
    shape = (len(EXPECTED_CHANGE), len(steps))
    return xr.Dataset(
        {
            "effect": (dims, np.reshape([test.effect[0] for test in tests], shape)),
            "random_effect": ((*dims, "draw"), np.reshape([test.random_effect[0] for test in tests], (*shape, draws))),
            "p": (dims, np.reshape([test.p[0] for test in tests], shape)),
        },
        coords={"role": list(EXPECTED_CHANGE), "n_removed": steps, "draw": range(draws)},
    )


def _off_minus_on(
    lm: LM, retained: Tensor, held_out: Sequence[Bundle], tokens: int | None, sets: Sequence[Heads]
) -> np.ndarray:
    """Return the mean log P(target) with each set of heads off minus with it on [set]."""
    gates = retained.nan_to_num(0.0).repeat(2, len(sets), 1, 1)  # [off or on, set, layer, head]
    for i, heads in enumerate(sets):
        for layer, head in heads:
            gates[0, i, layer, head] = 0
            gates[1, i, layer, head] = 1
    log_p, _ = batched_log_probs(lm, held_out, gates.flatten(0, 1), tokens)
    with_off, with_on = log_p.mean(1).unflatten(0, (2, -1))
    return (with_off - with_on).numpy()


def sentences(result: xr.Dataset) -> list[str]:
    """Say how well the model does each task; imported gates do not have the numbers."""
    if not {"whole_accuracy", "guess_accuracy"} <= set(result):
        return []
    lines = []
    for task in result.task.values.tolist():
        accuracy = float(result.whole_accuracy.sel(task=task))
        guess = float(result.guess_accuracy.sel(task=task))
        lines.append(f"gate: the whole model gets {accuracy:.0%} of {task} right; the best guess {guess:.0%}")
    return lines
