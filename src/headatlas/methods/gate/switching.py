"""The proof of a gate map: heads switched off against on, in the order of each role, on held-out data.

From the retained gates G⁺, the top heads of a role are set to 0, and to 1; what counts is log P(target) at 0 minus that
at 1. It must fall for facilitating heads, stay for irrelevant ones and rise for interfering ones, each more so than for
random heads.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headatlas.evidence.control import Heads, cached_by_heads, compare_with_random, same_layers, top_heads
from headatlas.methods.gate.fits import ROLES, TaskFit
from headatlas.models.lm import LM
from headatlas.models.log_probs import batched_log_probs
from headatlas.models.tokens import Bundle
from headatlas.progress import Progress, silent
from headatlas.tasks.bundles import held_out_bundles

EXPECTED_CHANGE = {"facilitation": "lower", "interference": "higher", "irrelevance": "nearer zero"}
"""What switching off the heads of a role should do to log P(target)."""
DRAWS_PER_ROUND = 10  # fewer than usual: every set is measured twice, off and on


def switch_off(lm: LM, gates: xr.Dataset, of: TaskFit, *, progress: Progress = silent) -> xr.Dataset:
    """`effect(role, n_removed)`, the same for random heads (…, draw), and the p-value of each. gates: of this task."""
    most = len(lm.layers_with_heads) * lm.n_heads // 2  # as many random ones must be left
    draws, steps = of.settings.draws, [m for m in of.settings.steps if m <= most] or [max(1, most // 4)]
    retained = torch.from_numpy(gates.gate.sel(fit="retain").mean("seed").values)
    held_out = held_out_bundles(lm, of.task, of.settings.switching)
    off_against_on = cached_by_heads(partial(_off_against_on, lm, retained, held_out, of.batch_tokens))
    draw = same_layers(lm.n_heads, np.random.default_rng(0))
    tests = []
    for role, m in progress([(role, m) for role in ROLES for m in steps], f"{of.task.name}: switching heads off"):
        top = top_heads(gates[role].mean("seed").values, m)
        test = compare_with_random(
            off_against_on,
            [top],
            draw,
            draws=draws,
            direction=EXPECTED_CHANGE[role],
            draws_per_round=DRAWS_PER_ROUND,
        )
        tests.append(test)
    shape = (len(ROLES), len(steps))
    dims = ("role", "n_removed")
    return xr.Dataset(
        {
            "effect": (dims, np.reshape([test.effect[0] for test in tests], shape)),
            "random_effect": ((*dims, "draw"), np.reshape([test.random_effect[0] for test in tests], (*shape, draws))),
            "p": (dims, np.reshape([test.p[0] for test in tests], shape)),
        },
        coords={"role": list(ROLES), "n_removed": steps, "draw": range(draws)},
    )


def _off_against_on(
    lm: LM, retained: Tensor, held_out: Sequence[Bundle], tokens: int | None, sets: Sequence[Heads]
) -> np.ndarray:
    """Mean log P(target) with each set of heads off minus with it on."""
    gates = retained.nan_to_num(0.0).repeat(2, len(sets), 1, 1)  # [off or on, set, layer, head]
    for i, heads in enumerate(sets):
        for layer, head in heads:
            gates[0, i, layer, head], gates[1, i, layer, head] = 0, 1
    log_p, _ = batched_log_probs(lm, held_out, gates.flatten(0, 1), tokens)
    off, on = log_p.mean(1).unflatten(0, (2, -1))
    return (off - on).numpy()
