"""Datasets like those the methods give, of any size, without a model."""

from collections.abc import Sequence

import numpy as np
import xarray as xr

from headatlas.tasks.questions import FUNCTIONS
from headatlas.tasks.relations import CATEGORIES

SHAPES = [(1, 1), (30, 9), (48, 32), (126, 128)]  # layers × heads
MAP = ("layer", "head")


def probe(layers: int, heads: int, functions: Sequence[str] = FUNCTIONS, seed: int = 0) -> xr.Dataset:
    rng, n = np.random.default_rng(seed), len(functions)
    middle = np.linspace(0.2, 0.9, n)[:, None, None]
    value = rng.gamma(0.3, 1, (n, layers, heads)) * np.exp(
        -((np.arange(layers)[None, :, None] / layers - middle) ** 2) / 0.05
    )
    value /= value.sum((1, 2), keepdims=True)
    control = rng.random(value.shape) / (layers * heads)
    return xr.Dataset(
        {
            "importance": (("function", *MAP), value),
            "low": (("function", *MAP), 0.7 * value),
            "high": (("function", *MAP), 1.3 * value),
            "control_importance": (("function", *MAP), control),
            "clears_control": (("function", *MAP), 0.7 * value > control),
            "specialisation": (("function", "masked", "measure"), -rng.random((n, n, 1)) - np.eye(n)[..., None]),
            "masked_heads": ((), 4),
        },
        coords={"function": list(functions), "masked": list(functions), "measure": ["log_p"]}
        | {"layer": range(layers), "head": range(heads)},
        attrs={"method": "probe", "model": "synthetic", "n_kv_heads": heads // 2 if heads % 2 == 0 else heads},
    )


def maps(layers: int, heads: int, categories: Sequence[str] = CATEGORIES, seed: int = 0) -> xr.Dataset:
    rng, n = np.random.default_rng(seed), 2 * len(categories)
    return xr.Dataset(
        {
            "score": (("relation", *MAP), rng.beta(0.3, 3, (n, layers, heads))),
            "suppression": (("relation", *MAP), rng.beta(0.3, 5, (n, layers, heads))),
            "member": (("category", *MAP), rng.random((len(categories), layers, heads)) < 0.15),
        },
        coords={
            "relation": [f"relation_{i}" for i in range(n)],
            "category": ("relation", [categories[i // 2] for i in range(n)]),
            "category_name": ("category", list(categories)),
            "layer": range(layers),
            "head": range(heads),
        },
        attrs={"method": "maps", "model": "synthetic", "threshold": 0.15},
    )


def with_chance(result: xr.Dataset) -> xr.Dataset:
    """Such maps with chance levels: no head of the second relation is above chance."""
    n = result.sizes["relation"]
    level = np.where(np.arange(n) == 1, np.nanmax(result.score[1]), 0.1).astype(result.score.dtype)
    return result.assign(chance=("relation", level), chance_suppression=("relation", np.full(n, 0.1)))


def gate(
    layers: int, heads: int, tasks: Sequence[str] = ("math", "syntax"), seeds: int = 3, seed: int = 0
) -> xr.Dataset:
    rng = np.random.default_rng(seed)
    names = ("facilitation", "interference", "irrelevance")
    share = rng.dirichlet([0.5, 0.5, 0.5], (len(tasks), seeds, layers, heads))
    result = xr.Dataset(
        {name: (("task", "seed", *MAP), share[..., i]) for i, name in enumerate(names)}
        | {"baseline": ("task", np.full(len(tasks), -2.0))},
        coords={"task": list(tasks), "seed": range(seeds)} | {"layer": range(layers), "head": range(heads)},
        attrs={"method": "gate", "model": "synthetic"},
    )
    return result.assign(always=result.facilitation.min("seed"), any=result.facilitation.max("seed"))


def ablate(layers: int, heads: int, seed: int = 0) -> xr.Dataset:
    effect = np.random.default_rng(seed).normal(0, 0.1, (2, layers, heads))
    coords = {"task": ["math", "syntax"], "layer": range(layers), "head": range(heads)}
    return xr.Dataset(
        {"contribution": (("task", *MAP), effect)}, coords=coords, attrs={"method": "ablate", "model": "synthetic"}
    )


def dissociate(layers: int, heads: int, functions: Sequence[str] = FUNCTIONS[:4], seed: int = 0) -> xr.Dataset:
    rng, n = np.random.default_rng(seed), len(functions)
    score = rng.beta(0.2, 3, (n, 2, layers, heads))
    result = xr.Dataset(
        {
            "score": (("function", "seed", *MAP), score),
            "importance": (("function", *MAP), score.mean(1) / score.mean(1).sum((1, 2), keepdims=True)),
            "baseline": ("function", np.full(n, -2.0)),
        },
        coords={"function": list(functions), "seed": range(2), "layer": range(layers), "head": range(heads)},
        attrs={"method": "dissociate", "model": "synthetic"},
    )
    return result.assign(always=result.score.min("seed"), any=result.score.max("seed"))


def salient(layers: int, heads: int) -> xr.Dataset:
    words = np.array([" Paris", "<b>", " 東京", "\n"], dtype=object)
    token = np.broadcast_to(words, (layers, heads, 4)).copy()
    outputs = np.broadcast_to(words, (layers, heads, 4, 4)).copy()
    return xr.Dataset(
        {
            "amplification": ((*MAP, "rank"), np.ones((layers, heads, 4))),
            "token": ((*MAP, "rank"), token),
            "strongest": ((*MAP, "rank", "output"), outputs),
            "suppressed": ((*MAP, "rank", "output"), outputs),
        },
        coords={"layer": range(layers), "head": range(heads)},
        attrs={"method": "salient", "model": "synthetic"},
    )


def atlas(layers: int, heads: int) -> dict[str, xr.Dataset]:
    made = (probe, maps, gate, ablate, salient, dissociate)
    return {f.__name__: f(layers, heads) for f in made}
