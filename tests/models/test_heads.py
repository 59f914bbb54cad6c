"""Reading, gating and patching: the behaviour that does not depend on the family, on one small Llama in float64."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from headatlas.errors import BadArgument
from headatlas.models.lm import LM
from tests.models.tiny import TINY, build, texts, tokenizer

L, H, D = 3, 6, 10


@pytest.fixture(scope="module")
def lm() -> LM:
    return LM(build(TINY[0]), tokenizer(), "tiny")


@pytest.fixture(scope="module")
def hybrid() -> LM:
    return LM(build(next(t for t in TINY if t.family == "qwen3_next")), tokenizer(), "hybrid")


@pytest.fixture(scope="module")
def gpt2() -> LM:
    """For finite differences: Llama's norm rounds to float32 inside, GPT-2's does not."""
    return LM(build(next(t for t in TINY if t.family == "gpt2")), tokenizer(), "gpt2")


def hooks(lm: LM) -> int:
    return sum(len(m._forward_pre_hooks) + len(m._forward_hooks) for m in lm.model.modules())


def logits(lm: LM, ids, side="left"):
    return lm.model(**lm.batch(ids, side)).logits


# --- reading


def test_shape_and_precision(lm: LM) -> None:
    z = lm.head_outputs(texts((4, 7)))
    assert z.shape == (2, 7, L, H, D)
    assert z.dtype == torch.float64
    assert z.device.type == "cpu"


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_positions(lm: LM, side, batch_size) -> None:
    ids = texts((4, 7, 2))
    everything = lm.head_outputs(ids)
    options = {"side": side, "batch_size": batch_size}
    last = torch.stack([everything[0, 3], everything[1, 6], everything[2, 1]])[:, None]
    torch.testing.assert_close(lm.head_outputs(ids, "last", **options), last)
    torch.testing.assert_close(lm.head_outputs(ids, [-1], **options), last)
    torch.testing.assert_close(lm.head_outputs(ids, [1, 0], **options), everything[:, [1, 0]])
    ragged = lm.head_outputs(ids, [[0, -1], [5], [1, 0]], **options)
    torch.testing.assert_close(ragged[0], everything[0, [0, 3]])
    torch.testing.assert_close(ragged[1, 0], everything[1, 5])
    torch.testing.assert_close(ragged[2], everything[2, [1, 0]])
    assert ragged[1, 1].isnan().all()


@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=6), batch_size=st.integers(1, 7), data=st.data())
def test_batching_never_changes_what_is_read(lm: LM, lengths, batch_size, data) -> None:
    ids = texts(tuple(lengths), seed=sum(lengths))
    wanted = [data.draw(st.lists(st.integers(-n, n - 1), min_size=1, max_size=4)) for n in lengths]
    side = data.draw(st.sampled_from(["left", "right"]))
    z = lm.head_outputs(ids, wanted, batch_size=batch_size, side=side)
    for row, (text, positions) in enumerate(zip(ids, wanted, strict=True)):
        torch.testing.assert_close(
            z[row, : len(positions)], lm.head_outputs([text])[0, positions], rtol=1e-11, atol=1e-12
        )
        assert z[row, len(positions) :].isnan().all()


def test_capture_does_not_run_the_lm_head(lm: LM) -> None:
    called = []
    handle = lm.model.get_output_embeddings().register_forward_hook(lambda *a: called.append(1))
    lm.head_outputs(texts())
    handle.remove()
    assert not called


def test_text_and_token_ids_are_the_same(lm: LM) -> None:
    words = "w3 w4 w5"
    ids = lm.tokenizer(words)["input_ids"]
    assert lm.encode(words) == lm.encode([words]) == lm.encode(ids) == [ids]
    assert lm.generate(words, max_new_tokens=3) == lm.generate([words], max_new_tokens=3)[0]


def test_arrays_of_all_kinds_are_taken(lm: LM) -> None:
    z = lm.head_outputs([[3, 4, 5]])
    for same in (np.array([3, 4, 5]), torch.tensor([[3, 4, 5]]), iter([[3, 4, 5]])):
        assert torch.equal(lm.head_outputs(same), z)
    assert torch.equal(lm.head_outputs([[3, 4, 5]], np.array([0, 2])), z[:, [0, 2]])
    with lm.patched((np.int64(0), np.int64(1))):
        assert (lm.head_outputs([[3, 4, 5]])[:, :, 0, 1] == 0).all()


# --- writing


def test_what_follows_the_end_of_a_text_is_not_text(lm: LM) -> None:
    """A row that ends early is filled up to the longest: that must not be decoded."""
    ids = texts((5, 3, 8, 4))
    alone = [lm.generate([i], max_new_tokens=8)[0] for i in ids]
    end = lm.encode(alone[0])[0][2]  # make the third new word of the first text its end
    bare = LM(lm.model, PreTrainedTokenizerFast(tokenizer_object=tokenizer()._tokenizer), "no pad token")
    cut = [bare.generate([i], max_new_tokens=8, eos_token_id=end)[0] for i in ids]
    assert bare.generate(ids, max_new_tokens=8, eos_token_id=end) == cut
    assert len(cut[0].split()) < 8


def test_several_answers_to_one_prompt(lm: LM) -> None:
    torch.manual_seed(0)
    assert len(lm.generate("w1 w2", max_new_tokens=3, do_sample=True, num_return_sequences=3)) == 3
    assert lm.generate([3, 4], max_new_tokens=2) == lm.generate([[3, 4]], max_new_tokens=2)[0]
    assert all(isinstance(t, int) for t in LM(lm.model, None, "bare").generate([3, 4], max_new_tokens=2))


def test_generating_gives_the_unembedding_whole_rows(lm: LM) -> None:
    """Of a slice, PyTorch would copy the matrix for every prompt (on a CPU, in bfloat16)."""
    seen: list[bool] = []
    head = lm.model.get_output_embeddings()
    handle = head.register_forward_hook(lambda _, args, out: seen.append(args[0].is_contiguous()))
    lm.generate_ids([[3, 4], [5, 6]], max_new_tokens=2, eos_token_id=None)
    handle.remove()
    assert seen == [True, True]


def test_two_lms_on_one_model_share_its_gates(lm: LM) -> None:
    other = LM(lm.model, None, "other")
    gates = torch.ones(3, L, H)
    gates[0] = 0
    with lm.gated(gates):
        assert (other.head_outputs(texts((9, 2, 5)))[0].nan_to_num() == 0).all()


# --- gates


def test_a_batch_of_gates_is_each_gate_on_its_own_row(lm: LM) -> None:
    ids = texts()
    gates = torch.rand(4, L, H, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2
    with lm.gated(gates):
        together = logits(lm, ids)
    for row, text in enumerate(ids):
        with lm.gated(gates[row]):
            torch.testing.assert_close(logits(lm, [text])[0], together[row, -len(text) :], rtol=1e-11, atol=1e-12)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000))
def test_a_gate_is_the_same_as_scaled_weights(lm: LM, seed) -> None:
    gate = torch.randn(L, H, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    scaled = LM(copy.deepcopy(lm.model), None, "copy")
    for layer in range(L):
        scaled.weights.output(layer).mul_(gate[layer, :, None, None])
    with lm.gated(gate):
        torch.testing.assert_close(logits(lm, texts()), logits(scaled, texts()), rtol=1e-10, atol=1e-11)


def test_gradients_in_the_gate_match_finite_differences(gpt2: LM) -> None:
    inputs = gpt2.batch(texts((4, 3)))

    def loss(gate: torch.Tensor) -> torch.Tensor:
        with gpt2.gated(gate):
            return gpt2.model(**inputs).logits[:, -1].logsumexp(-1).sum()

    gate = 0.5 + 0.1 * torch.randn(2, 3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.autograd.gradcheck(loss, gate.requires_grad_())
    assert all(p.grad is None for p in gpt2.model.parameters())


def test_gates_nest_by_multiplying(lm: LM) -> None:
    a, b = torch.rand(2, L, H, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    with lm.gated(a), lm.gated(b):
        nested = logits(lm, texts())
    with lm.gated(a * b):
        torch.testing.assert_close(nested, logits(lm, texts()))


def test_what_is_read_inside_a_gate_is_gated(lm: LM) -> None:
    gate = torch.ones(L, H)
    gate[0, 2] = 0.5
    plain = lm.head_outputs(texts())
    with lm.gated(gate):
        z = lm.head_outputs(texts())
    torch.testing.assert_close(z[:, :, 0, 2], plain[:, :, 0, 2] / 2, equal_nan=True)
    torch.testing.assert_close(z[:, :, 0, 3], plain[:, :, 0, 3], equal_nan=True)


@pytest.mark.parametrize("side", ["left", "right"])
def test_positions_of_a_gate_are_tokens_of_the_text(lm: LM, side) -> None:
    ids = texts((4, 7))
    plain = lm.head_outputs(ids)
    for positions, hit in [("last", [[3], [6]]), ([0, -2], [[0, 2], [0, 5]]), ([5], [[], [5]])]:
        with lm.gated(torch.zeros(L, H), positions=positions):
            z = lm.head_outputs(ids, side=side)
        for row, tokens in enumerate(hit):
            zero = (z[row] == 0).all(dim=(1, 2, 3)).nonzero().flatten().tolist()
            assert zero == tokens
        torch.testing.assert_close(z[1, 1, 0], plain[1, 1, 0])  # an ungated token's first layer is as it was


def test_a_gate_on_prompt_tokens_stays_on_them_while_generating(lm: LM) -> None:
    ids = texts((4, 7))
    gate = torch.zeros(L, H)
    with lm.gated(gate, positions=[1]):
        fast = lm.generate(ids, max_new_tokens=5, eos_token_id=None)
        slow = [list(i) for i in ids]
        for _ in range(5):
            for row, token in zip(slow, logits(lm, slow)[:, -1].argmax(-1).tolist(), strict=True):
                row.append(token)
    assert fast == [lm.tokenizer.decode(row[-5:], skip_special_tokens=True) for row in slow]


def test_gates_may_come_from_numpy_lists_and_masks(lm: LM) -> None:
    gate = torch.ones(L, H, dtype=torch.bool)
    gate[1, 1] = False
    seen = []
    for same in (gate, gate.float(), gate.numpy(), gate.tolist(), np.asarray(gate, dtype=np.float32)):
        with lm.gated(same):
            seen.append(logits(lm, texts()))
    assert all(torch.equal(seen[0], s) for s in seen)


# --- patches


def test_patching_back_a_runs_own_z_changes_nothing(lm: LM) -> None:
    ids = texts()
    z, plain = lm.head_outputs(ids), logits(lm, ids)
    for side in ("left", "right"):
        with lm.patched(torch.ones(L, H, dtype=torch.bool), z):
            torch.testing.assert_close(
                logits(lm, ids, side)[0, -1 if side == "left" else len(ids[0]) - 1], plain[0, -1]
            )


def test_patching_another_runs_z_brings_its_value(lm: LM) -> None:
    ids, other = texts((4, 7)), texts((4, 7), seed=9)
    z = lm.head_outputs(other)
    with lm.patched(["L0.H1", (0, 3)], z):
        outputs = lm.head_outputs(ids, side="left")
    plain = lm.head_outputs(ids)
    for head in range(H):
        torch.testing.assert_close(
            outputs[:, :, 0, head], (z if head in (1, 3) else plain)[:, :, 0, head], equal_nan=True
        )
    with lm.patched("L0.H1", z[:1]):  # one example serves a whole batch, as far as it reaches
        outputs = lm.head_outputs(ids)
    torch.testing.assert_close(outputs[1, :4, 0, 1], z[0, :4, 0, 1])
    torch.testing.assert_close(outputs[1, 4:, 0, 1], plain[1, 4:, 0, 1])


def test_patching_a_mean_a_number_and_a_direction(lm: LM) -> None:
    ids = texts((5, 5))
    z = lm.head_outputs(ids)
    mean, direction = z.mean(dim=(0, 1)), torch.arange(D, dtype=torch.float64)
    for value, add, expected in [
        (mean, False, mean[0, 2].expand(2, 5, D)),
        (0.25, False, torch.full((2, 5, D), 0.25, dtype=torch.float64)),
        (direction, True, z[:, :, 0, 2] + direction),
    ]:
        with lm.patched("L0.H2", value, add=add):
            outputs = lm.head_outputs(ids)
        torch.testing.assert_close(outputs[:, :, 0, 2], expected)
        torch.testing.assert_close(outputs[:, :, 0, 1], z[:, :, 0, 1])


def test_patch_is_differentiable_in_its_value(gpt2: LM) -> None:
    inputs = gpt2.batch(texts((4, 3)))

    def loss(direction: torch.Tensor) -> torch.Tensor:
        with gpt2.patched("L1.H2", direction, add=True, positions="last"):
            return gpt2.model(**inputs).logits[:, -1].logsumexp(-1).sum()

    assert torch.autograd.gradcheck(loss, torch.zeros(gpt2.d_head, dtype=torch.float64, requires_grad=True))


# --- leaving nothing behind


def test_no_hook_stays_behind_even_after_an_exception(lm: LM) -> None:
    before, plain = hooks(lm), logits(lm, texts())
    for context in (
        lambda: lm.gated(torch.zeros(L, H)),
        lambda: lm.gated(torch.zeros(L, H), positions="last"),
        lambda: lm.patched("L0.H0"),
    ):
        with pytest.raises(KeyError), context(), context():
            assert hooks(lm) > before
            raise KeyError
        assert hooks(lm) == before
    with pytest.raises(BadArgument), lm.gated(torch.ones(3, L, H)):
        logits(lm, texts((4, 4)))
    assert hooks(lm) == before
    assert torch.equal(logits(lm, texts()), plain)


def test_nothing_is_hooked_when_nothing_is_asked(lm: LM) -> None:
    assert hooks(lm) == 0


# --- layers without heads


def test_gates_on_layers_without_heads_are_let_through(hybrid: LM) -> None:
    gate = torch.ones(hybrid.n_layers, hybrid.n_heads)
    gate[hybrid.layers_without_heads] = torch.nan
    with hybrid.gated(gate):
        assert logits(hybrid, texts()).isfinite().all()


def test_heads_of_layers_without_heads_are_refused(hybrid: LM) -> None:
    with pytest.raises(BadArgument, match="layer 0 has no attention heads"), hybrid.patched("L0.H1"):
        pass
    with pytest.raises(BadArgument, match="layer 0 has no attention heads"):
        hybrid.weights.W_V(0, 1)


# --- bad input: one clear line each


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        (torch.ones(L, H + 1), r"shape \(3, 7\), expected \[layer, head\] = \(3, 6\)"),
        (torch.ones(H), r"shape \(6,\)"),
        (torch.ones(1, 1, L, H), r"\[batch, layer, head\]"),
        (torch.tensor(float("nan")).expand(L, H), r"18 values that are NaN or infinite, the first at L0\.H0"),
        (torch.where(torch.arange(L * H).view(L, H) == 7, torch.inf, 1.0), r"first at L1\.H1"),
    ],
)
def test_bad_gates(lm: LM, gate, message) -> None:
    with pytest.raises(BadArgument, match=message), lm.gated(gate):
        pass


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("L3.H0", "out of range: this model has L0 to L2, H0 to H5"),
        ("L0.H6", "out of range"),
        ((0, -1), "out of range"),
        ("12.5", "write it as L12.H5"),
        (["L0.H0", "x"], "'x' is not a head"),
        (torch.ones(2, 2, dtype=torch.bool), r"expected a bool mask \[layer, head\] = \(3, 6\)"),
        (torch.ones(L, H), "expected a bool mask"),
    ],
)
def test_bad_heads(lm: LM, head, message) -> None:
    with pytest.raises(BadArgument, match=message), lm.patched(head):
        pass


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda lm: lm.head_outputs([]), "texts is empty"),
        (lambda lm: lm.head_outputs(["w1", ""]), r"texts\[1\] is ''"),
        (lambda lm: lm.head_outputs([[1, 2], []]), r"texts\[1\]"),
        (lambda lm: lm.head_outputs([[1] * 65]), "65 tokens long, but the model's context is 64"),
        (lambda lm: lm.head_outputs([[1, 61]]), "vocabulary is 0 to 60"),
        (lambda lm: lm.head_outputs([[1, 2]], [2]), r"token 2 of texts\[0\], which has 2 tokens"),
        (lambda lm: lm.head_outputs([[1, 2]], []), "positions is empty"),
        (lambda lm: lm.head_outputs([[1, 2]], "first"), "'first', expected 'all', 'last'"),
        (lambda lm: lm.head_outputs([[1, 2]], [[0], [1]]), "2 lists for 1 texts"),
        (lambda lm: lm.head_outputs([[1, 2]], batch_size=0), "batch_size is 0"),
        (lambda lm: lm.batch([[1, 2]], side="top"), "side is 'top'"),
        (lambda lm: lm.generate([1] * 60, max_new_tokens=5), "exceed the context of 64"),
        (lambda lm: lm.generate([1], max_new_tokens=0), "max_new_tokens is 0"),
        (lambda lm: lm.gated(None).__enter__(), "gate is a NoneType"),
        (lambda lm: lm.gated(torch.ones(L, H) + 1j).__enter__(), "gate is complex"),
        (lambda lm: lm.patched([0, 1]).__enter__(), r"head 0 is not a head"),
        (lambda lm: lm.weights.W_O(0, 6), "head is 6, expected 0 to 5"),
        (lambda lm: lm.weights.W_V(3, 0), "layer is 3, expected 0 to 2"),
        (lambda lm: lm.patched("L0.H0", torch.ones(L, H)).__enter__(), r"value has shape \(3, 6\)"),
        (lambda lm: lm.patched("L0.H0", torch.ones(D + 1)).__enter__(), r"value has shape \(11,\)"),
    ],
)
def test_bad_input(lm: LM, call, message) -> None:
    with pytest.raises(BadArgument, match=message) as caught:
        call(lm)
    assert "\n" not in str(caught.value)


def test_a_gate_for_a_batch_needs_that_batch(lm: LM) -> None:
    with lm.gated(torch.ones(3, L, H)):
        for call in (lm.head_outputs, lm.generate):
            with pytest.raises(BadArgument, match="4 .* batch of 3"):
                call(texts())
        lm.head_outputs(texts((9, 2, 5)), batch_size=1)  # kept together and in order, whatever the batch size


def test_a_model_without_tokenizer_says_so(lm: LM) -> None:
    bare = LM(lm.model, None, "bare")
    assert bare.head_outputs([[3, 4]]).shape == (1, 2, L, H, D)
    with pytest.raises(BadArgument, match="has no tokenizer"):
        bare.encode(["w1"])
