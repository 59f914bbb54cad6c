"""Is a token among the k largest, or the k smallest, that a head writes? Decided without computing all logits.

Whether a target is hit depends on its rank alone: how many tokens get more. Most targets have k better and k worse
tokens in any small sample of the vocabulary, so the vocabulary is walked in random order, in growing blocks, and a
target is dropped for a head as soon as k better *and* k worse have been seen. What is left at the end is decided by
exact counts.

The target's own logit is taken out of every comparison: computed by another product it would differ in the last bit and
count against itself.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise, repeat

import torch
from torch import Tensor

FEWEST = 1 << 18  # logits held at once, where memory is short
TF32 = 2.0**-9  # most a product of two numbers can be off, relatively, when each is cut to TF32's 10 bits


@dataclass(frozen=True)
class Sizes:
    """How much is done at once, found by trying on 2 cores and on an H200."""

    blocks: tuple[int, ...]  # the first is for everybody, so it is small
    last: int  # all further ones
    upcast: int  # most numbers of U in float32 at once
    logits: int  # most logits held at once: what caches hold, what keeps a GPU busy


SIZES = {
    "cpu": Sizes((1024, 4096, 16384), 65536, 1 << 26, 1 << 22),
    "cuda": Sizes((1024, 8192, 32768), 131072, 1 << 31, 1 << 28),
}


def sizes(tensor: Tensor) -> Sizes:
    return SIZES.get(tensor.device.type, SIZES["cpu"])


@dataclass(frozen=True)
class Vocabulary:
    """The unembedding as rows [vocabulary, d_model], to be met in random order. Rows are upcast block by block."""

    rows: Tensor
    dtype: torch.dtype = torch.float32
    seed: int = 0
    keep: bool = True  # keep upcast blocks: a second copy of U for speed; False when memory is short

    @cached_property
    def order(self) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        return torch.randperm(len(self.rows), generator=generator).to(self.rows.device)

    @cached_property
    def place(self) -> Tensor:
        """Where each token stands in the order."""
        return torch.argsort(self.order)

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        edges, size, at_once = [0], len(self.rows), sizes(self.rows)
        widest = max(1, at_once.upcast // self.rows.shape[1])
        for width in chain(at_once.blocks, repeat(at_once.last)):
            if edges[-1] == size:
                break
            edges.append(min(edges[-1] + min(width, widest), size))
        return list(pairwise(edges))

    @cached_property
    def _kept(self) -> dict[int, Tensor]:
        return {}

    def block(self, i: int) -> Tensor:
        """[block, d_model]"""
        if i in self._kept:
            return self._kept[i]
        start, stop = self.spans[i]
        rows = self.rows[self.order[start:stop]].to(self.dtype)
        if self.keep or i == 0:
            self._kept[i] = rows
        return rows

    def of(self, tokens: Tensor) -> Tensor:
        return self.rows[tokens].to(self.dtype)


@contextmanager
def _tf32(allow: bool) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allow
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def extremes(z: Tensor, W_O: Tensor, target: Tensor, k: Tensor, vocabulary: Vocabulary) -> tuple[Tensor, Tensor]:
    """Which targets are among the k largest, and which among the k smallest, logits z @ W_O @ U.

    z [head, n, d_head], W_O [head, d_head, d_model], target [n], k [n] → two bool tensors [head, n]. A tie counts for
    the target, unless all tokens tie: a head that writes nothing, such as one that was removed, has no largest. Where
    memory runs out, half as many logits are held at once.
    """
    at_once = sizes(z).logits
    while True:
        try:
            return _extremes(z, W_O, target, k, vocabulary, at_once)
        except torch.OutOfMemoryError:
            if at_once <= FEWEST:
                raise
        at_once //= 2
        if z.is_cuda:
            torch.cuda.empty_cache()


@_tf32(False)
def _extremes(
    z: Tensor, W_O: Tensor, target: Tensor, k: Tensor, vocabulary: Vocabulary, at_once: int
) -> tuple[Tensor, Tensor]:
    goal = (z * (vocabulary.of(target) @ W_O.transpose(1, 2))).sum(-1)  # the target's own logit, [head, n]
    fast = z.is_cuda and z.dtype == torch.float32
    count = _Counter(z, W_O, goal, target, k, vocabulary, TF32 if fast else 0.0, at_once)
    head, pair, better, worse = count.survivors()
    y = count.written(head, pair)
    for i in range(1, len(vocabulary.spans)):
        if not len(head):
            break
        b, w = count.block(i, y, head, pair)
        better, worse = better + b, worse + w
        still = ((better < k[pair]) | (worse < k[pair])).nonzero().flatten()  # once: the host waits for it
        head, pair, better, worse, y = (t[still] for t in (head, pair, better, worse, y))
    top = torch.zeros(goal.shape, dtype=torch.bool, device=z.device)
    bottom = top.clone()
    if fast:  # counts are of certain ones only: whoever may still be wrong is counted again in float32
        others = len(vocabulary.rows) - 1
        may_be_top, may_be_bottom = better < k[pair], worse < k[pair]
        unsure = (may_be_top & (others - worse >= k[pair])) | (may_be_bottom & (others - better >= k[pair]))
        unsure = unsure.nonzero().flatten()
        h, p = head[unsure], pair[unsure]
        exact = _Counter(z, W_O, goal, target, k, vocabulary, 0.0, at_once)
        counts = [exact.block(i, y[unsure], h, p) for i in range(len(vocabulary.spans))]
        if counts:
            better[unsure] = torch.stack([b for b, _ in counts]).sum(0)
            worse[unsure] = torch.stack([w for _, w in counts]).sum(0)
    differ = better + worse > 0
    top[head, pair] = (better < k[pair]) & differ
    bottom[head, pair] = (worse < k[pair]) & differ
    return top, bottom


@dataclass(frozen=True)
class _Counter:
    """Counts tokens that are better or worse than the target. With tolerance > 0, only those that certainly are."""

    z: Tensor
    W_O: Tensor
    goal: Tensor
    target: Tensor
    k: Tensor
    vocabulary: Vocabulary
    tolerance: float
    at_once: int  # logits

    def survivors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All heads and pairs against the first block; (head, pair, better, worse) of those still open, by head."""
        rows = self.vocabulary.block(0)
        undecided = []
        n = self.z.shape[1]
        at_once = max(1, self.at_once // max(1, n * len(rows)))
        where = self.vocabulary.place[self.target]
        for first in range(0, len(self.z), at_once):
            heads = slice(first, first + at_once)
            M = self.W_O[heads] @ rows.T  # [head, d_head, block]: the head's map has rank d_head
            goal = self.goal[heads]
            with _tf32(self.tolerance > 0):
                logits = self.z[heads] @ M  # [head, n, block]
            _put(logits, where, goal)
            margin = self._margin(self.z[heads].norm(dim=-1), M.norm(dim=1)[:, None])
            better, worse = _compare(logits, goal[..., None], margin)
            open_ = (better < self.k) | (worse < self.k)
            head, pair = open_.nonzero(as_tuple=True)
            undecided.append((head + first, pair, better[head, pair], worse[head, pair]))
        return tuple(torch.cat(parts) for parts in zip(*undecided, strict=True))  # type: ignore[return-value]

    def written(self, head: Tensor, pair: Tensor) -> Tensor:
        """What each head writes to the residual stream, [m, d_model]. `head` is sorted: its runs are padded."""
        counts = torch.bincount(head, minlength=len(self.z))
        nth = torch.arange(len(head), device=head.device) - (counts.cumsum(0) - counts)[head]
        rows = self.z.new_zeros((len(self.z), int(counts.max()), self.z.shape[-1]))
        rows[head, nth] = self.z[head, pair]
        return (rows @ self.W_O)[head, nth]

    def block(self, i: int, y: Tensor, head: Tensor, pair: Tensor) -> tuple[Tensor, Tensor]:
        """(better, worse) in block i for the given heads and pairs, [m] each."""
        rows, (start, _) = self.vocabulary.block(i), self.vocabulary.spans[i]
        size = rows.norm(dim=-1) if self.tolerance else rows.new_zeros(1)
        better, worse = [], []
        for part in torch.arange(len(y), device=y.device).split(max(1, self.at_once // len(rows))):
            with _tf32(self.tolerance > 0):
                logits = y[part] @ rows.T  # [part, block]
            goal = self.goal[head[part], pair[part]]
            where = self.vocabulary.place[self.target[pair[part]]]
            _put(logits, where - start, goal)
            b, w = _compare(logits, goal[:, None], self._margin(y[part].norm(dim=-1), size))
            better.append(b)
            worse.append(w)
        if not better:
            return head, head  # nobody left: empty both
        return torch.cat(better), torch.cat(worse)

    def _margin(self, left: Tensor, right: Tensor) -> Tensor | None:
        """How far a logit may be off: |z · M| ≤ ‖z‖ ‖M‖ bounds the sum of the rounding errors of its terms."""
        return self.tolerance * left[..., None] * right if self.tolerance else None


def _put(logits: Tensor, where: Tensor, goal: Tensor) -> None:
    """Set logits [..., n, block] at each target's place [n] to goal [..., n], where the block has it."""
    row, place = torch.arange(len(where), device=where.device), where.clamp(0, logits.shape[-1] - 1)
    logits[..., row, place] = torch.where(place == where, goal, logits[..., row, place])


def _compare(logits: Tensor, goal: Tensor, margin: Tensor | None) -> tuple[Tensor, Tensor]:
    """How many logits are above the goal, and how many below it, by more than the margin. Changes logits."""
    if margin is None:
        return (logits > goal).sum(-1), (logits < goal).sum(-1)
    logits -= goal
    return _count(logits, margin), _count(logits.neg_(), margin)


def _count(logits: Tensor, margin: Tensor) -> Tensor:
    """How many are above the margin. Sums of bools would be made of 64-bit copies first."""
    above = torch.gt(logits, margin, out=torch.empty_like(logits, dtype=torch.float16))
    return above.sum(-1, dtype=torch.float32).long()
