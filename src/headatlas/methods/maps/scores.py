"""The scores of `maps` from the pairs that heads hit: steps 2 to 6."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headatlas.errors import BadFile
from headatlas.methods.maps.chance import chance_level
from headatlas.methods.maps.pairs import ChosenPairs, Pairs, choose_k
from headatlas.methods.maps.ranks import Vocabulary, extremes, sizes
from headatlas.methods.maps.reading import BASELINES, Reading
from headatlas.models.families import Anatomy
from headatlas.models.loading import Parameters
from headatlas.models.weights import Weights
from headatlas.progress import Done, Progress, silent
from headatlas.tasks.relations import Relation, categories


@dataclass(frozen=True)
class Settings:
    """How relations are scored, and checked: on up to so many pairs (`dynamic`) and prompts (`causal`) of each.

    baselines: what is scored beside the model's own heads (`reading`).
    """

    reading: Reading
    k: int | Literal["auto"] = "auto"
    threshold: float = 0.15
    min_pairs: int = 30
    baselines: tuple[str, ...] = BASELINES
    seed: int = 0
    dynamic: int = 0
    causal: int = 0


def score_layers(
    model: Parameters,
    chosen: ChosenPairs,
    settings: Settings,
    layers: Sequence[int],
    *,
    done: Done,
    progress: Progress = silent,
) -> None:
    """A part of the work: what the heads of these layers hit, the model's own and the baselines', into `done`."""
    hit_in_layers(
        model.weights,
        chosen.named(settings.baselines, settings.seed),
        settings.reading,
        layers,
        done,
        device=model.device,
        seed=settings.seed,
        progress=lambda items, label: progress(items, f"{label}, layers {layers[0]} to {layers[-1]}"),
    )


def hits(
    weights: Weights,
    pairs: Pairs,
    reading: Reading,
    *,
    device: torch.device | str = "cpu",
    seed: int = 0,
    progress: Progress = silent,
) -> tuple[np.ndarray, np.ndarray]:
    """Steps 2 to 4: which pairs every head hits and suppresses, two bool arrays [layer, head, pair]."""
    anatomy, done = weights.anatomy, cast(Done, {})
    layers = anatomy.layers_with_heads
    hit_in_layers(weights, {"maps": pairs}, reading, layers, done, device=device, seed=seed, progress=progress)
    return collect(done, "maps", anatomy, len(pairs))


def collect(done: Done, name: str, anatomy: Anatomy, n_pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """What `hit_in_layers` left of all layers: two bool arrays [layer, head, pair], False where there are no heads."""
    hit, suppressed = np.zeros((2, anatomy.n_layers, anatomy.n_heads, n_pairs), dtype=bool)
    for layer in anatomy.layers_with_heads:
        hit[layer], suppressed[layer] = done[f"{name} layer {layer}"]
    return hit, suppressed


@torch.no_grad()
def hit_in_layers(
    weights: Weights,
    pairs: dict[str, Pairs],
    reading: Reading,
    layers: Sequence[int],
    done: Done,
    *,
    device: torch.device | str = "cpu",
    seed: int = 0,
    progress: Progress = silent,
) -> None:
    """`hits` of some layers, [head, pair] each, into `done` as 'NAME layer 3'.

    pairs: by name what is scored: 'maps', the model's own heads, and any of the `BASELINES`.
    """
    missing = [i for i in layers if any(f"{name} layer {i}" not in done for name in pairs)]
    if not missing:
        return
    rows = weights.unembedding().T.to(device)
    dtype = torch.promote_types(rows.dtype, torch.float32)
    # A float32 copy of U buys speed; a large one on a CPU would be most of the memory.
    vocabulary = Vocabulary(rows, dtype, seed, keep=rows.is_cuda or rows.numel() * 4 <= 1 << 30)
    sources, place = torch.cat([p.source for p in pairs.values()]).unique(return_inverse=True)
    where = dict(zip(pairs, place.to(device).split([len(p) for p in pairs.values()]), strict=True))
    waiting: dict[str, list[tuple[int, Tensor, Tensor]]] = {name: [] for name in pairs}  # layer, z, W_O
    checks: list[tuple[str, list[Tensor], Tensor]] = []

    def check(what: str, *tensors: Tensor) -> None:
        checks.append((what, [*tensors], torch.stack([torch.isfinite(t).all() for t in tensors]).all()))

    def score(layer: int, x: Tensor) -> None:
        """x [source, d]: what the heads of a layer get of every source token."""
        x = x.to(device, dtype)
        check(f"what enters layer {layer}'s attention", x)
        for name in pairs:
            value, output = reading.heads(weights, name, layer, x, seed)
            check(f"layer {layer}'s W_V or W_O", value, output)
            z = value[:, where[name]].repeat_interleave(weights.anatomy.n_heads // len(value), dim=0)
            waiting[name].append((layer, z, output))
            if len(waiting[name]) == sizes(rows).layers:
                decide(name)

    def decide(name: str) -> None:
        """What the heads of the waiting layers hit."""
        _tell_bad(checks)
        layers, z, W_O = zip(*waiting[name], strict=True)
        target, k = pairs[name].target.to(device), pairs[name].k.to(device)
        both = extremes(joined(z), joined(W_O), target, k, vocabulary)
        top, bottom = (hit.unflatten(0, (len(layers), -1)).cpu().numpy() for hit in both)
        done.update({f"{name} layer {layer}": (top[i], bottom[i]) for i, layer in enumerate(layers)})
        waiting[name].clear()
        checks.clear()

    reading.each_layer(weights, sources, missing, score, device, progress)
    for name in pairs:
        if waiting[name]:
            decide(name)


def joined(parts: Sequence[Tensor]) -> Tensor:
    """One after the other; no copy of one alone."""
    return parts[0] if len(parts) == 1 else torch.cat([*parts])


def _tell_bad(checks: list[tuple[str, list[Tensor], Tensor]]) -> None:
    """checks: what it is, tensors, whether they are finite."""
    if not checks or torch.stack([fine for _, _, fine in checks]).all():
        return
    what, tensors = next((what, tensors) for what, tensors, fine in checks if not fine)
    bad, total = sum(int((~torch.isfinite(t)).sum()) for t in tensors), sum(t.numel() for t in tensors)
    raise BadFile(f"{what}: {bad} of {total} numbers are NaN or infinite, so no head can be scored")


def shares(hit: np.ndarray, pairs: Pairs, n_relations: int, anatomy: Anatomy) -> np.ndarray:
    """Step 5: the share of each relation's pairs, [relation, layer, head]; NaN without pairs or without heads."""
    belongs = np.eye(n_relations, dtype=np.float32)[pairs.relation.numpy()]  # [pair, relation]
    counts = belongs.sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.moveaxis(hit.astype(np.float32) @ belongs, -1, 0) / counts[:, None, None]
    share[:, anatomy.layers_without_heads] = np.nan
    return share.astype(np.float32)


def members(score: np.ndarray, suppression: np.ndarray, category: Sequence[str], threshold: float) -> np.ndarray:
    """Step 6: [category, layer, head]; NaN scores count for nothing."""
    reached = np.fmax(np.nan_to_num(score, nan=-1), np.nan_to_num(suppression, nan=-1)) >= threshold
    return np.stack([reached[[c == wanted for c in category]].any(axis=0) for wanted in categories(category)])


def score_relations(
    model: Parameters,
    relations: Sequence[Relation],
    chosen: ChosenPairs,
    settings: Settings,
    done: Done | None = None,
) -> xr.Dataset:
    """The map of a model; why relations were left out is in `left_out`. Layers in `done` are not scored again."""
    done = cast(Done, {}) if done is None else done
    weights, n = model.weights, len(relations)
    score_layers(model, chosen, settings, weights.anatomy.layers_with_heads, done=done)
    (score, suppression), multi = _own_shares(done, chosen, n, weights.anatomy)
    beside = _baseline_shares(done, chosen, n, weights.anatomy, settings.baselines)
    category = [r.category for r in relations]
    member, from_multi = _category_members((score, suppression), multi, category, settings.threshold)
    size = weights.unembedding().shape[1]
    k = np.array([choose_k(r.name, size, settings.k) for r in relations])
    dims = ("relation", "layer", "head")
    return xr.Dataset(
        {
            "score": (dims, score),
            "suppression": (dims, suppression),
            "pairs": ("relation", chosen.count),
            "score_multi": (dims, multi[0]),
            "suppression_multi": (dims, multi[1]),
            "pairs_multi": ("relation", chosen.count_multi),
            "multi_token": ("relation", chosen.parts),
            "left_out": ("relation", _left_out(relations, chosen.count, settings.min_pairs)),
            "k": ("relation", k),
            "member": (("category", "layer", "head"), member),
            "member_from_multi": ("category", from_multi),
            "baseline_score": (("control", *dims), beside[:, 0]),
            "baseline_suppression": (("control", *dims), beside[:, 1]),
            "chance": ("relation", chance_level(beside[:, 0], chosen.count, k, size)),
            "chance_suppression": ("relation", chance_level(beside[:, 1], chosen.count, k, size)),
        },
        coords={
            "relation": [r.name for r in relations],
            "category": ("relation", category),
            "category_name": ("category", list(categories(category))),
            "control": list(settings.baselines),
            "layer": range(weights.anatomy.n_layers),
            "head": range(weights.anatomy.n_heads),
        },
    )


def _own_shares(done: Done, chosen: ChosenPairs, n: int, anatomy: Anatomy) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """[score, suppression] of single-token pairs, and of multi-token pairs; [relation, layer, head] each."""
    once, index = chosen.once
    single = len(chosen.used)
    both = [hit[..., index.numpy()] for hit in collect(done, "maps", anatomy, len(once))]
    return (
        [shares(hit[..., :single], chosen.used, n, anatomy) for hit in both],
        [shares(hit[..., single:], chosen.used_multi, n, anatomy) for hit in both],
    )


def _baseline_shares(done: Done, chosen: ChosenPairs, n: int, anatomy: Anatomy, baselines: Sequence[str]) -> np.ndarray:
    """[baseline, score and suppression, relation, layer, head]"""
    pairs = chosen.used
    each = [[shares(hit, pairs, n, anatomy) for hit in collect(done, b, anatomy, len(pairs))] for b in baselines]
    return np.array(each, dtype=np.float32).reshape(len(baselines), 2, n, anatomy.n_layers, anatomy.n_heads)


def _category_members(
    single: Sequence[np.ndarray], multi: Sequence[np.ndarray], category: Sequence[str], threshold: float
) -> tuple[np.ndarray, np.ndarray]:
    """`members`, and which categories had to be taken from multi-token pairs, for they would be empty otherwise."""
    member, member_multi = (members(score, other, category, threshold) for score, other in (single, multi))
    from_multi = np.asarray(~member.any(axis=(1, 2)) & member_multi.any(axis=(1, 2)))
    member[from_multi] = member_multi[from_multi]
    return member, from_multi


def _left_out(relations: Sequence[Relation], count: np.ndarray, min_pairs: int) -> np.ndarray:
    reasons = [
        "" if c >= min_pairs else f"{c} of {len(r.pairs)} pairs are one token on both sides, {min_pairs} are needed"
        for r, c in zip(relations, count, strict=True)
    ]
    return np.array(reasons, dtype=object)
