"""The fast decision against the obvious one."""

from contextlib import nullcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.overrides import TorchFunctionMode

from headatlas.methods.maps import ranks
from headatlas.methods.maps.ranks import Vocabulary, extremes


def obvious(z: Tensor, W_O: Tensor, target: Tensor, k: Tensor, U: Tensor) -> tuple[Tensor, Tensor]:
    """Straight top-k: the target is in when its logit is at least the k-th largest (at most the k-th smallest), unless
    all logits are equal."""
    top, bottom = torch.zeros(z.shape[:2], dtype=torch.bool), torch.zeros(z.shape[:2], dtype=torch.bool)
    for h in range(len(z)):
        logits = z[h] @ W_O[h] @ U
        for i in range(len(target)):
            mine, count = logits[i, target[i]], min(int(k[i]), U.shape[1])
            differ = logits[i].max() > logits[i].min()
            top[h, i] = differ and mine >= logits[i].topk(count).values[-1]
            bottom[h, i] = differ and mine <= logits[i].topk(count, largest=False).values[-1]
    return top, bottom


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch) -> None:
    """So that a small vocabulary is walked in many blocks, and logits come in many pieces."""
    monkeypatch.setitem(ranks.SIZES, "cpu", ranks.Sizes((3, 5, 8), 13, 60, 40, 50, 1))


@settings(max_examples=150, deadline=None)
@given(data=st.data(), dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]), integers=st.booleans())
def test_equals_top_k(data, dtype, integers) -> None:
    """Integers make exact ties, and sums that are the same in any order and precision; random numbers make neither."""
    heads, n, d_head, d, size = (data.draw(st.integers(1, m)) for m in (4, 7, 4, 6, 60))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 10**6)))

    def draw(*shape: int) -> Tensor:
        if integers:
            return torch.randint(-2, 3, shape, generator=generator).to(torch.float64)
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    z, W_O, U = draw(heads, n, d_head), draw(heads, d_head, d), draw(d, size)
    if integers:
        stored, compute = U.to(dtype), torch.float64 if dtype == torch.float64 else torch.float32
    else:
        stored, compute = U, torch.float64
    target = torch.randint(size, (n,), generator=generator)
    k = torch.randint(1, size + 2, (n,), generator=generator)
    vocabulary = Vocabulary(stored.T, compute, seed=int(target[0]), keep=data.draw(st.booleans()))
    decided = extremes(z.to(compute), W_O.to(compute), target, k, vocabulary)
    for fast, slow in zip(decided, obvious(z, W_O, target, k, U), strict=True):
        assert torch.equal(fast, slow)


def test_a_head_that_writes_nothing_hits_nothing() -> None:
    """Such as one that was removed from a checkpoint."""
    z, W_O, U = (
        torch.ones(2, 3, 4),
        torch.zeros(2, 4, 5),
        torch.randn(5, 40, generator=torch.Generator().manual_seed(0)),
    )
    W_O[1] = 1
    top, bottom = extremes(z, W_O, torch.tensor([0, 7, 39]), torch.full((3,), 40), Vocabulary(U.T))
    assert top.tolist() == bottom.tolist() == [[False] * 3, [True] * 3]


def test_the_targets_own_logit_never_counts_against_it() -> None:
    """Two products of the same numbers differ in the last bit: with k = 1 that alone would turn hits into misses."""
    generator = torch.Generator().manual_seed(0)
    z, W_O = torch.randn(3, 200, 16, generator=generator), torch.randn(3, 16, 64, generator=generator)
    U = torch.randn(64, 300, generator=generator)
    logits = torch.einsum("hnd,hdm,mv->hnv", z.double(), W_O.double(), U.double())
    target = logits[0].argmax(-1)
    top, _ = extremes(z, W_O, target, torch.ones(200, dtype=torch.long), Vocabulary(U.T))
    assert top[0].all()


def test_nothing_depends_on_the_order_of_the_vocabulary() -> None:
    generator = torch.Generator().manual_seed(1)
    z, W_O, U = (torch.randn(s, generator=generator, dtype=torch.float64) for s in ((2, 9, 4), (2, 4, 6), (6, 80)))
    target, k = torch.randint(80, (9,), generator=generator), torch.full((9,), 4)
    results = [extremes(z, W_O, target, k, Vocabulary(U.T, torch.float64, seed)) for seed in range(5)]
    assert all(torch.equal(a[0], results[0][0]) and torch.equal(a[1], results[0][1]) for a in results)


def test_every_token_is_met_once() -> None:
    for size in (1, 2, 3, 8, 16, 17, 100):
        vocabulary = Vocabulary(torch.randn(size, 2))
        met = torch.cat([vocabulary.order[a:b] for a, b in vocabulary.spans])
        assert met.sort().values.tolist() == list(range(size))
        assert torch.equal(vocabulary.order[vocabulary.place], torch.arange(size))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("shift", [0, 0.5, 2])
def test_split_products_on_a_gpu_are_off_by_no_more_than_they_may(shift) -> None:
    """Of long rows of one sign: roundings of their sums add up."""
    a, b = (torch.randn(s, generator=torch.Generator().manual_seed(0)) + shift for s in ((64, 8192), (128, 8192)))
    with ranks._tf32(True):
        ours = (ranks._split(a.cuda()) @ ranks._split(b.cuda(), right=True).T).cpu()
    may = (ranks.SPLIT_ERROR + 8192 * ranks.SUM_ERROR) * a.norm(dim=1)[:, None] * b.norm(dim=1)
    assert ((ours - a.double() @ b.double().T).abs() <= may).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("seed", range(5))
def test_tf32_on_a_gpu_decides_as_float32(seed, monkeypatch) -> None:
    monkeypatch.undo()
    generator = torch.Generator().manual_seed(seed)
    z, W_O = torch.randn(8, 500, 64, generator=generator), torch.randn(8, 64, 512, generator=generator)
    U = torch.randn(512, 20000, generator=generator)
    target = torch.randint(20000, (500,), generator=generator)
    best = torch.einsum("nd,dm,mv->nv", z[0], W_O[0], U).topk(30).indices
    near = torch.arange(500) % 2 == 0  # half of the targets are near the edge of being hit
    target[near] = best[near, torch.randint(30, (500,), generator=generator)[near]]
    k = torch.full((500,), 10)
    exact = extremes(z.double(), W_O.double(), target, k, Vocabulary(U.T.double(), torch.float64))
    here = [t.cuda() for t in (z, W_O, target, k)]
    fast = extremes(*here, Vocabulary(U.T.cuda()))
    assert exact[0].any()
    for a, b in zip(fast, exact, strict=True):
        assert torch.equal(a.cpu(), b)


class Cut(TorchFunctionMode):
    """Products as a GPU makes them in TF32: of numbers cut to 10 bits."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function.__name__ in ("matmul", "__matmul__"):
            args = [(x.contiguous().view(torch.int32) & -(1 << 13)).view(torch.float32) for x in args]
        return function(*args, **kwargs or {})


@pytest.fixture
def cutting(monkeypatch) -> None:
    monkeypatch.setattr(ranks, "_has_tf32", lambda z: z.dtype == torch.float32)
    monkeypatch.setattr(ranks, "_tf32", lambda allow: Cut() if allow else nullcontext())


def near_the_edge(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """z, W_O, U, and targets that are nearly hit or just so; with odd seeds, roundings add up, for signs are equal."""
    generator = torch.Generator().manual_seed(seed)
    z, W_O, U = (torch.randn(s, generator=generator) + 2 * (seed % 2) for s in ((3, 60, 8), (3, 8, 256), (256, 500)))
    best = torch.einsum("nd,dm,mv->nv", z[0], W_O[0], U).topk(30).indices
    return z, W_O, U, best[torch.arange(60), torch.arange(60) % 30]


@pytest.mark.parametrize("seed", range(6))
def test_tf32_decides_as_float64(seed, cutting) -> None:
    z, W_O, U, target = near_the_edge(seed)
    k = torch.full((60,), 10)
    exact = extremes(z.double(), W_O.double(), target, k, Vocabulary(U.T.double(), torch.float64))
    for a, b in zip(extremes(z, W_O, target, k, Vocabulary(U.T)), exact, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("seed", range(6))
def test_tf32_counts_only_those_that_certainly_are_better_or_worse(seed, cutting, monkeypatch) -> None:
    monkeypatch.setitem(ranks.SIZES, "cpu", ranks.Sizes((500,), 500, 1 << 20, 1 << 20, 1 << 30, 1))
    z, W_O, U, target = near_the_edge(seed)
    k = torch.full((60,), 1000)  # so that nothing is decided
    _, _, *counted = ranks._Counter(z, W_O, target, k, Vocabulary(U.T), True, ranks.sizes(z)).survivors()
    logits = z.double() @ W_O.double() @ U.double()
    goal = logits[:, torch.arange(60), target, None]
    for ours, certain in zip(counted, ((logits > goal).sum(-1), (logits < goal).sum(-1)), strict=True):
        assert (ours.view(3, 60) <= certain).all()
        assert seed % 2 or ours.sum() > 0.9 * certain.sum()  # and nearly all of these


def test_tf32_decides_where_k_is_all_of_the_vocabulary(cutting) -> None:
    """Even if no token is certainly better or worse: they do differ."""
    z, W_O, target, k = torch.ones(1, 1, 1), torch.ones(1, 1, 4), torch.tensor([2]), torch.tensor([10])
    U = torch.ones(4, 6)
    U[:, 3] += 1e-5
    assert [hit.item() for hit in extremes(z, W_O, target, k, Vocabulary(U.T))] == [True, True]


@pytest.mark.parametrize("counts", [[0], [3, 0, 2], [0, 0, 0], [1, 9, 1, 1, 1, 0, 4], [12, 12]])
@pytest.mark.parametrize("most", [0, 5, 100])
def test_heads_in_a_row_are_as_many_as_fit_once_padded(counts, most) -> None:
    runs = [*ranks._runs(counts, most)]
    assert [i for first, last, _, _ in runs for i in range(first, last)] == [*range(len(counts))]
    for first, last, start, stop in runs:
        assert (start, stop) == (sum(counts[:first]), sum(counts[:last]))
        assert last - first == 1 or (last - first) * max(counts[first:last]) <= most
    assert most < 100 or len(runs) == 1


@pytest.mark.parametrize("shift", [0, 2])
def test_products_of_split_numbers_in_tf32_are_nearly_those_in_float32(shift) -> None:
    a, b = (torch.randn(s, generator=torch.Generator().manual_seed(0)) + shift for s in ((20, 256), (30, 256)))
    with Cut():
        ours = ranks._split(a) @ ranks._split(b, right=True).T
    exact, bound = a.double() @ b.double().T, a.double().abs() @ b.double().abs().T
    assert ((ours - exact).abs() <= ranks.SPLIT_ERROR * bound).all()


def test_counting_with_a_margin_equals_counting_one_by_one() -> None:
    """What a GPU does in TF32: only those count that are surely above or below."""
    generator = torch.Generator().manual_seed(0)
    logits, goal = torch.randn(3, 4, 50, generator=generator), torch.randn(3, 4, 1, generator=generator)
    margin = torch.rand(3, 4, 50, generator=generator)
    expected = ((logits - goal > margin).sum(-1), (logits - goal < -margin).sum(-1))
    for ours, theirs in zip(ranks._compare(logits.clone(), goal, margin), expected, strict=True):
        assert torch.equal(ours, theirs)


def test_where_memory_is_short_fewer_logits_are_held_at_once(monkeypatch) -> None:
    generator = torch.Generator().manual_seed(0)
    z, W_O, U = (torch.randn(s, generator=generator) for s in ((4, 9, 3), (4, 3, 6), (6, 80)))
    target, k = torch.randint(80, (9,), generator=generator), torch.full((9,), 4)
    expected = extremes(z, W_O, target, k, Vocabulary(U.T))
    plain, held = ranks._compare, []

    def short(logits: Tensor, goal: Tensor, margin: Tensor | None) -> tuple[Tensor, Tensor]:
        held.append(logits.numel())
        if held[-1] > 60:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plain(logits, goal, margin)

    monkeypatch.setattr(ranks, "_compare", short)
    monkeypatch.setattr(ranks, "MIN_LOGITS", 30)
    monkeypatch.setitem(ranks.SIZES, "cpu", ranks.Sizes((3, 5, 8), 13, 60, 4000, 4000, 1))
    for ours, theirs in zip(extremes(z, W_O, target, k, Vocabulary(U.T)), expected, strict=True):
        assert torch.equal(ours, theirs)
    assert max(held) > 60
    monkeypatch.setattr(ranks, "MIN_LOGITS", 2000)
    with pytest.raises(torch.OutOfMemoryError):
        extremes(z, W_O, target, k, Vocabulary(U.T))
