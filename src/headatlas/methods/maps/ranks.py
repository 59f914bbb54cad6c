"""Decide exactly whether a token is among the k largest or k smallest logits that a head writes, without all logits.

Whether a target is hit depends on its rank alone: the number of tokens with larger logits. Most targets have k better
and k worse tokens in any small sample of the vocabulary, so the vocabulary is read in random order, in growing blocks,
and a target is dropped for a head once k better *and* k worse tokens are found. The rest is decided by counts over all
tokens.

The target's logit is excluded from every comparison: computed by another product, it could differ in the last bit and
count against itself.

On a GPU, products in TF32 are much faster than in float32. Counts are lower bounds there: only tokens that are better
or worse by more than all rounding errors together are counted. What these counts leave undecided is counted again in
float32.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise, repeat

import torch
from torch import Tensor

MIN_LOGITS = 1 << 18  # at once, where memory is short
TF32_ERROR = 2.0**-9  # relative error bound for a product of numbers cut to TF32's 10 bits
SPLIT_ERROR = 2.0**-18  # relative error bound for a product of `_split` numbers: 3 · 2⁻²⁰
SUM_ERROR = 2.0**-26  # relative error bound per term of a sum: tensor cores add eight terms at a time, cut to 24 bits


@dataclass(frozen=True)
class Sizes:
    """Sizes of batches, tuned on 2 cores and on an H200.

    Args:
        blocks: tokens in the first blocks of the vocabulary. The first is small, because all pairs are compared with
            it.
        last: tokens in all further blocks.
        upcast: maximum number of elements of U in float32 at once.
        logits: maximum number of logits at once: few enough for a CPU's caches, enough to keep a GPU busy.
        outputs: maximum number of elements of heads' outputs at once, for pairs that the first block leaves undecided.
        layers: layers whose heads are decided together, because the host waits for the GPU each time.
    """

    blocks: tuple[int, ...]
    last: int
    upcast: int
    logits: int
    outputs: int
    layers: int


SIZES = {
    "cpu": Sizes((1024, 4096, 16384), 65536, upcast=1 << 26, logits=1 << 22, outputs=1 << 28, layers=1),
    "cuda": Sizes((1024, 8192, 32768), 131072, upcast=1 << 31, logits=1 << 28, outputs=1 << 31, layers=4),
}


def sizes(tensor: Tensor) -> Sizes:
    """Return the sizes for a tensor's device."""
    return SIZES.get(tensor.device.type, SIZES["cpu"])


@dataclass(frozen=True)
class Vocabulary:
    """The unembedding as rows [vocabulary, d_model], read in random order. Rows are upcast block by block.

    Args:
        rows: the unembedding.
        dtype: data type of the upcast rows.
        seed: seed of the order.
        keep: whether to keep upcast blocks. They are a second copy of U, which takes memory and saves time.
    """

    rows: Tensor
    dtype: torch.dtype = torch.float32
    seed: int = 0
    keep: bool = True

    @cached_property
    def order(self) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        return torch.randperm(len(self.rows), generator=generator).to(self.rows.device)

    @cached_property
    def place(self) -> Tensor:
        """The place of each token in the order."""
        return torch.argsort(self.order)

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """First place and last place + 1 of each block."""
        edges = [0]
        limits = sizes(self.rows)
        widest = max(1, limits.upcast // self.rows.shape[1])
        for width in chain(limits.blocks, repeat(limits.last)):
            if edges[-1] == len(self.rows):
                break
            edges.append(min(edges[-1] + min(width, widest), len(self.rows)))
        return list(pairwise(edges))

    @cached_property
    def _blocks(self) -> dict[int, Tensor]:
        return {}

    def block(self, i: int) -> Tensor:
        """Return the rows of block i, [token, d_model]."""
        if i in self._blocks:
            return self._blocks[i]
        start, stop = self.spans[i]
        rows = self.rows[self.order[start:stop]].to(self.dtype)
        if self.keep or i == 0:
            self._blocks[i] = rows
        return rows

    def rows_of(self, tokens: Tensor) -> Tensor:
        """Return the rows of tokens, [token, d_model]."""
        return self.rows[tokens].to(self.dtype)

    @cached_property
    def _lengths(self) -> dict[int, Tensor]:
        return {}

    def lengths(self, i: int) -> Tensor:
        """Return ‖row‖ of each row of block i."""
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
    """Return which targets are among the k largest, and which among the k smallest, logits z @ W_O @ U.

    A tie counts for the target, unless all tokens tie: a head that writes nothing, such as a removed one, has no
    largest logit. If memory runs out, batches are halved.

    Args:
        z: [head, pair, d_head].
        W_O: [head, d_head, d_model].
        target: [pair].
        k: [pair].
        vocabulary: U.

    Returns:
        Two bool tensors [head, pair].
    """
    limits = sizes(z)
    while True:
        try:
            return _extremes(z, W_O, target, k, vocabulary, limits)
        except torch.OutOfMemoryError:
            if limits.logits <= MIN_LOGITS:
                raise
        limits = replace(limits, logits=limits.logits // 2, outputs=limits.outputs // 2)
        if z.is_cuda:
            torch.cuda.empty_cache()


@_tf32(False)
def _extremes(
    z: Tensor, W_O: Tensor, target: Tensor, k: Tensor, vocabulary: Vocabulary, limits: Sizes
) -> tuple[Tensor, Tensor]:
    counter = _Counter(z, W_O, target, k, vocabulary, _has_tf32(z), limits)
    top, bottom = torch.zeros((2, *z.shape[:2]), dtype=torch.bool, device=z.device)
    for head, pair, better, worse, y in counter.add_outputs(*counter.survivors()):
        target_logit = (y * vocabulary.rows_of(target[pair])).sum(-1)
        for i in range(1, len(vocabulary.spans)):
            if not len(head):
                break
            better_in_block, worse_in_block = counter.count_block(i, y, target_logit, pair)
            better = better + better_in_block
            worse = worse + worse_in_block
            # one index for all tensors, because the host waits for the GPU to make it
            undecided = ((better < k[pair]) | (worse < k[pair])).nonzero().flatten()
            entries = (head, pair, better, worse, y, target_logit)
            head, pair, better, worse, y, target_logit = (values[undecided] for values in entries)
        if counter.rough:
            undecided = counter.is_undecided(pair, better, worse).nonzero().flatten()
            if len(undecided):
                exact_counts = counter.count_exactly(y[undecided], target_logit[undecided], pair[undecided])
                better[undecided], worse[undecided] = exact_counts
        # False if all tokens tie
        tokens_differ = better + worse > 0
        top[head, pair] = (better < k[pair]) & tokens_differ
        bottom[head, pair] = (worse < k[pair]) & tokens_differ
    return top, bottom


def _has_tf32(z: Tensor) -> bool:
    return z.is_cuda and z.dtype == torch.float32 and torch.cuda.get_device_capability(z.device) >= (8, 0)


@dataclass(frozen=True)
class _Counter:
    """Counts tokens that are better or worse than the target; if `rough`, the counts are lower bounds."""

    z: Tensor
    W_O: Tensor
    target: Tensor
    k: Tensor
    vocabulary: Vocabulary
    rough: bool
    limits: Sizes

    def survivors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return (head, pair, better, worse) of the pairs that the first block leaves undecided, sorted by head."""
        rows = self.vocabulary.block(0)
        targets = self.vocabulary.rows_of(self.target)
        target_place = self.vocabulary.place[self.target]
        split_rows = _split(rows) if self.rough else rows
        split_targets = _split(targets) if self.rough else targets
        undecided = []
        n_heads = max(1, self.limits.logits // max(1, self.z.shape[1] * len(rows)))
        for first in range(0, len(self.z), n_heads):
            z = self.z[first : first + n_heads]
            W_O = self.W_O[first : first + n_heads]
            split_W_O = _split(W_O, right=True) if self.rough else W_O
            with _tf32(self.rough):
                # W_O · U first, because z · W_O · U is then a product over d_head instead of d_model numbers
                M = split_W_O @ split_rows.T  # [head, d_head, block]
                target_logit = (z * (split_targets @ split_W_O.transpose(1, 2))).sum(-1)  # [head, pair]
                logits = z @ M  # [head, pair, block]
            _set_target_logits(logits, target_place, target_logit)
            better, worse = _compare(logits, target_logit[..., None], self._first_margin(z, W_O, M, targets))
            head, pair = ((better < self.k) | (worse < self.k)).nonzero(as_tuple=True)
            undecided.append((head + first, pair, better[head, pair], worse[head, pair]))
        return tuple(torch.cat(parts) for parts in zip(*undecided, strict=True))  # type: ignore[return-value]

    def _first_margin(self, z: Tensor, W_O: Tensor, M: Tensor, targets: Tensor) -> Tensor | None:
        """Bound the sum of the errors of the first block's and the target's logits, [head, pair, block].

        |z · M| ≤ ‖z‖ ‖M‖ bounds the rounding errors of the product. M, and the matrix that gives the target's logit,
        have errors too, relative to ‖W_O's row‖ ‖U's row‖, which z multiplies.
        """
        if not self.rough:
            return None
        d_head, d_model = W_O.shape[1:]
        matrix_error = (SPLIT_ERROR + d_model * SUM_ERROR) * (z.abs() @ W_O.norm(dim=-1)[..., None])  # [head, pair, 1]
        rounding = (TF32_ERROR + d_head * SUM_ERROR) * z.norm(dim=-1, keepdim=True)
        left = torch.cat([rounding, matrix_error, matrix_error * targets.norm(dim=-1)[:, None]], -1)
        lengths = self.vocabulary.lengths(0)
        right = torch.stack([lengths, torch.ones_like(lengths)]).expand(len(M), -1, -1)
        return left @ torch.cat([M.norm(dim=1, keepdim=True), right], 1)

    def add_outputs(
        self, head: Tensor, pair: Tensor, better: Tensor, worse: Tensor
    ) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor, Tensor]]:
        """Yield these values, and heads' outputs to the residual stream [entry, d_model], for some heads at a time.

        `head` must be sorted. In a batch, the entries of each head are padded to the largest number of entries.
        """
        counts = torch.bincount(head, minlength=len(self.z))
        n_entries = counts.tolist()
        column = torch.arange(len(head), device=head.device) - (counts.cumsum(0) - counts)[head]
        for first, last, start, stop in _runs(n_entries, self.limits.outputs // self.W_O.shape[-1]):
            entries = slice(start, stop)
            cell = head[entries] - first, column[entries]
            rows = self.z.new_zeros((last - first, max(n_entries[first:last]), self.z.shape[-1]))
            rows[cell] = self.z[head[entries], pair[entries]]
            yield head[entries], pair[entries], better[entries], worse[entries], (rows @ self.W_O[first:last])[cell]

    def count_block(self, i: int, y: Tensor, target_logit: Tensor, pair: Tensor) -> tuple[Tensor, Tensor]:
        """Return (better, worse) in block i, for heads' outputs y [entry, d_model] and logits of targets [entry]."""
        rows = self.vocabulary.block(i)
        start, _ = self.vocabulary.spans[i]
        target_place = self.vocabulary.place[self.target[pair]] - start
        counts = []
        for part in torch.arange(len(y), device=y.device).split(max(1, self.limits.logits // len(rows))):
            with _tf32(self.rough):
                logits = y[part] @ rows.T  # [part, block]
            _set_target_logits(logits, target_place[part], target_logit[part])
            counts.append(_compare(logits, target_logit[part, None], self._margin(y[part], i)))
        return torch.cat([better for better, _ in counts]), torch.cat([worse for _, worse in counts])

    def _margin(self, y: Tensor, i: int) -> Tensor | None:
        """Bound the error of a logit of block i, [entry, block]."""
        if not self.rough:
            return None
        return (TF32_ERROR + y.shape[1] * SUM_ERROR) * y.norm(dim=-1)[:, None] * self.vocabulary.lengths(i)

    def is_undecided(self, pair: Tensor, better: Tensor, worse: Tensor) -> Tensor:
        """Return which entries the lower bounds over all blocks leave undecided, [entry]."""
        k = self.k[pair]
        others = len(self.vocabulary.rows) - 1
        top = (better < k) & (others - worse >= k)
        bottom = (worse < k) & (others - better >= k)
        return top | bottom | (better + worse == 0)

    def count_exactly(self, y: Tensor, target_logit: Tensor, pair: Tensor) -> tuple[Tensor, Tensor]:
        """Return (better, worse) in all blocks, counted in float32."""
        exact = replace(self, rough=False)
        counts = [exact.count_block(i, y, target_logit, pair) for i in range(len(self.vocabulary.spans))]
        better = torch.stack([block_better for block_better, _ in counts]).sum(0)
        worse = torch.stack([block_worse for _, block_worse in counts]).sum(0)
        return better, worse


def _runs(counts: list[int], max_rows: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield runs of consecutive heads that have at most `max_rows` rows together when padded.

    A run is (first head, last head + 1, first row, last row + 1).
    """
    first = start = stop = widest = 0
    for head, count in enumerate(counts):
        if head > first and (head + 1 - first) * max(widest, count) > max_rows:
            yield first, head, start, stop
            first = head
            start = stop
            widest = 0
        stop += count
        widest = max(widest, count)
    yield first, len(counts), start, stop


def _split(x: Tensor, right: bool = False) -> Tensor:
    """Return x […, d] as […, 3 d]: the bits of each number that TF32 keeps, and the rest of the number.

    The product of a left and a right factor that are split like this is nearly exact in TF32. Small terms come first,
    because a large sum would round them off.
    """
    high = (x.view(torch.int32) & -(1 << 13)).view(torch.float32)
    return torch.cat([x - high, high, high] if right else [high, x - high, high], -1)


def _set_target_logits(logits: Tensor, target_place: Tensor, target_logit: Tensor) -> None:
    """Set logits [..., pair, block] at each target's place [pair] to its logit [..., pair], if it is in the block."""
    row = torch.arange(len(target_place), device=target_place.device)
    place = target_place.clamp(0, logits.shape[-1] - 1)
    logits[..., row, place] = torch.where(place == target_place, target_logit, logits[..., row, place])


def _compare(logits: Tensor, target_logit: Tensor, margin: Tensor | None) -> tuple[Tensor, Tensor]:
    """Count the logits that exceed the target's by more than the margin, and those below it. Overwrites logits."""
    if margin is None:
        return (logits > target_logit).sum(-1), (logits < target_logit).sum(-1)
    logits -= target_logit
    return _count_above(logits, margin), _count_above(logits.neg_(), margin)


def _count_above(logits: Tensor, margin: Tensor) -> Tensor:
    """Count the logits above the margin."""
    # float16, because a sum of bools would first make 64-bit copies of them
    above = torch.gt(logits, margin, out=torch.empty_like(logits, dtype=torch.float16))
    return above.sum(-1, dtype=torch.float32).long()


def join(parts: Sequence[Tensor]) -> Tensor:
    """Concatenate; a single part is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat([*parts])
