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
SPLIT = 2.0**-16  # the same of `_split` numbers: below 2⁻¹⁸, and as much again and more for float32's sums


@dataclass(frozen=True)
class Sizes:
    """How much is done at once, found by trying on 2 cores and on an H200."""

    blocks: tuple[int, ...]  # the first is for everybody, so it is small
    last: int  # all further ones
    upcast: int  # most numbers of U in float32 at once
    logits: int  # most logits held at once: what caches hold, what keeps a GPU busy
    written: int  # most numbers that heads may write at once, if nothing is decided by the first block
    layers: int  # how many layers' heads are decided together: a GPU waits for the host each time


SIZES = {
    "cpu": Sizes((1024, 4096, 16384), 65536, 1 << 26, 1 << 22, 1 << 28, 1),
    "cuda": Sizes((1024, 8192, 32768), 131072, 1 << 31, 1 << 28, 1 << 31, 4),
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
    at_once, widest = sizes(z), max(1, z.shape[1] * W_O.shape[-1])
    logits, heads = at_once.logits, max(1, at_once.written // widest)
    while True:
        try:
            each = [
                _extremes(some_z, some_W_O, target, k, vocabulary, logits)
                for some_z, some_W_O in zip(z.split(heads), W_O.split(heads), strict=True)
            ]
            top, bottom = (torch.cat(parts) for parts in zip(*each, strict=True))
            return top, bottom
        except torch.OutOfMemoryError:
            if logits <= FEWEST:
                raise
        logits, heads = logits // 2, max(1, heads // 2)
        if z.is_cuda:
            torch.cuda.empty_cache()


@_tf32(False)
def _extremes(
    z: Tensor, W_O: Tensor, target: Tensor, k: Tensor, vocabulary: Vocabulary, at_once: int
) -> tuple[Tensor, Tensor]:
    count = _Counter(z, W_O, target, k, vocabulary, _has_tf32(z), at_once)
    head, pair, better, worse = count.survivors()
    y = count.written(head, pair)
    goal = (y * vocabulary.of(target[pair])).sum(-1)
    for i in range(1, len(vocabulary.spans)):
        if not len(head):
            break
        b, w = count.block(i, y, goal, pair)
        better, worse = better + b, worse + w
        still = ((better < k[pair]) | (worse < k[pair])).nonzero().flatten()  # once: the host waits for it
        head, pair, better, worse, y, goal = (t[still] for t in (head, pair, better, worse, y, goal))
    if count.rough:
        others = len(vocabulary.rows) - 1
        may_be_top, may_be_bottom = better < k[pair], worse < k[pair]
        unsure = (may_be_top & (others - worse >= k[pair])) | (may_be_bottom & (others - better >= k[pair]))
        unsure = unsure.nonzero().flatten()
        exact, again = replace(count, rough=False), (y[unsure], goal[unsure], pair[unsure])
        counts = [exact.block(i, *again) for i in range(len(vocabulary.spans))]
        if counts:
            better[unsure] = torch.stack([b for b, _ in counts]).sum(0)
            worse[unsure] = torch.stack([w for _, w in counts]).sum(0)
    top, bottom = torch.zeros((2, *z.shape[:2]), dtype=torch.bool, device=z.device)
    differ = better + worse > 0
    top[head, pair] = (better < k[pair]) & differ
    bottom[head, pair] = (worse < k[pair]) & differ
    return top, bottom


def _has_tf32(z: Tensor) -> bool:
    return z.is_cuda and z.dtype == torch.float32


@dataclass(frozen=True)
class _Counter:
    """Counts tokens that are better or worse than the target; if `rough`, only those that certainly are."""

    z: Tensor
    W_O: Tensor
    target: Tensor
    k: Tensor
    vocabulary: Vocabulary
    rough: bool
    at_once: int  # logits

    def survivors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All heads and pairs against the first block; (head, pair, better, worse) of those still open, by head."""
        rows, targets = self.vocabulary.block(0), self.vocabulary.of(self.target)
        where = self.vocabulary.place[self.target]
        left = (_split(rows), _split(targets)) if self.rough else (rows, targets)
        undecided = []
        at_once = max(1, self.at_once // max(1, self.z.shape[1] * len(rows)))
        for first in range(0, len(self.z), at_once):
            z, W_O = self.z[first : first + at_once], self.W_O[first : first + at_once]
            right = _split(W_O, other=True) if self.rough else W_O
            with _tf32(self.rough):
                M = right @ left[0].T  # [head, d_head, block]: the head's map has rank d_head
                goal = (z * (left[1] @ right.transpose(1, 2))).sum(-1)  # the target's own logit, [head, n]
                logits = z @ M  # [head, n, block]
            _put(logits, where, goal)
            better, worse = _compare(logits, goal[..., None], self._first_margin(z, W_O, M, targets))
            open_ = (better < self.k) | (worse < self.k)
            head, pair = open_.nonzero(as_tuple=True)
            undecided.append((head + first, pair, better[head, pair], worse[head, pair]))
        return tuple(torch.cat(parts) for parts in zip(*undecided, strict=True))  # type: ignore[return-value]

    def _first_margin(self, z: Tensor, W_O: Tensor, M: Tensor, targets: Tensor) -> Tensor | None:
        """How far a logit of the first block and the target's may be off together, [head, n, block].

        |z · M| ≤ ‖z‖ ‖M‖ bounds the sum of the rounding errors of its terms. M and what the target's logit is made of
        are off by SPLIT ‖W_O's row‖ ‖U's row‖ already, and z multiplies that.
        """
        if not self.rough:
            return None
        reach = SPLIT * (z.abs() @ W_O.norm(dim=-1)[..., None])  # [head, n, 1]
        left = torch.cat([TF32 * z.norm(dim=-1, keepdim=True), reach, reach * targets.norm(dim=-1)[:, None]], -1)
        lengths = self.vocabulary.lengths(0)
        right = torch.stack([lengths, torch.ones_like(lengths)]).expand(len(M), -1, -1)
        return left @ torch.cat([M.norm(dim=1, keepdim=True), right], 1)

    def written(self, head: Tensor, pair: Tensor) -> Tensor:
        """What each head writes to the residual stream, [m, d_model]. `head` is sorted: its runs are padded."""
        counts = torch.bincount(head, minlength=len(self.z))
        nth = torch.arange(len(head), device=head.device) - (counts.cumsum(0) - counts)[head]
        rows = self.z.new_zeros((len(self.z), int(counts.max()), self.z.shape[-1]))
        rows[head, nth] = self.z[head, pair]
        return (rows @ self.W_O)[head, nth]

    def block(self, i: int, y: Tensor, goal: Tensor, pair: Tensor) -> tuple[Tensor, Tensor]:
        """(better, worse) in block i, for what heads write y [m, d_model] and the logits they give targets [m]."""
        rows, (start, _) = self.vocabulary.block(i), self.vocabulary.spans[i]
        where = self.vocabulary.place[self.target[pair]] - start
        better, worse = [], []
        for part in torch.arange(len(y), device=y.device).split(max(1, self.at_once // len(rows))):
            with _tf32(self.rough):
                logits = y[part] @ rows.T  # [part, block]
            _put(logits, where[part], goal[part])
            margin = TF32 * y[part].norm(dim=-1)[:, None] * self.vocabulary.lengths(i) if self.rough else None
            b, w = _compare(logits, goal[part, None], margin)
            better.append(b)
            worse.append(w)
        if not better:
            return pair, pair  # nobody left: empty both
        return torch.cat(better), torch.cat(worse)


def _split(x: Tensor, other: bool = False) -> Tensor:
    """[…, 3 d] of x […, d]: what TF32 keeps of each number, and what it cuts off, so that a product of x with another,
    split the other way, is nearly that in float32."""
    kept = (x.view(torch.int32) & -(1 << 13)).view(torch.float32)
    return torch.cat([kept, x - kept, kept] if other else [kept, kept, x - kept], -1)


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
