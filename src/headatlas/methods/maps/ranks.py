"""Is a token among the k largest, or the k smallest, that a head writes? Decided without computing all logits.

Whether a target is hit depends on its rank alone: how many tokens get more. Most targets have k better and k worse
tokens in any small sample of the vocabulary, so the vocabulary is walked in random order, in growing blocks, and a
target is dropped for a head as soon as k better *and* k worse have been seen. What is left at the end is decided by
exact counts.

The target's own logit is taken out of every comparison: computed by another product it would differ in the last bit and
count against itself.

On a GPU, float32 products are slow and TF32 ones are not. There counts are lower bounds: of tokens that are better, or
worse, by more than all roundings together. What these do not decide is counted again in float32.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise, repeat

import torch
from torch import Tensor

FEWEST = 1 << 18  # logits held at once, where memory is short
TF32 = 2.0**-9  # most a product of two numbers can be off, relatively, when each is cut to TF32's 10 bits
SPLIT = 2.0**-18  # the same of `_split` numbers: 3 · 2⁻²⁰
SUM = 2.0**-26  # and by each term of a sum: tensor cores add eight at a time, and cut what they have to 24 bits


@dataclass(frozen=True)
class Sizes:
    """How much is done at once, found by trying on 2 cores and on an H200."""

    blocks: tuple[int, ...]  # the first is for everybody, so it is small
    last: int  # all further ones
    upcast: int  # most numbers of U in float32 at once
    logits: int  # most logits held at once: what caches hold, what keeps a GPU busy
    written: int  # most numbers that heads write at once, for what the first block does not decide
    layers: int  # how many layers' heads are decided together: a GPU waits for the host each time


SIZES = {
    "cpu": Sizes((1024, 4096, 16384), 65536, upcast=1 << 26, logits=1 << 22, written=1 << 28, layers=1),
    "cuda": Sizes((1024, 8192, 32768), 131072, upcast=1 << 31, logits=1 << 28, written=1 << 31, layers=4),
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

    @cached_property
    def _lengths(self) -> dict[int, Tensor]:
        return {}

    def lengths(self, i: int) -> Tensor:
        """‖row‖ of each row of block i."""
        if i not in self._lengths:
            self._lengths[i] = self.block(i).norm(dim=-1)
        return self._lengths[i]


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
    memory runs out, half as much is done at once.
    """
    at_once = sizes(z)
    while True:
        try:
            return _extremes(z, W_O, target, k, vocabulary, at_once)
        except torch.OutOfMemoryError:
            if at_once.logits <= FEWEST:
                raise
        at_once = replace(at_once, logits=at_once.logits // 2, written=at_once.written // 2)
        if z.is_cuda:
            torch.cuda.empty_cache()


@_tf32(False)
def _extremes(
    z: Tensor, W_O: Tensor, target: Tensor, k: Tensor, vocabulary: Vocabulary, at_once: Sizes
) -> tuple[Tensor, Tensor]:
    count = _Counter(z, W_O, target, k, vocabulary, _has_tf32(z), at_once)
    top, bottom = torch.zeros((2, *z.shape[:2]), dtype=torch.bool, device=z.device)
    for head, pair, better, worse, y in count.written(*count.survivors()):
        goal = (y * vocabulary.of(target[pair])).sum(-1)
        for i in range(1, len(vocabulary.spans)):
            if not len(head):
                break
            b, w = count.block(i, y, goal, pair)
            better, worse = better + b, worse + w
            still = ((better < k[pair]) | (worse < k[pair])).nonzero().flatten()  # once: the host waits for it
            head, pair, better, worse, y, goal = (t[still] for t in (head, pair, better, worse, y, goal))
        if count.rough:
            unsure = count.unsure(pair, better, worse).nonzero().flatten()
            if len(unsure):
                better[unsure], worse[unsure] = count.exact(y[unsure], goal[unsure], pair[unsure])
        differ = better + worse > 0
        top[head, pair] = (better < k[pair]) & differ
        bottom[head, pair] = (worse < k[pair]) & differ
    return top, bottom


def _has_tf32(z: Tensor) -> bool:
    return z.is_cuda and z.dtype == torch.float32 and torch.cuda.get_device_capability(z.device) >= (8, 0)


@dataclass(frozen=True)
class _Counter:
    """Counts tokens that are better or worse than the target; if `rough`, only those that certainly are."""

    z: Tensor
    W_O: Tensor
    target: Tensor
    k: Tensor
    vocabulary: Vocabulary
    rough: bool
    at_once: Sizes

    def survivors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All heads and pairs against the first block; (head, pair, better, worse) of those still open, by head."""
        rows, targets = self.vocabulary.block(0), self.vocabulary.of(self.target)
        where = self.vocabulary.place[self.target]
        split_rows, split_targets = (_split(rows), _split(targets)) if self.rough else (rows, targets)
        undecided = []
        heads = max(1, self.at_once.logits // max(1, self.z.shape[1] * len(rows)))
        for first in range(0, len(self.z), heads):
            z, W_O = self.z[first : first + heads], self.W_O[first : first + heads]
            split_W_O = _split(W_O, right=True) if self.rough else W_O
            with _tf32(self.rough):
                M = split_W_O @ split_rows.T  # [head, d_head, block]: the head's map has rank d_head
                goal = (z * (split_targets @ split_W_O.transpose(1, 2))).sum(-1)  # the target's own logit, [head, n]
                logits = z @ M  # [head, n, block]
            _put(logits, where, goal)
            better, worse = _compare(logits, goal[..., None], self._first_margin(z, W_O, M, targets))
            open_ = (better < self.k) | (worse < self.k)
            head, pair = open_.nonzero(as_tuple=True)
            undecided.append((head + first, pair, better[head, pair], worse[head, pair]))
        return tuple(torch.cat(parts) for parts in zip(*undecided, strict=True))  # type: ignore[return-value]

    def _first_margin(self, z: Tensor, W_O: Tensor, M: Tensor, targets: Tensor) -> Tensor | None:
        """How far a logit of the first block and the target's may be off together, [head, n, block].

        |z · M| ≤ ‖z‖ ‖M‖ bounds the sum of the rounding errors of its terms. M, and what the target's logit is made of,
        are off already, by a share of ‖W_O's row‖ ‖U's row‖, and z multiplies that.
        """
        if not self.rough:
            return None
        d_head, d = W_O.shape[1:]
        reach = (SPLIT + d * SUM) * (z.abs() @ W_O.norm(dim=-1)[..., None])  # [head, n, 1]
        own = (TF32 + d_head * SUM) * z.norm(dim=-1, keepdim=True)
        left = torch.cat([own, reach, reach * targets.norm(dim=-1)[:, None]], -1)
        lengths = self.vocabulary.lengths(0)
        right = torch.stack([lengths, torch.ones_like(lengths)]).expand(len(M), -1, -1)
        return left @ torch.cat([M.norm(dim=1, keepdim=True), right], 1)

    def written(
        self, head: Tensor, pair: Tensor, better: Tensor, worse: Tensor
    ) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor, Tensor]]:
        """The same with what heads write to the residual stream, [m, d_model]: all of it, or some heads after others
        where that is too much. `head` is sorted: its runs are padded."""
        counts = torch.bincount(head, minlength=len(self.z))
        nth = torch.arange(len(head), device=head.device) - (counts.cumsum(0) - counts)[head]
        for first, last, start, stop in _runs(each := counts.tolist(), self.at_once.written // self.W_O.shape[-1]):
            here = slice(start, stop)
            at = head[here] - first, nth[here]
            rows = self.z.new_zeros((last - first, max(each[first:last]), self.z.shape[-1]))
            rows[at] = self.z[head[here], pair[here]]
            yield head[here], pair[here], better[here], worse[here], (rows @ self.W_O[first:last])[at]

    def block(self, i: int, y: Tensor, goal: Tensor, pair: Tensor) -> tuple[Tensor, Tensor]:
        """(better, worse) in block i, for what heads write y [m, d_model] and the logits they give targets [m]."""
        rows, (start, _) = self.vocabulary.block(i), self.vocabulary.spans[i]
        where = self.vocabulary.place[self.target[pair]] - start
        better, worse = [], []
        for part in torch.arange(len(y), device=y.device).split(max(1, self.at_once.logits // len(rows))):
            with _tf32(self.rough):
                logits = y[part] @ rows.T  # [part, block]
            _put(logits, where[part], goal[part])
            b, w = _compare(logits, goal[part, None], self._margin(y[part], i))
            better.append(b)
            worse.append(w)
        return torch.cat(better), torch.cat(worse)

    def _margin(self, y: Tensor, i: int) -> Tensor | None:
        """How far a logit of block i may be off, [m, block]."""
        if not self.rough:
            return None
        return (TF32 + y.shape[1] * SUM) * y.norm(dim=-1)[:, None] * self.vocabulary.lengths(i)

    def unsure(self, pair: Tensor, better: Tensor, worse: Tensor) -> Tensor:
        """Whom these rough counts of all blocks do not decide, [m]."""
        k, others = self.k[pair], len(self.vocabulary.rows) - 1
        top, bottom = (better < k) & (others - worse >= k), (worse < k) & (others - better >= k)
        return top | bottom | (better + worse == 0)

    def exact(self, y: Tensor, goal: Tensor, pair: Tensor) -> tuple[Tensor, Tensor]:
        """(better, worse) in all blocks."""
        count = replace(self, rough=False)
        counts = [count.block(i, y, goal, pair) for i in range(len(self.vocabulary.spans))]
        return torch.stack([b for b, _ in counts]).sum(0), torch.stack([w for _, w in counts]).sum(0)


def _runs(counts: list[int], most: int) -> Iterator[tuple[int, int, int, int]]:
    """Heads in a row that have at most so many rows together once padded: (first, last + 1, first row, last + 1)."""
    first = start = stop = widest = 0
    for head, count in enumerate(counts):
        if head > first and (head + 1 - first) * max(widest, count) > most:
            yield first, head, start, stop
            first, start, widest = head, stop, 0
        stop, widest = stop + count, max(widest, count)
    yield first, len(counts), start, stop


def _split(x: Tensor, right: bool = False) -> Tensor:
    """[…, 3 d] of x […, d]: what TF32 keeps of each number, and what it cuts off. A product of numbers split as left
    and right factors is nearly that in float32; small terms come first, for they would be lost in a large sum."""
    kept = (x.view(torch.int32) & -(1 << 13)).view(torch.float32)
    return torch.cat([x - kept, kept, kept] if right else [kept, x - kept, kept], -1)


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
