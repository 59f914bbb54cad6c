"""The proof of a probe's map: heads are taken away, or pushed, while the model answers, and what counts is how the answers fare.

Removal: a function's top heads, its lowest, and random heads of the same layers as the top ones. Specialisation: every function's
heads against every function's questions. Hierarchy: the heads of lower-order functions against higher-order questions, and the
other way round. Intervention: the top heads pushed along the function's direction, and against it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headatlas.models.answers import Change
from headatlas.progress import Progress, silent
from headatlas.tasks.questions import HIGHER, LOWER
from headatlas.evidence.removal import Heads, draw_like, top_heads

SCALE = 1e-4  # what removed heads are multiplied by, as published

Ask = Callable[[str, list[Change]], np.ndarray]
"""(function, changes) → how that function's test questions are answered under each: [change, question, measure], the first
measure being the one that p-values are about; more is better."""


@dataclass(frozen=True)
class Trials:
    shares: tuple[float, ...]  # of all heads, to be removed
    masked: float = 0.1  # share of heads whose removal makes up the specialisation matrix and the hierarchy
    draws: int = 20
    order_draws: int = 5  # of the hierarchy
    alphas: tuple[float, ...] = (-2.0, -1.0, 1.0, 2.0)


def prove(
    ask: Ask,
    measures: Sequence[str],
    importance: xr.DataArray,
    pushes: Tensor,
    trials: Trials,
    *,
    seed: int = 0,
    progress: Progress = silent,
) -> xr.Dataset:
    """importance(function, layer, head) put to the test; pushes: σ · direction [function, layer, head, d_head]."""
    functions = importance.function.values.tolist()
    shape = (importance.sizes["layer"], importance.sizes["head"])
    there = int(importance.isel(function=0).notnull().sum())
    ranked = {f: top_heads(importance.sel(function=f).values, there) for f in functions}
    steps = sorted({max(1, round(share * there)) for share in trials.shares})
    masked = max(1, round(trials.masked * there))
    orders = {name: [f for f in functions if f in of] for name, of in (("lower", LOWER), ("higher", HIGHER))}
    orders = orders if all(orders.values()) else {}
    unions = {o: sorted({head for f in of for head in ranked[f][:masked]}) for o, of in orders.items()}
    found = []
    for number, function in enumerate(progress(functions, "removing heads while answering")):
        generator = np.random.default_rng([seed, number])

        def like(heads: Heads, draws: int, generator: np.random.Generator = generator) -> list[Heads]:
            return [draw_like(heads, shape[1], generator) for _ in range(draws)]

        own = ranked[function]
        removed = {
            "top": [own[:m] for m in steps],
            "lowest": [own[::-1][:m] for m in steps],
            "random": [drawn for m in steps for drawn in like(own[:m], trials.draws)],
            "masked": [ranked[f][:masked] for f in functions],
            "order": list(unions.values()),
            "order_random": [drawn for heads in unions.values() for drawn in like(heads, trials.order_draws)],
        }
        pushed = _gate([own[:masked]], shape, 0.0)[0] == 0
        changes = [Change(torch.ones(shape))]
        changes += [Change(gate) for sets in removed.values() for gate in _gate(sets, shape)]
        changes += [Change(torch.ones(shape), alpha * pushes[number] * pushed[..., None]) for alpha in trials.alphas]
        asked = ask(function, changes).mean(1)  # [change, measure]
        parts = np.split(asked, np.cumsum([1, *map(len, removed.values())]))
        values = dict(zip(["whole", *removed, "pushed"], parts, strict=True))
        found.append(_one(values, trials.draws, len(orders), trials.order_draws))
    coords = {
        "function": functions,
        "removed": steps,
        "draw": range(trials.draws),
        "masked": functions,
        "order": list(orders),
        "alpha": list(trials.alphas),
        "measure": list(measures),
    }
    return xr.concat(found, "function").assign_coords(coords).assign(masked_heads=masked)


def _gate(sets: Sequence[Heads], shape: tuple[int, int], scale: float = SCALE) -> Tensor:
    gates = torch.ones(len(sets), *shape)
    for gate, heads in zip(gates, sets, strict=True):
        for layer, head in heads:
            gate[layer, head] = scale
    return gates


def _one(values: dict[str, np.ndarray], draws: int, orders: int, order_draws: int) -> xr.Dataset:
    """One function's measurements: as they are for removal, as changes from the whole model for the rest."""
    whole = values["whole"][0]
    random = values["random"].reshape(-1, draws, len(whole))
    as_low = (random[:, :, 0] <= values["top"][:, None, 0]).sum(1)
    return xr.Dataset(
        {
            "whole": ("measure", whole),
            "removal_top": (("removed", "measure"), values["top"]),
            "removal_lowest": (("removed", "measure"), values["lowest"]),
            "removal_random": (("removed", "draw", "measure"), random),
            "removal_p": ("removed", (1 + as_low) / (1 + draws)),
            "specialisation": (("masked", "measure"), values["masked"] - whole),
            "hierarchy": (("order", "measure"), values["order"] - whole),
            "hierarchy_random": (
                ("order", "order_draw", "measure"),
                values["order_random"].reshape(orders, order_draws, len(whole)) - whole,
            ),
            "intervention": (("alpha", "measure"), values["pushed"] - whole),
        }
    )
