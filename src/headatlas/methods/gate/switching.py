"""The proof of a gate map: heads switched off against on, in the order of each role, on held-out data.

From the retained gates G⁺, the top heads of a role are set to 0, and to 1; what counts is log P(target) at 0 minus that
at 1. It must fall for facilitating heads, stay for irrelevant ones and rise for interfering ones, each more so than for
random heads.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headatlas.evidence.removal import Heads, Quality, draw_like, measured_once, p_sequential, top_heads
from headatlas.methods.gate.fits import ROLES, TaskFit
from headatlas.models.lm import LM
from headatlas.models.targets import Bundle, measure
from headatlas.progress import Progress, silent
from headatlas.tasks.bundles import held_out_bundles


def switch_off(lm: LM, gates: xr.Dataset, of: TaskFit, *, progress: Progress = silent) -> xr.Dataset:
    """`effect(role, n_removed)`, the same for random heads (…, draw), and the p-value of each. gates: of this task."""
    most = (lm.n_layers - len(lm.layers_without_heads)) * lm.n_heads // 2  # as many random ones must be left
    draws, steps = of.settings.draws, [m for m in of.settings.steps if m <= most] or [max(1, most // 4)]
    retained = torch.from_numpy(gates.gate.sel(fit="retain").mean("seed").values)
    held_out = held_out_bundles(lm, of.task, of.settings.switching)
    off_against_on = measured_once(partial(_off_against_on, lm, retained, held_out, of.batch_tokens))
    generator = np.random.default_rng(0)
    effect, random_effect, p = [], [], []
    for role, m in progress([(role, m) for role in ROLES for m in steps], f"{of.task.name}: switching heads off"):
        top = top_heads(gates[role].mean("seed").values, m)
        effect.append(off_against_on([top])[0])
        drawn, of_role = role_p(role, effect[-1], partial(_drawn, off_against_on, top, lm.n_heads, generator), draws)
        random_effect.append(np.pad(drawn, (0, draws - len(drawn)), constant_values=np.nan))
        p.append(of_role)
    shape, dims = (len(ROLES), len(steps)), ("role", "n_removed")
    return xr.Dataset(
        {
            "effect": (dims, np.reshape(effect, shape)),
            "random_effect": ((*dims, "draw"), np.reshape(random_effect, (*shape, draws))),
            "p": (dims, np.reshape(p, shape)),
        },
        coords={"role": list(ROLES), "n_removed": steps, "draw": range(draws)},
    )


def _drawn(quality: Quality, heads: Heads, n_heads: int, generator: np.random.Generator, n: int) -> np.ndarray:
    return quality([draw_like(heads, n_heads, generator) for _ in range(n)])


def role_p(role: str, effect: float, draw: Callable[[int], np.ndarray], draws: int) -> tuple[np.ndarray, float]:
    """The effects of random heads, and how often they do as the role says at least as much: lower log P, raise it, or
    leave it. draw(n): the effects of n more of them; there are at most `draws`, fewer where the answer is plain."""
    drawn = np.empty(0)

    def as_the_role_says(change: Any) -> Any:  # the lower, the more
        return {"facilitation": change, "interference": -change, "irrelevance": np.abs(change)}[role]

    def more(n: int) -> np.ndarray:
        nonlocal drawn
        drawn = np.append(drawn, draw(n))
        return np.asarray(as_the_role_says(drawn[-n:]))

    _, p = p_sequential(as_the_role_says(effect), more, draws)
    return drawn, p


def _off_against_on(
    lm: LM, retained: Tensor, held_out: Sequence[Bundle], tokens: int | None, sets: Sequence[Heads]
) -> np.ndarray:
    """Mean log P(target) with each set of heads off minus with it on."""
    gates = retained.nan_to_num(0.0).repeat(2, len(sets), 1, 1)  # [off or on, set, layer, head]
    for i, heads in enumerate(sets):
        for layer, head in heads:
            gates[0, i, layer, head], gates[1, i, layer, head] = 0, 1
    log_p, _ = measure(lm, held_out, gates.flatten(0, 1), tokens)
    off, on = log_p.mean(1).unflatten(0, (2, -1))
    return (off - on).numpy()
