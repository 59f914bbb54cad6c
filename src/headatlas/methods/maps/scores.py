"""maps: what every head does, from its parameters alone.

After MAPS (Elhelo & Geva, ACL 2025, arXiv 2412.11965). No data, no loaded model.

1. A pair (s, t) of a relation is used when, behind a space, both are one token; a relation when enough pairs remain. Where they
   do not, a relation that allows it goes by the last token of s and the first of t.
2. x is what the head gets of s: by default what the model itself has there behind a short opening; the published choices
   are block 0's MLP of E[s], or E[s] itself (`reading`).
3. The head turns x into logits, x · W_V · W_O · U (`reading` says with which biases and norms).
4. The pair is hit when t is among the k largest of these, suppressed when among the k smallest (`ranks` decides it).
5. A relation's score is the share of its pairs that are hit; its suppression the share suppressed.
6. A head belongs to a category when a score or suppression of one of its relations reaches the threshold.

Beside it, the weaker multi-token score (last token of s, first token of t, over all pairs), and baselines that show what
scores chance gives (`reading`). From them, for each relation, the highest score that chance explains (`chance_level`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headatlas.errors import BadArgument, BadFile
from headatlas.methods.maps.chance import chance_level
from headatlas.methods.maps.ranks import Vocabulary, extremes
from headatlas.methods.maps.reading import BASELINES, Reading
from headatlas.models.families import Anatomy
from headatlas.models.weights import Weights
from headatlas.progress import Done, Progress, silent
from headatlas.tasks.relations import COPYING, Relation, categories
from headatlas.tasks.words import word_ids

LARGE_VOCABULARY = 100_000
MIN_TARGET_LETTERS = 3  # a multi-token target's first token must say something: not " n" for "nación"


@dataclass(frozen=True)
class Pairs:
    """Token pairs of several relations: which relation each belongs to, its source and target token, and its k. [n] each."""

    relation: Tensor
    source: Tensor
    target: Tensor
    k: Tensor

    def __len__(self) -> int:
        return len(self.source)

    def __add__(self, other: "Pairs") -> "Pairs":
        return Pairs(*(torch.cat(both) for both in zip(vars(self).values(), vars(other).values(), strict=True)))

    def __getitem__(self, keep: Tensor) -> "Pairs":
        return Pairs(*(t[keep] for t in vars(self).values()))

    def with_targets_shuffled(self, seed: int) -> "Pairs":
        """Every relation's targets dealt out anew among its sources."""
        generator = torch.Generator().manual_seed(seed)
        dealt = torch.rand(len(self), generator=generator).argsort()
        target = self.target.clone()
        target[self.relation.argsort(stable=True)] = self.target[dealt[self.relation[dealt].argsort(stable=True)]]
        return replace(self, target=target)

    def unique(self) -> tuple["Pairs", Tensor]:
        """Every (source, target, k) once, whatever its relation, and where each of these pairs is among them."""
        table = torch.stack([torch.zeros_like(self.source), self.source, self.target, self.k], dim=1)
        once, index = torch.unique(table, dim=0, return_inverse=True)
        return Pairs(*once.T), index


def choose_k(relation: str, vocabulary: int, k: int | Literal["auto"]) -> int:
    """10, or 1 for copying; for vocabularies over 100,000 tokens 25, or 3."""
    if k != "auto":
        return k
    small, large = (1, 3) if relation in COPYING else (10, 25)
    return large if vocabulary > LARGE_VOCABULARY else small


def single_token_pairs(
    relations: Sequence[Relation], tokenizer: Any, vocabulary: int, k: int | Literal["auto"]
) -> Pairs:
    """Step 1: pairs of one token each."""
    rows = [
        (i, s[0], t[0], choose_k(relation.name, vocabulary, k))
        for i, relation in enumerate(relations)
        for s, t in _encoded(relation, tokenizer)
        if len(s) == len(t) == 1
    ]
    return _as_pairs(rows)


def multi_token_pairs(
    relations: Sequence[Relation], tokenizer: Any, vocabulary: int, k: int | Literal["auto"]
) -> Pairs:
    """All pairs, source = last token, target = first token, each token pair once; targets that say nothing left out."""
    rows = [
        (i, s[-1], t[0], choose_k(relation.name, vocabulary, k))
        for i, relation in enumerate(relations)
        for s, t in _encoded(relation, tokenizer)
        if (relation.name in COPYING or s[-1] != t[0])
        and (len(t) == 1 or len(tokenizer.decode(t[:1]).strip()) >= MIN_TARGET_LETTERS)
    ]
    return _as_pairs(list(dict.fromkeys(rows)))


def _encoded(relation: Relation, tokenizer: Any) -> list[tuple[list[int], list[int]]]:
    """Token ids of both sides of each pair the tokenizer knows."""
    sources, targets = (word_ids(tokenizer, words) for words in zip(*relation.pairs, strict=True))
    return [(s, t) for s, t in zip(sources, targets, strict=True) if s and t]


def _as_pairs(rows: list[tuple[int, int, int, int]]) -> Pairs:
    table = torch.tensor(rows, dtype=torch.long).reshape(-1, 4)
    return Pairs(*table.T)


def drop_small(pairs: Pairs, n_relations: int, min_pairs: int) -> Pairs:
    """Without the relations that have too few pairs to be scored."""
    enough = torch.bincount(pairs.relation, minlength=n_relations) >= min_pairs
    return pairs[enough[pairs.relation]]


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
    layers = [i for i, site in enumerate(anatomy.sites) if site is not None]
    hit_in_layers(weights, {"maps": pairs}, reading, layers, done, device=device, seed=seed, progress=progress)
    return collect(done, "maps", anatomy, len(pairs))


def collect(done: Done, name: str, anatomy: Anatomy, n_pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """What `hit_in_layers` left for all layers: two bool arrays [layer, head, pair], False where a layer has no heads."""
    hit, suppressed = np.zeros((2, anatomy.n_layers, anatomy.n_heads, n_pairs), dtype=bool)
    for layer in [i for i, site in enumerate(anatomy.sites) if site is not None]:
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
    where = dict(zip(pairs, place.split([len(p) for p in pairs.values()]), strict=True))

    def score(layer: int, x: Tensor) -> None:
        """x [source, d]: what the heads of a layer get of every source token."""
        x = x.to(device, dtype)
        _check_finite(f"what enters layer {layer}'s attention", x)
        for name, some in pairs.items():
            value, output = reading.heads(weights, name, layer, x, seed)
            _check_finite(f"layer {layer}'s W_V or W_O", value, output)
            z = value[:, where[name].to(device)].repeat_interleave(weights.anatomy.n_heads // len(value), dim=0)
            top, bottom = extremes(z, output, some.target.to(device), some.k.to(device), vocabulary)
            done[f"{name} layer {layer}"] = top.cpu().numpy(), bottom.cpu().numpy()

    reading.each_layer(weights, sources, missing, score, device, progress)


def _check_finite(what: str, *tensors: Tensor) -> None:
    for tensor in tensors:
        bad = int((~torch.isfinite(tensor)).sum())
        if bad:
            raise BadFile(f"{what}: {bad} of {tensor.numel()} numbers are NaN or infinite, so no head can be scored")


def shares(hit: np.ndarray, pairs: Pairs, n_relations: int, anatomy: Anatomy) -> np.ndarray:
    """Step 5: the share of each relation's pairs, [relation, layer, head]; NaN without pairs or without heads."""
    belongs = np.eye(n_relations, dtype=np.float32)[pairs.relation.numpy()]  # [pair, relation]
    counts = belongs.sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.moveaxis(hit.astype(np.float32) @ belongs, -1, 0) / counts[:, None, None]
    share[:, [i for i, site in enumerate(anatomy.sites) if site is None]] = np.nan
    return share.astype(np.float32)


def members(score: np.ndarray, suppression: np.ndarray, category: Sequence[str], threshold: float) -> np.ndarray:
    """Step 6: [category, layer, head]; NaN scores count for nothing."""
    reached = np.fmax(np.nan_to_num(score, nan=-1), np.nan_to_num(suppression, nan=-1)) >= threshold
    return np.stack([reached[[c == wanted for c in category]].any(axis=0) for wanted in categories(category)])


def check_settings(k: int | Literal["auto"], threshold: float) -> None:
    if not 0 < threshold <= 1:
        raise BadArgument(f"threshold is {threshold}, expected more than 0 and at most 1")
    if k != "auto" and k < 1:
        raise BadArgument(f"k is {k}, expected 'auto' or at least 1")


@dataclass(frozen=True)
class Asked:
    """The pairs of some relations: of one token on both sides, and of several; how many of each relation [relation] there are,
    and those of the relations that have enough. parts [relation]: whether several tokens had to do instead of one."""

    count: np.ndarray
    count_multi: np.ndarray
    used: Pairs
    used_multi: Pairs
    parts: np.ndarray

    @cached_property
    def once(self) -> tuple[Pairs, Tensor]:
        """Every pair that is scored, once, and where those of `used` and then `used_multi` are among them."""
        return (self.used + self.used_multi).unique()

    def named(self, baselines: Iterable[str], seed: int) -> dict[str, Pairs]:
        """What `hit_in_layers` scores: 'maps', and each baseline's pairs."""
        shuffled = self.used.with_targets_shuffled(seed)
        return {"maps": self.once[0]} | {b: shuffled if b == "targets" else self.used for b in baselines}


def asked_of(
    weights: Weights,
    tokenizer: Any,
    relations: Sequence[Relation],
    k: int | Literal["auto"] = "auto",
    min_pairs: int = 30,
) -> Asked:
    """Step 1 for a model's tokenizer."""
    size, n = weights.unembedding().shape[1], len(relations)
    single = single_token_pairs(relations, tokenizer, size, k)
    multi = multi_token_pairs(relations, tokenizer, size, k)
    allowed = torch.tensor([r.multi_token == "last-first" for r in relations])
    parts = allowed & (torch.bincount(single.relation, minlength=n) < min_pairs)
    single = single[~parts[single.relation]] + multi[parts[multi.relation]]
    count, count_multi = (torch.bincount(p.relation, minlength=n).numpy() for p in (single, multi))
    used, used_multi = drop_small(single, n, min_pairs), drop_small(multi, n, min_pairs)
    if not len(used) and not len(used_multi):
        raise BadArgument(
            f"relations: none of the {n} has {min_pairs} pairs left (the most is {max(count.max(), count_multi.max())}):"
            " a pair counts when both words are one token behind a space"
        )
    return Asked(count, count_multi, used, used_multi, parts.numpy())


def score_relations(
    weights: Weights,
    tokenizer: Any,
    relations: Sequence[Relation],
    reading: Reading,
    *,
    k: int | Literal["auto"] = "auto",
    threshold: float = 0.15,
    min_pairs: int = 30,
    baselines: Sequence[str] = BASELINES,
    device: torch.device | str = "cpu",
    seed: int = 0,
    done: Done | None = None,
    progress: Progress = silent,
) -> xr.Dataset:
    """The map of a model: variables as in the contract's maps.nc, with what was left out and why in `left_out`.

    `done` keeps finished layers, so that interrupted work goes on where it was (a dict, or one that lives on disk).
    """
    check_settings(k, threshold)
    asked, n, anatomy = asked_of(weights, tokenizer, relations, k, min_pairs), len(relations), weights.anatomy
    done = cast(Done, {}) if done is None else done
    layers = [i for i, site in enumerate(anatomy.sites) if site is not None]
    pairs = asked.named(baselines, seed)
    hit_in_layers(weights, pairs, reading, layers, done, device=device, seed=seed, progress=progress)
    size, used, used_multi = weights.unembedding().shape[1], asked.used, asked.used_multi
    index = asked.once[1].numpy()
    hit, suppressed = (found[..., index] for found in collect(done, "maps", anatomy, len(pairs["maps"])))
    score, suppression = (shares(a[..., : len(used)], used, n, anatomy) for a in (hit, suppressed))
    score_multi, suppression_multi = (shares(a[..., len(used) :], used_multi, n, anatomy) for a in (hit, suppressed))

    category = [r.category for r in relations]
    member = members(score, suppression, category, threshold)
    member_multi = members(score_multi, suppression_multi, category, threshold)
    from_multi = ~member.any(axis=(1, 2)) & member_multi.any(axis=(1, 2))  # a category that would stay empty otherwise
    member[from_multi] = member_multi[from_multi]

    dims = ("relation", "layer", "head")
    names = list(baselines)
    by_chance = [collect(done, b, anatomy, len(used)) for b in names]
    baseline = np.array([[shares(a, used, n, anatomy) for a in both] for both in by_chance], dtype=np.float32)
    baseline = baseline.reshape(len(names), 2, *score.shape)  # hits, suppressed
    ks = np.array([choose_k(r.name, size, k) for r in relations])
    reasons = [
        "" if c >= min_pairs else f"{c} of {len(r.pairs)} pairs are one token on both sides, {min_pairs} are needed"
        for r, c in zip(relations, asked.count, strict=True)
    ]
    return xr.Dataset(
        {
            "score": (dims, score),
            "suppression": (dims, suppression),
            "pairs": ("relation", asked.count),
            "score_multi": (dims, score_multi),
            "suppression_multi": (dims, suppression_multi),
            "pairs_multi": ("relation", asked.count_multi),
            "multi_token": ("relation", asked.parts),
            "left_out": ("relation", np.array(reasons, dtype=object)),
            "k": ("relation", ks),
            "member": (("category", "layer", "head"), member),
            "member_from_multi": ("category", from_multi),
            "baseline_score": (("baseline", *dims), baseline[:, 0]),
            "baseline_suppression": (("baseline", *dims), baseline[:, 1]),
            "chance": ("relation", chance_level(baseline[:, 0], asked.count, ks, size)),
            "chance_suppression": ("relation", chance_level(baseline[:, 1], asked.count, ks, size)),
        },
        coords={
            "relation": [r.name for r in relations],
            "category": ("relation", category),
            "category_name": ("category", list(categories(category))),
            "baseline": names,
            "layer": range(anatomy.n_layers),
            "head": range(anatomy.n_heads),
        },
    )
