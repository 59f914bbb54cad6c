"""Which token pairs of its relations a model is asked about: step 1 of `maps`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from headatlas.errors import BadArgument
from headatlas.models.loading import Parameters
from headatlas.tasks.relations import COPYING, Relation
from headatlas.tasks.words import word_ids

LARGE_VOCABULARY = 100_000
MIN_TARGET_LETTERS = 3  # a multi-token target's first token must say something: not " n" for "nación"


@dataclass(frozen=True)
class Pairs:
    """Token pairs of several relations, [n] each: the relation, its source and target token, and its k."""

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


@dataclass(frozen=True)
class ChosenPairs:
    """The pairs of some relations: of one token on both sides, and of several.

    count, count_multi [relation]: how many each has. used, used_multi: those of the relations that have enough.
    parts [relation]: whether several tokens had to do instead of one.
    """

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


def choose_pairs(
    model: Parameters, relations: Sequence[Relation], k: int | Literal["auto"], min_pairs: int
) -> ChosenPairs:
    """Step 1 for a model's tokenizer."""
    size, n = model.weights.unembedding().shape[1], len(relations)
    single = single_token_pairs(relations, model.tokenizer, size, k)
    multi = multi_token_pairs(relations, model.tokenizer, size, k)
    allowed = torch.tensor([r.multi_token == "last-first" for r in relations])
    parts = allowed & (torch.bincount(single.relation, minlength=n) < min_pairs)
    single = single[~parts[single.relation]] + multi[parts[multi.relation]]
    count, count_multi = (torch.bincount(p.relation, minlength=n).numpy() for p in (single, multi))
    used, used_multi = drop_small(single, n, min_pairs), drop_small(multi, n, min_pairs)
    if not len(used) and not len(used_multi):
        most = max(count.max(), count_multi.max())
        raise BadArgument(
            f"relations: none of the {n} has {min_pairs} pairs left (the most is {most}):"
            " a pair counts when both words are one token behind a space"
        )
    return ChosenPairs(count, count_multi, used, used_multi, parts.numpy())
