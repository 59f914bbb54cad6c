"""The proof of a gate map: heads switched off against on, in the order of each role, on held-out data.

From the retained gates G⁺, the top heads of a role are set to 0, and to 1; what counts is log P(target) at 0 minus that at 1. It
must fall for facilitating heads, stay for irrelevant ones and rise for interfering ones, each more so than for random heads.
Random heads are drawn from each layer, as many as the tested ones have there, the tested ones among the rest: only so would a
ranking that means nothing get a p-value that is uniform.
"""

from collections.abc import Sequence

import numpy as np
import xarray as xr
from torch import Tensor

from headatlas.models.lm import LM
from headatlas.models.targets import Sheet, measure
from headatlas.progress import Progress, silent
from headatlas.evidence.removal import Heads, draw_like, top_heads

DRAWS = 20  # of random heads


def switch_off_curves(
    lm: LM,
    retained: Tensor,
    roles: xr.Dataset,
    held_out: Sequence[Sheet],
    *,
    steps: Sequence[int] = (1, 2, 4, 8, 16, 32),
    draws: int = DRAWS,
    seed: int = 0,
    tokens: int | None = None,
    label: str = "switching heads off",
    progress: Progress = silent,
) -> xr.Dataset:
    """`switch_off(role, switched)`, the same for random heads (…, draw), and the p-value of each.

    retained: G⁺ [layer, head]; roles: one score(layer, head) for each role, whose order is followed.
    """
    layers = [i for i in range(lm.n_layers) if i not in lm.layers_without_heads]
    most = len(layers) * lm.n_heads // 2  # as many random ones must be left
    steps = [m for m in steps if m <= most] or [max(1, most // 4)]
    names = [str(name) for name in roles.data_vars]
    generator = np.random.default_rng(seed)
    effect = np.full((len(names), len(steps), 1 + draws), np.nan)
    for r, m in progress([(r, m) for r in range(len(names)) for m in range(len(steps))], label):
        top = top_heads(roles[names[r]].values, steps[m])
        sets = [top, *(draw_like(top, lm.n_heads, generator) for _ in range(draws))]
        effect[r, m] = _off_against_on(lm, retained, sets, held_out, tokens)
    dims = ("role", "switched")
    return xr.Dataset(
        {
            "switch_off": (dims, effect[..., 0]),
            "switch_off_random": ((*dims, "draw"), effect[..., 1:]),
            "switch_off_p": (
                dims,
                [[_p(names[r], effect[r, m]) for m in range(len(steps))] for r in range(len(names))],
            ),
        },
        coords={"role": names, "switched": list(steps), "draw": range(draws)},
    )


def _off_against_on(
    lm: LM, retained: Tensor, sets: Sequence[Heads], held_out: Sequence[Sheet], tokens: int | None
) -> np.ndarray:
    """Mean log P(target) with each set of heads off minus with it on."""
    gates = retained.nan_to_num(0.0).repeat(2, len(sets), 1, 1)  # [off or on, set, layer, head]
    for i, heads in enumerate(sets):
        for layer, head in heads:
            gates[0, i, layer, head], gates[1, i, layer, head] = 0, 1
    log_p, _ = measure(lm, held_out, gates.flatten(0, 1), tokens)
    off, on = log_p.mean(1).unflatten(0, (2, -1))
    return (off - on).numpy()


def _p(role: str, effect: np.ndarray) -> float:
    """How often random heads do as the role says at least as much: effect is [its own, random, random, …]."""
    extreme = {"facilitation": effect, "interference": -effect, "irrelevance": np.abs(effect)}[role]
    return (extreme <= extreme[0]).sum() / len(extreme) if np.isfinite(effect).all() else np.nan
