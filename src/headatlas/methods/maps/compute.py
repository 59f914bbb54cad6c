"""Choose pairs, compute heads' inputs for words, find the pairs that heads hit, and score them against chance."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headatlas.errors import BadArgument, BadFile
from headatlas.methods.maps import Input
from headatlas.methods.maps.chance import chance_level
from headatlas.methods.maps.ranks import Vocabulary, extremes, join, sizes
from headatlas.methods.method import Part
from headatlas.models.families import Anatomy
from headatlas.models.lm import LM
from headatlas.models.loading import Parameters
from headatlas.models.weights import Weights
from headatlas.progress import FinishedParts, Progress, silent
from headatlas.tasks.relations import COPYING, Relation, categories
from headatlas.tasks.words import word_ids

K = int | Literal["auto"]
LARGE_VOCABULARY = 100_000
MIN_TARGET_LETTERS = 3  # in the first token of a multi-token target, which must carry meaning: not " n" for "nación"
BASELINES = ("targets", "random")
"""Models without relations: the same heads with shuffled targets, and heads with random W_V and W_O."""
MAX_COPIED_NUMBERS = 1 << 28  # largest U to keep a float32 copy of on a CPU: for speed, where memory allows


# --- step 1: pairs


@dataclass(frozen=True)
class Pairs:
    """Token pairs of several relations: index of the relation, source token, target token and k, each [pair]."""

    relation: Tensor
    source: Tensor
    target: Tensor
    k: Tensor

    def __len__(self) -> int:
        return len(self.source)

    def __add__(self, other: "Pairs") -> "Pairs":
        return Pairs(*(torch.cat(both) for both in zip(vars(self).values(), vars(other).values(), strict=True)))

    def __getitem__(self, index: Tensor) -> "Pairs":
        return Pairs(*(values[index] for values in vars(self).values()))

    def with_targets_shuffled(self, seed: int) -> "Pairs":
        """Return the same pairs with the targets of each relation shuffled among its sources."""
        generator = torch.Generator().manual_seed(seed)
        order = torch.rand(len(self), generator=generator).argsort()
        target = self.target.clone()
        target[self.relation.argsort(stable=True)] = self.target[order[self.relation[order].argsort(stable=True)]]
        return replace(self, target=target)

    def unique(self) -> tuple["Pairs", Tensor]:
        """Return each (source, target, k) once, whatever its relation, and the index of each pair among them."""
        table = torch.stack([torch.zeros_like(self.source), self.source, self.target, self.k], dim=1)
        distinct, index = torch.unique(table, dim=0, return_inverse=True)
        return Pairs(*distinct.T), index


@dataclass(frozen=True)
class RelationPairs:
    """The pairs of some relations: pairs of single tokens, and pairs of words of any number of tokens.

    Args:
        single, multi: pairs of the relations that have enough of them.
        n_single, n_multi: the number of pairs of each relation, [relation].
        multi_token: whether `single` has multi-token pairs of a relation, [relation].
    """

    single: Pairs
    multi: Pairs
    n_single: np.ndarray
    n_multi: np.ndarray
    multi_token: np.ndarray

    @cached_property
    def distinct(self) -> tuple[Pairs, Tensor]:
        """Each pair to score, once, and the index of each pair of `single` and then `multi` among them."""
        return (self.single + self.multi).unique()

    def by_variant(self, baselines: Iterable[str], seed: int) -> dict[str, Pairs]:
        """Return the pairs that the model's heads ('maps') and those of each baseline are scored on."""
        shuffled = self.single.with_targets_shuffled(seed)
        baseline_pairs = {name: shuffled if name == "targets" else self.single for name in baselines}
        return {"maps": self.distinct[0]} | baseline_pairs


def choose_k(relation: str, vocabulary: int, k: K) -> int:
    """Return k as published: 10, or 1 for copying; for vocabularies over 100,000 tokens 25, or 3."""
    if k != "auto":
        return k
    small, large = (1, 3) if relation in COPYING else (10, 25)
    return large if vocabulary > LARGE_VOCABULARY else small


def leave_out_pairs(relation: Relation, tokenizer: Any, share: float, min_pairs: int, seed: int) -> Relation:
    """Return a relation without a share of its pairs, all pairs of a source together.

    Fewer are left out where fewer than `min_pairs` usable pairs would remain.
    """
    tokens = _token_pairs(relation, tokenizer, multi=False)
    if relation.multi_token == "last-first" and len(set(tokens) - {None}) < min_pairs:
        tokens = _token_pairs(relation, tokenizer, multi=True)

    def usable(without: Collection[str]) -> int:
        pairs = zip(relation.pairs, tokens, strict=True)
        return len({pair for (source, _), pair in pairs if pair and source not in without})

    sources = list(dict.fromkeys(source for source, _ in relation.pairs))
    order = np.random.default_rng([seed, *relation.name.encode()]).permutation(len(sources))
    left_out: list[str] = []
    for source in (sources[i] for i in order):
        if len(left_out) < round(share * len(sources)) and usable([*left_out, source]) >= min_pairs:
            left_out.append(source)
    return replace(relation, pairs=tuple(pair for pair in relation.pairs if pair[0] not in left_out))


def choose_pairs(model: Parameters, relations: Sequence[Relation], k: K, min_pairs: int) -> RelationPairs:
    """Return the pairs that a model's tokenizer allows, of the relations that have enough."""
    n = len(relations)
    vocabulary = model.weights.unembedding().shape[1]
    single = single_token_pairs(relations, model.tokenizer, vocabulary, k)
    multi = multi_token_pairs(relations, model.tokenizer, vocabulary, k)
    allowed = torch.tensor([r.multi_token == "last-first" for r in relations])
    multi_token = allowed & (torch.bincount(single.relation, minlength=n) < min_pairs)
    single = single[~multi_token[single.relation]] + multi[multi_token[multi.relation]]
    n_single = torch.bincount(single.relation, minlength=n).numpy()
    n_multi = torch.bincount(multi.relation, minlength=n).numpy()
    pairs = RelationPairs(
        single=drop_small(single, n, min_pairs),
        multi=drop_small(multi, n, min_pairs),
        n_single=n_single,
        n_multi=n_multi,
        multi_token=multi_token.numpy(),
    )
    if not len(pairs.single) and not len(pairs.multi):
        raise BadArgument(
            f"relations: none of the {n} has {min_pairs} pairs left (the most is {max(n_single.max(), n_multi.max())}):"
            " a pair counts if both words are one token after a space"
        )
    return pairs


def single_token_pairs(relations: Sequence[Relation], tokenizer: Any, vocabulary: int, k: K) -> Pairs:
    """Return the pairs of one token each."""
    rows = [
        (i, *pair, choose_k(relation.name, vocabulary, k))
        for i, relation in enumerate(relations)
        for pair in filter(None, _token_pairs(relation, tokenizer, multi=False))
    ]
    return _pairs_from_rows(rows)


def multi_token_pairs(relations: Sequence[Relation], tokenizer: Any, vocabulary: int, k: K) -> Pairs:
    """Return all pairs by the last token of the source and the first of the target, each token pair once.

    Pairs whose target token is too short to carry meaning are left out.
    """
    rows = [
        (i, *pair, choose_k(relation.name, vocabulary, k))
        for i, relation in enumerate(relations)
        for pair in filter(None, _token_pairs(relation, tokenizer, multi=True))
    ]
    return _pairs_from_rows(list(dict.fromkeys(rows)))


def drop_small(pairs: Pairs, n_relations: int, min_pairs: int) -> Pairs:
    """Drop the pairs of relations that have fewer than `min_pairs`."""
    has_enough = torch.bincount(pairs.relation, minlength=n_relations) >= min_pairs
    return pairs[has_enough[pairs.relation]]


def _token_pairs(relation: Relation, tokenizer: Any, *, multi: bool) -> list[tuple[int, int] | None]:
    """Return source and target token of each pair of words; None for a pair that cannot be used."""
    sources, targets = (word_ids(tokenizer, words) for words in zip(*relation.pairs, strict=True))

    def is_usable(source: list[int], target: list[int]) -> bool:
        if not multi or not source or not target:
            return len(source) == len(target) == 1
        differs = relation.name in COPYING or source[-1] != target[0]
        return differs and (len(target) == 1 or len(tokenizer.decode(target[:1]).strip()) >= MIN_TARGET_LETTERS)

    encoded = zip(sources, targets, strict=True)
    return [(source[-1], target[0]) if is_usable(source, target) else None for source, target in encoded]


def _pairs_from_rows(rows: list[tuple[int, int, int, int]]) -> Pairs:
    table = torch.tensor(rows, dtype=torch.long).reshape(-1, 4)
    return Pairs(*table.T)


# --- steps 2 and 3: heads' inputs for a word, and how heads write to the logits


def visit_inputs(
    weights: Weights,
    sources: Tensor,
    layers: Sequence[int],
    visit: Callable[[int, Tensor], None],
    *,
    input: Input,
    opening: Sequence[int],
    device: torch.device | str,
    progress: Progress,
) -> None:
    """Call visit(layer, x [source, d_model]) for some layers, in their order, with their heads' input for each word.

    stream     The model's residual stream at the word after the opening: one pass over all words gives every layer's x,
               normed as the layer norms it.
    published  Block 0's MLP of the embedding, on its own norm and without the residual; in layer 0, the embedding.
    embedding  The embedding in all layers.
    """
    if input == "stream":
        ticks = iter(progress(layers, "maps"))

        def visit_and_tick(layer: int, x: Tensor) -> None:
            if layer in layers:
                next(ticks, None)
                visit(layer, x)

        texts = torch.tensor([*opening, 0]).repeat(len(sources), 1)
        texts[:, -1] = sources
        weights.run(texts, visit_and_tick, device)
        next(ticks, None)
        return
    embedding = weights.embedding()
    embedded = embedding[sources.to(embedding.device)]
    embedded = embedded.to(torch.promote_types(embedded.dtype, torch.float32))
    later = weights.first_mlp(embedded) if input == "published" else embedded
    for layer in progress(layers, "maps"):
        visit(layer, embedded if layer == 0 else later)


def head_values(
    weights: Weights, variant: str, layer: int, x: Tensor, *, input: Input, seed: int
) -> tuple[Tensor, Tensor]:
    """Return a layer's values [kv_head, source, d_head] for x [source, d_model], and W_O [head, d_head, d_model].

    W_O includes the scales of the norms before U. The published inputs use raw weights: no bias and no norm.

    Args:
        weights: the model's weights.
        variant: 'random' for random heads, anything else for the model's.
        layer: the layer.
        x: the heads' inputs.
        input: kind of the inputs.
        seed: seed of random heads.
    """
    output = weights.output(layer)
    if variant == "random":
        value = x @ _random_like(weights.value(layer), seed, 2 * layer).to(x)
        output = _random_like(output, seed, 2 * layer + 1)
    elif input == "stream":
        value = weights.values(layer, x).transpose(0, 1)
    else:
        value = x @ weights.value(layer).to(x)
    return value, scale_output(weights, layer, output.to(x), input)


def scale_output(weights: Weights, layer: int, output: Tensor, input: Input) -> Tensor:
    """Multiply W_O [head, d_head, d_model] by the scales of the norms between it and U, where the input has them.

    A norm also divides by one positive number per text, which changes no rank.
    """
    return weights.through_norms(layer, output) if input == "stream" else output


def _random_like(tensor: Tensor, seed: int, salt: int) -> Tensor:
    """Return random numbers of a tensor's shape and standard deviation."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + salt)
    return torch.randn(tensor.shape, generator=generator) * tensor.float().std().cpu()


# --- step 4: which pairs are hit


def collect_hits(done: FinishedParts, variant: str, anatomy: Anatomy, n_pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the hits and suppressions that `score_layers` stored: two bool arrays [layer, head, pair].

    They are False in layers without heads.
    """
    hit, suppressed = np.zeros((2, anatomy.n_layers, anatomy.n_heads, n_pairs), dtype=bool)
    for layer in anatomy.layers_with_heads:
        hit[layer], suppressed[layer] = done[f"{variant} layer {layer}"]
    return hit, suppressed


@torch.no_grad()
def score_layers(
    model: Parameters | LM,
    *,
    variants: Mapping[str, Pairs],
    layers: Sequence[int],
    input: Input,
    opening: Sequence[int],
    seed: int,
    done: FinishedParts,
    progress: Progress = silent,
) -> None:
    """Store the hits and suppressions of some layers, each [head, pair], in `done` as 'VARIANT layer NUMBER'.

    Args:
        model: the model, or its parameters.
        variants: the pairs of each variant: 'maps', the model's heads, and any of the `BASELINES`.
        layers: layers to score.
        input: kind of the heads' inputs.
        opening: tokens before the word for input 'stream'.
        seed: seed of random heads and of the order of the vocabulary.
        done: where arrays are stored; layers that it has are not scored again.
        progress: reports the layers.
    """
    missing = [i for i in layers if any(f"{variant} layer {i}" not in done for variant in variants)]
    if not missing:
        return
    weights = model.weights
    device = model.device
    rows = weights.unembedding().T.to(device)
    dtype = torch.promote_types(rows.dtype, torch.float32)
    vocabulary = Vocabulary(rows, dtype, seed, keep=rows.is_cuda or rows.numel() <= MAX_COPIED_NUMBERS)
    # variants share most sources, so each source runs once
    sources, index = torch.cat([p.source for p in variants.values()]).unique(return_inverse=True)
    source_index = dict(zip(variants, index.to(device).split([len(p) for p in variants.values()]), strict=True))
    waiting: dict[str, list[tuple[int, Tensor, Tensor]]] = {variant: [] for variant in variants}  # layer, z, W_O
    checks = _FiniteChecks()

    def add_layer(layer: int, x: Tensor) -> None:
        x = x.to(device, dtype)
        checks.add(f"input of layer {layer}'s attention", x)
        for variant in variants:
            value, output = head_values(weights, variant, layer, x, input=input, seed=seed)
            checks.add(f"layer {layer}'s W_V or W_O", value, output)
            z = value[:, source_index[variant]].repeat_interleave(weights.anatomy.n_heads // len(value), dim=0)
            waiting[variant].append((layer, z, output))
            if len(waiting[variant]) == sizes(rows).layers:
                decide(variant)

    def decide(variant: str) -> None:
        checks.raise_if_not_finite()
        waiting_layers, z, W_O = zip(*waiting[variant], strict=True)
        target = variants[variant].target.to(device)
        k = variants[variant].k.to(device)
        both = extremes(join(z), join(W_O), target, k, vocabulary)
        top, bottom = (hit.unflatten(0, (len(waiting_layers), -1)).cpu().numpy() for hit in both)
        done.update({f"{variant} layer {layer}": (top[i], bottom[i]) for i, layer in enumerate(waiting_layers)})
        waiting[variant].clear()

    def labelled(items: Sequence[Any], label: str) -> Iterable[Any]:
        return progress(items, f"{label}, layers {layers[0]} to {layers[-1]}")

    visit_inputs(weights, sources, missing, add_layer, input=input, opening=opening, device=device, progress=labelled)
    for variant in variants:
        if waiting[variant]:
            decide(variant)


@dataclass
class _FiniteChecks:
    """Tensors that must be finite. They are checked together, because each check makes the host wait for the GPU."""

    checks: list[tuple[str, tuple[Tensor, ...], Tensor]] = field(default_factory=list)

    def add(self, label: str, *tensors: Tensor) -> None:
        self.checks.append((label, tensors, torch.stack([torch.isfinite(t).all() for t in tensors]).all()))

    def raise_if_not_finite(self) -> None:
        """Raise an error for the first tensor with a number that is not finite; otherwise, forget all tensors."""
        checks = self.checks.copy()
        self.checks.clear()
        if not checks or torch.stack([finite for _, _, finite in checks]).all():
            return
        label, tensors = next((label, tensors) for label, tensors, finite in checks if not finite)
        n_bad = sum(int((~torch.isfinite(t)).sum()) for t in tensors)
        n_total = sum(t.numel() for t in tensors)
        raise BadFile(f"{label}: {n_bad} of {n_total} numbers are NaN or infinite, so no head can be scored")


# --- steps 5 and 6: scores and categories


def score_relations(
    model: Parameters,
    relations: Sequence[Relation],
    pairs: RelationPairs,
    done: FinishedParts,
    *,
    k: K,
    threshold: float,
    min_pairs: int,
    baselines: Sequence[str],
) -> xr.Dataset:
    """Make the map from the hits and suppressions that `score_layers` stored."""
    anatomy = model.weights.anatomy
    n = len(relations)
    vocabulary = model.weights.unembedding().shape[1]
    hits, multi_hits = _model_hits(done, pairs, anatomy)
    score, suppression = (shares(hit, pairs.single, n, anatomy) for hit in hits)
    multi = [shares(hit, pairs.multi, n, anatomy) for hit in multi_hits]
    score_by_pair, suppression_by_pair = (np.moveaxis(hit, -1, 0) for hit in hits)
    baseline_score, baseline_suppression = _baseline_shares(done, pairs, n, anatomy, baselines)
    category = [r.category for r in relations]
    member, from_multi = _category_members([score, suppression], multi, category, threshold)
    ks = np.array([choose_k(r.name, vocabulary, k) for r in relations])
    dims = ("relation", "layer", "head")
    return xr.Dataset(
        {
            "score": (dims, score),
            "suppression": (dims, suppression),
            "score_by_pair": (("pair", "layer", "head"), score_by_pair),
            "suppression_by_pair": (("pair", "layer", "head"), suppression_by_pair),
            "pairs": ("relation", pairs.n_single),
            "score_multi": (dims, multi[0]),
            "suppression_multi": (dims, multi[1]),
            "pairs_multi": ("relation", pairs.n_multi),
            "multi_token": ("relation", pairs.multi_token),
            "left_out": ("relation", _why_left_out(relations, pairs.n_single, min_pairs)),
            "k": ("relation", ks),
            "member": (("category", "layer", "head"), member),
            "member_from_multi": ("category", from_multi),
            "baseline_score": (("control", *dims), baseline_score),
            "baseline_suppression": (("control", *dims), baseline_suppression),
            "chance": ("relation", chance_level(baseline_score, pairs.n_single, ks, vocabulary)),
            "chance_suppression": ("relation", chance_level(baseline_suppression, pairs.n_single, ks, vocabulary)),
        },
        coords={
            "relation": [r.name for r in relations],
            "repeat_of": ("pair", np.array([r.name for r in relations])[pairs.single.relation.numpy()]),
            "category": ("relation", category),
            "category_name": ("category", list(categories(category))),
            "control": list(baselines),
            "layer": range(anatomy.n_layers),
            "head": range(anatomy.n_heads),
        },
    )


def shares(hit: np.ndarray, pairs: Pairs, n_relations: int, anatomy: Anatomy) -> np.ndarray:
    """Return the share of each relation's pairs, [relation, layer, head]; NaN without pairs or without heads."""
    belongs = np.eye(n_relations, dtype=np.float32)[pairs.relation.numpy()]  # [pair, relation]
    counts = belongs.sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.moveaxis(hit.astype(np.float32) @ belongs, -1, 0) / counts[:, None, None]
    share[:, anatomy.layers_without_heads] = np.nan
    return share.astype(np.float32)


def members(score: np.ndarray, suppression: np.ndarray, category: Sequence[str], threshold: float) -> np.ndarray:
    """Return which heads belong to each category, [category, layer, head]; a NaN score does not count."""
    reached = np.fmax(np.nan_to_num(score, nan=-1), np.nan_to_num(suppression, nan=-1)) >= threshold
    return np.stack([reached[[c == name for c in category]].any(axis=0) for name in categories(category)])


def _model_hits(
    done: FinishedParts, pairs: RelationPairs, anatomy: Anatomy
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return [hits, suppressions] of single-token and of multi-token pairs, each [layer, head, pair]."""
    distinct, index = pairs.distinct
    n_single = len(pairs.single)
    both = [hit[..., index.numpy()] for hit in collect_hits(done, "maps", anatomy, len(distinct))]
    return [hit[..., :n_single] for hit in both], [hit[..., n_single:] for hit in both]


def _baseline_shares(
    done: FinishedParts, pairs: RelationPairs, n: int, anatomy: Anatomy, baselines: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Return score and suppression of the baselines, each [baseline, relation, layer, head]."""
    single = pairs.single
    values = np.empty((2, len(baselines), n, anatomy.n_layers, anatomy.n_heads), dtype=np.float32)
    for i, baseline in enumerate(baselines):
        values[:, i] = [shares(hit, single, n, anatomy) for hit in collect_hits(done, baseline, anatomy, len(single))]
    return values[0], values[1]


def _category_members(
    single: list[np.ndarray], multi: list[np.ndarray], category: Sequence[str], threshold: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the members of categories, and which categories use multi-token pairs because they would be empty."""
    member = members(single[0], single[1], category, threshold)
    member_multi = members(multi[0], multi[1], category, threshold)
    from_multi = np.asarray(~member.any(axis=(1, 2)) & member_multi.any(axis=(1, 2)))
    member[from_multi] = member_multi[from_multi]
    return member, from_multi


def _why_left_out(relations: Sequence[Relation], n_pairs: np.ndarray, min_pairs: int) -> np.ndarray:
    reasons = [
        "" if n >= min_pairs else f"{n} of {len(r.pairs)} pairs are one token on both sides, {min_pairs} are needed"
        for r, n in zip(relations, n_pairs, strict=True)
    ]
    return np.array(reasons, dtype=object)


# --- parts, and their result


def layer_parts(
    model: Parameters,
    pairs: RelationPairs,
    *,
    input: Input,
    opening: Sequence[int],
    baselines: Sequence[str],
    seed: int,
) -> list[Part]:
    """Return parts of a few layers each, or a single part for input 'stream', whose pass goes through all layers."""
    anatomy = model.weights.anatomy
    groups = anatomy.layer_groups(anatomy.n_layers) if input == "stream" else anatomy.layer_groups()
    variants = pairs.by_variant(baselines, seed)
    shared = {"variants": variants, "input": input, "opening": opening, "seed": seed}
    return [
        Part(
            name=f"maps, layers {layers[0]} to {layers[-1]}",
            do=score_layers,
            arguments=shared | {"layers": layers},
            outputs=tuple(f"{variant} layer {i}" for i in layers for variant in variants),
        )
        for layers in groups
    ]


def combine(
    model: Parameters,
    *,
    relations: Sequence[Relation],
    pairs: RelationPairs,
    input: Input,
    opening: Sequence[int],
    k: K,
    threshold: float,
    min_pairs: int,
    baselines: Sequence[str],
    seed: int,
    dynamic: int,
    done: FinishedParts,
    progress: Progress,
) -> xr.Dataset:
    """Make the map, and score it in real runs, for which the model must be loaded."""
    # imported here, because that module imports from this one
    from headatlas.methods.maps.real_runs import check_dynamic

    result = score_relations(
        model, relations, pairs, done, k=k, threshold=threshold, min_pairs=min_pairs, baselines=baselines
    )
    if dynamic:
        assert isinstance(model, LM)
        scoring: dict[str, Any] = {"k": k, "min_pairs": min_pairs, "input": input, "opening": opening, "seed": seed}
        result = result.merge(check_dynamic(model, relations, limit=dynamic, **scoring, progress=progress))
    text = model.tokenizer.decode(opening)
    return result.set_xindex("category_name").assign_attrs(opening_text=text)
