"""A small invented atlas, to test what the page shows of it: 4 layers of 3 heads; layer 2 has none."""

import numpy as np
import xarray as xr

from tests.figures.made_tests import with_tests

LAYERS, HEADS, WITHOUT = 4, 3, 2
FUNCTIONS = ["Retrieval", "Inference"]
INFO = {
    "model": {"name": "tiny", "fingerprint": "f1nger", "n_layers": LAYERS, "n_heads": HEADS},
    "run": {"time": "2026-01-02T03:04:05+00:00", "versions": {"torch": "9.9"}, "command": "headatlas run tiny"},
}


def scores(seed: int, *sizes: int, layers: int = LAYERS, heads: int = HEADS) -> np.ndarray:
    values = np.random.default_rng(seed).random((*sizes, layers, heads))
    values[..., WITHOUT, :] = np.nan
    return values


def dataset(variables: dict, **coords: object) -> xr.Dataset:
    result = xr.Dataset(variables, coords=coords)
    return result.assign_coords({d: range(result.sizes[d]) for d in ("layer", "head")})


def probe(functions: list[str] = FUNCTIONS, layers: int = LAYERS, heads: int = HEADS) -> xr.Dataset:
    n, dims = len(functions), ("function", "layer", "head")
    importance = scores(0, n, layers=layers, heads=heads)
    importance /= np.nansum(importance, axis=(1, 2), keepdims=True)
    return dataset(
        {
            "importance": (dims, importance),
            "low": (dims, importance * 0.5),
            "high": (dims, importance * 1.5),
            "clears_control": (dims, np.ones(importance.shape, bool)),
            "accuracy": 0.41,
            "accuracy_per_function": ("function", np.full(n, 0.41)),
            "bag_of_words": ("wording", [0.2, 0.39]),
            "control_accuracy": 0.14,
            "majority_accuracy": 0.13,
            "questions": (("function", "split"), np.full((n, 2), 20)),
        },
        function=functions,
        wording=["question", "answer"],
        split=["train", "test"],
    ).assign_attrs(method="probe", data="pr0be", k=5)


def maps(relations: tuple[str, str] = ("country_to_capital", "copying"), **sizes: int) -> xr.Dataset:
    score = scores(2, 2, **sizes)
    member = np.zeros((4, *score.shape[1:]), bool)
    member[0, 0, 0] = member[1, 0, :2] = member[:, 1, 2] = True
    return dataset(
        {
            "score": (("relation", "layer", "head"), score),
            "suppression": (("relation", "layer", "head"), np.where(np.isnan(score), np.nan, 0.0)),
            "member": (("category", "layer", "head"), member),
        },
        relation=list(relations),
        category_name=("category", ["Algorithmic", "Knowledge", "Linguistic", "Translation"]),
    ).assign_attrs(method="maps", threshold=0.15, data="m4ps")


def gate(tasks: tuple[str, ...] = ("math", "syntax"), **sizes: int) -> xr.Dataset:
    n, dims = len(tasks), ("task", "seed", "layer", "head")
    roles = {
        name: scores(3 + i, n, 2, **sizes) for i, name in enumerate(("facilitation", "interference", "irrelevance"))
    }
    return dataset(
        {name: (dims, values) for name, values in roles.items()}
        | {
            "always": (("task", "layer", "head"), roles["facilitation"].min(1)),
            "any": (("task", "layer", "head"), roles["facilitation"].max(1)),
            "baseline": ("task", np.full(n, -3.0)),
        },
        task=list(tasks),
    ).assign_attrs(method="gate")


def ablate() -> xr.Dataset:
    return dataset(
        {"contribution": (("task", "layer", "head"), scores(7, 2) - 0.5)}, task=["math", "syntax"]
    ).assign_attrs(method="ablate")


def salient(token: str = " Paris", layers: int = LAYERS, heads: int = HEADS) -> xr.Dataset:
    dims, shape = ("layer", "head", "rank", "output"), (layers, heads, 2, 2)
    return dataset(
        {
            "token": (dims[:3], np.array([token] * (layers * heads * 2), dtype=object).reshape(shape[:3])),
            "amplification": (dims[:3], np.full(shape[:3], 7.0)),
            "strongest": (dims, np.full(shape, " France", object)),
            "suppressed": (dims, np.full(shape, " Rome", object)),
        }
    ).assign_attrs(method="salient")


def dissociate(functions: list[str] = FUNCTIONS) -> xr.Dataset:
    n = len(functions)
    importance = scores(8, n)
    importance /= np.nansum(importance, (1, 2), keepdims=True)
    return dataset({"importance": (("function", "layer", "head"), importance)}, function=functions).assign_attrs(
        method="dissociate"
    )


def atlas() -> dict[str, xr.Dataset]:
    """All results, with tests; of each method the first subject is supported, the second not supported."""
    made = {"maps": maps(), "gate": gate(), "probe": probe(), "ablate": ablate(), "salient": salient()}
    return with_tests(made | {"dissociate": dissociate()})
