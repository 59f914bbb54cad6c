"""maps: what every head does, from its parameters alone.

After MAPS (Elhelo & Geva, ACL 2025, arXiv 2412.11965). No inference, no loaded model.

1. A pair (s, t) of a relation is used when, behind a space, both are one token; a relation when enough pairs remain.
2. x = E[s] for layer 0, and block 0's MLP of E[s] (on its own norm, without the residual) for every later layer.
3. Head (l, h) maps x to x · W_V · W_O · U. No norm, no folding, no biases: raw weights.
4. The pair is hit when t is among the k largest of these, suppressed when among the k smallest (`ranks` decides it).
5. A relation's score is the share of its pairs that are hit; its suppression the share suppressed.
6. A head belongs to a category when a score or suppression of one of its relations reaches the threshold.

Beside it, the weaker multi-token score (last token of s, first token of t, over all pairs), and two baselines that show what
scores chance gives: the model with its W_O shuffled over heads and layers, and a randomly initialised copy.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headatlas.errors import BadArgument, BadFile
from headatlas.methods.ranks import Vocabulary, extremes
from headatlas.models.families import Anatomy
from headatlas.progress import Done, Progress, silent
from headatlas.tasks.relations import COPYING, Relation, categories
from headatlas.tasks.words import word_ids

LARGE_VOCABULARY = 100_000
MIN_TARGET_LETTERS = 3  # a multi-token target's first token must say something: not " n" for "nación"


class HeadWeights(Protocol):
    """What maps reads of a model: `Weights`, or a baseline made from one."""

    @property
    def anatomy(self) -> Anatomy: ...
    def value(self, layer: int) -> Tensor: ...
    def output(self, layer: int) -> Tensor: ...
    def embedding(self) -> Tensor: ...
    def unembedding(self) -> Tensor: ...
    def first_mlp(self, x: Tensor) -> Tensor: ...


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
    weights: HeadWeights,
    pairs: Pairs,
    *,
    first_mlp: bool = True,
    device: torch.device | str = "cpu",
    seed: int = 0,
    done: Done | None = None,
    progress: Progress = silent,
    label: str = "maps",
) -> tuple[np.ndarray, np.ndarray]:
    """Steps 2 to 4: which pairs every head hits and suppresses, two bool arrays [layer, head, pair].

    `done` keeps finished layers, so that interrupted work goes on where it was (a dict, or one that lives on disk).
    """
    anatomy = weights.anatomy
    done = {} if done is None else done
    layers = [i for i, site in enumerate(anatomy.sites) if site is not None]
    options: dict[str, Any] = {"first_mlp": first_mlp, "device": device, "seed": seed, "progress": progress}
    hit_in_layers(weights, pairs, layers, done, label=label, **options)
    shape = (anatomy.n_layers, anatomy.n_heads, len(pairs))
    hit, suppressed = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    for layer in layers:
        hit[layer], suppressed[layer] = done[f"{label} layer {layer}"]
    return hit, suppressed


def hit_in_layers(
    weights: HeadWeights,
    pairs: Pairs,
    layers: Sequence[int],
    done: Done,
    *,
    first_mlp: bool = True,
    device: torch.device | str = "cpu",
    seed: int = 0,
    progress: Progress = silent,
    label: str = "maps",
) -> None:
    """`hits` of some layers, [head, pair] each, into `done`; reads no other layer's weights."""
    anatomy = weights.anatomy
    missing = [layer for layer in layers if f"{label} layer {layer}" not in done]
    if missing:
        embedding = weights.embedding()
        embedded = embedding[pairs.source.to(embedding.device)]
        del embedding
        dtype = torch.float64 if embedded.dtype == torch.float64 else torch.float32
        embedded = embedded.to(dtype)
        later = (weights.first_mlp(embedded) if first_mlp else embedded).to(device)
        embedded = embedded.to(device)
        rows = weights.unembedding().T.to(device)
        _check_finite("the embeddings or the first MLP", later)
        # A float32 copy of U buys speed; a large one on a CPU would be most of the memory.
        vocabulary = Vocabulary(rows, dtype, seed, keep=rows.is_cuda or rows.numel() * 4 <= 1 << 30)
        target, k = pairs.target.to(device), pairs.k.to(device)
        for layer in progress(missing, label):
            value, output = weights.value(layer).to(device, dtype), weights.output(layer).to(device, dtype)
            _check_finite(f"layer {layer}'s W_V or W_O", value, output)
            z = (embedded if layer == 0 else later) @ value  # [KV head, n, d_head]
            z = z.repeat_interleave(anatomy.n_heads // anatomy.n_kv_heads, dim=0)
            top, bottom = extremes(z, output, target, k, vocabulary)
            done[f"{label} layer {layer}"] = top.cpu().numpy(), bottom.cpu().numpy()


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


@dataclass(frozen=True)
class Shuffled:
    """The same model with every head's W_O exchanged for that of another head in another layer."""

    weights: HeadWeights
    seed: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.weights, name)

    def output(self, layer: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        layers = [i for i, site in enumerate(self.weights.anatomy.sites) if site is not None]
        shift = 1 + int(torch.randint(max(len(layers) - 1, 1), (1,), generator=generator))
        other = layers[(layers.index(layer) + shift) % len(layers)]
        generator.manual_seed(self.seed * 1_000_003 + layer)
        theirs = self.weights.output(other)
        return theirs[torch.randperm(len(theirs), generator=generator).to(theirs.device)]


@dataclass(frozen=True)
class Randomised:
    """A copy whose W_V, W_O, E and U are drawn anew, each with its own spread. Tied embeddings stay tied; no MLP comes first."""

    weights: HeadWeights
    seed: int = 0

    @property
    def anatomy(self) -> Anatomy:
        return self.weights.anatomy

    def _like(self, tensor: Tensor, salt: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + salt)
        noise = torch.randn(tensor.shape, generator=generator).to(tensor.device)
        return noise * tensor.float().std()

    def value(self, layer: int) -> Tensor:
        return self._like(self.weights.value(layer), 2 * layer + 2)

    def output(self, layer: int) -> Tensor:
        return self._like(self.weights.output(layer), 2 * layer + 3)

    def embedding(self) -> Tensor:
        return self._like(self.weights.embedding(), 0)

    def unembedding(self) -> Tensor:
        tied = self.weights.embedding().data_ptr() == self.weights.unembedding().data_ptr()
        return self.embedding().T if tied else self._like(self.weights.unembedding().T, 1).T

    def first_mlp(self, x: Tensor) -> Tensor:
        return x


BASELINES: dict[str, Callable[[HeadWeights, int], HeadWeights]] = {"shuffled": Shuffled, "random": Randomised}


def check_settings(k: int | Literal["auto"], threshold: float) -> None:
    if not 0 < threshold <= 1:
        raise BadArgument(f"threshold is {threshold}, expected more than 0 and at most 1")
    if k != "auto" and k < 1:
        raise BadArgument(f"k is {k}, expected 'auto' or at least 1")


@dataclass(frozen=True)
class Asked:
    """The pairs of some relations: of one token on both sides, and of several; how many of each relation [relation] there are,
    and those of the relations that have enough."""

    count: np.ndarray
    count_multi: np.ndarray
    used: Pairs
    used_multi: Pairs


def asked_of(
    weights: HeadWeights,
    tokenizer: Any,
    relations: Sequence[Relation],
    k: int | Literal["auto"] = "auto",
    min_pairs: int = 30,
) -> Asked:
    """Step 1 for a model's tokenizer."""
    size, n = weights.unembedding().shape[1], len(relations)
    single = single_token_pairs(relations, tokenizer, size, k)
    multi = multi_token_pairs(relations, tokenizer, size, k)
    count, count_multi = (torch.bincount(p.relation, minlength=n).numpy() for p in (single, multi))
    used, used_multi = drop_small(single, n, min_pairs), drop_small(multi, n, min_pairs)
    if not len(used) and not len(used_multi):
        raise BadArgument(
            f"relations: none of the {n} has {min_pairs} pairs left (the most is {max(count.max(), count_multi.max())}):"
            " a pair counts when both words are one token behind a space"
        )
    return Asked(count, count_multi, used, used_multi)


def score_layers(
    weights: HeadWeights,
    asked: Asked,
    layers: Sequence[int],
    done: Done,
    *,
    first_mlp: bool = True,
    baseline: str = "",
    device: torch.device | str = "cpu",
    seed: int = 0,
    progress: Progress = silent,
) -> None:
    """What `score_relations` needs of some layers, or of a baseline of theirs, into `done`."""
    options: dict[str, Any] = {"first_mlp": first_mlp, "device": device, "seed": seed, "progress": progress}
    if baseline:
        copy = BASELINES[baseline](weights, seed)
        hit_in_layers(copy, asked.used, layers, done, label=f"baseline: {baseline}", **options)
    else:
        hit_in_layers(weights, (asked.used + asked.used_multi).unique()[0], layers, done, **options)


def score_relations(
    weights: HeadWeights,
    tokenizer: Any,
    relations: Sequence[Relation],
    *,
    k: int | Literal["auto"] = "auto",
    threshold: float = 0.15,
    min_pairs: int = 30,
    first_mlp: bool = True,
    baselines: Iterable[str] = tuple(BASELINES),
    device: torch.device | str = "cpu",
    seed: int = 0,
    done: Done | None = None,
    progress: Progress = silent,
) -> xr.Dataset:
    """The map of a model: variables as in the contract's maps.nc, with what was left out and why in `left_out`."""
    check_settings(k, threshold)
    asked, n = asked_of(weights, tokenizer, relations, k, min_pairs), len(relations)
    size, used, used_multi = weights.unembedding().shape[1], asked.used, asked.used_multi
    options: dict[str, Any] = {"first_mlp": first_mlp, "device": device, "seed": seed, "progress": progress}
    once, index = (used + used_multi).unique()
    hit, suppressed = (found[..., index.numpy()] for found in hits(weights, once, done=done, **options))
    anatomy = weights.anatomy
    score, suppression = (shares(a[..., : len(used)], used, n, anatomy) for a in (hit, suppressed))
    score_multi, suppression_multi = (shares(a[..., len(used) :], used_multi, n, anatomy) for a in (hit, suppressed))

    category = [r.category for r in relations]
    member = members(score, suppression, category, threshold)
    member_multi = members(score_multi, suppression_multi, category, threshold)
    from_multi = ~member.any(axis=(1, 2)) & member_multi.any(axis=(1, 2))  # a category that would stay empty otherwise
    member[from_multi] = member_multi[from_multi]

    dims = ("relation", "layer", "head")
    names = list(baselines)
    chance = [
        shares(
            hits(BASELINES[b](weights, seed), used, done=done, label=f"baseline: {b}", **options)[0], used, n, anatomy
        )
        for b in names
    ]
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
            "left_out": ("relation", np.array(reasons, dtype=object)),
            "k": ("relation", [choose_k(r.name, size, k) for r in relations]),
            "member": (("category", "layer", "head"), member),
            "member_from_multi": ("category", from_multi),
            "baseline_score": (
                ("baseline", *dims),
                np.array(chance, dtype=np.float32).reshape(len(names), *score.shape),
            ),
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
