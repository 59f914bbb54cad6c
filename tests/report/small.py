"""A small invented atlas, to test what the page shows of it: 4 layers of 3 heads; layer 2 has none."""

import numpy as np
import xarray as xr

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
    draws = np.random.default_rng(1).normal(-1, 0.1, (n, 2, 9, 1))
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
            "baseline": (("function", "measure"), np.full((n, 1), -1.0)),
            "effect": (("function", "n_removed", "measure"), np.tile([[[-2.0], [-3.0]]], (n, 1, 1))),
            "lowest_effect": (("function", "n_removed", "measure"), np.tile([[[0.0], [-0.5]]], (n, 1, 1))),
            "random_effect": (("function", "n_removed", "draw", "measure"), draws),
            "p": (("function", "n_removed"), np.full((n, 2), 0.1)),
        },
        function=functions,
        wording=["question", "answer"],
        split=["train", "test"],
        measure=["log_p"],
        n_removed=[1, 3],
    ).assign_attrs(method="probe", data="pr0be", k=5)


def maps(relations: tuple[str, str] = ("country_to_capital", "copying"), **sizes: int) -> xr.Dataset:
    score = scores(2, 2, **sizes)
    dims = ("relation", "n_removed", "measure")
    member = np.zeros((4, *score.shape[1:]), bool)
    member[0, 0, 0] = member[1, 0, :2] = member[:, 1, 2] = True
    return dataset(
        {
            "score": (("relation", "layer", "head"), score),
            "suppression": (("relation", "layer", "head"), np.where(np.isnan(score), np.nan, 0.0)),
            "member": (("category", "layer", "head"), member),
            "effect": (dims, np.full((2, 1, 2), -0.8)),
            "other_effect": (dims, np.full((2, 1, 2), -0.05)),
            "random_effect": ((*dims[:2], "draw", "measure"), np.full((2, 1, 3, 2), -0.1)),
            "p": (dims[:2], np.full((2, 1), 0.25)),
            "p_corrected": (dims[:2], np.full((2, 1), 0.5)),
            "baseline": (("relation", "measure"), np.full((2, 2), 0.9)),
        },
        relation=list(relations),
        n_removed=[2],
        measure=["accuracy", "log_p"],
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
            "effect": (("task", "role", "n_removed"), np.full((n, 1, 1), -2.0)),
            "random_effect": (("task", "role", "n_removed", "draw"), np.full((n, 1, 1, 4), -1.0)),
            "p": (("task", "role", "n_removed"), np.full((n, 1, 1), 0.2)),
            "baseline": ("task", np.full(n, -3.0)),
        },
        task=list(tasks),
        role=["facilitation"],
        n_removed=[2],
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
    other = np.full((n, n), -0.05)
    np.fill_diagonal(other, np.nan)
    importance = scores(8, n)
    return dataset(
        {
            "importance": (("function", "layer", "head"), importance / np.nansum(importance, (1, 2), keepdims=True)),
            "n_removed": ("function", [2] * (n - 1) + [0]),
            "effect": ("function", [-1.25] * (n - 1) + [np.nan]),
            "other_effect": (("function", "other"), other),
            "random_effect": (("function", "draw"), np.full((n, 3), -0.5)),
            "p_corrected": ("function", [0.01] * (n - 1) + [np.nan]),
            "proven": ("function", [True] * (n - 1) + [False]),
            "verdict": ("function", ["heads of its own"] * (n - 1) + ["none found"]),
        },
        function=functions,
        other=functions,
    ).assign_attrs(method="dissociate")


def atlas() -> dict[str, xr.Dataset]:
    return {"maps": maps(), "gate": gate(), "probe": probe(), "ablate": ablate(), "salient": salient()} | {
        "dissociate": dissociate()
    }
