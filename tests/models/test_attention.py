"""Where heads look most, read with the model's kernel: the same as from whole attention matrices."""

from functools import cache

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from headatlas.errors import UnsupportedModel
from headatlas.models.attention import _argmax_during_pass, attention_of, most_attended_positions, record_attention
from headatlas.models.lm import LM
from headatlas.testing import tiny_lm
from tests.models.tiny import TINY, Tiny, build, texts

IDS = texts((23,))[0]  # longer than the sliding windows of the tiny models
ROWS = [22, 19, 20, 5, 0]
OLD = ("gpt_neo", "gptj", "bloom", "falcon", "mpt")  # families that do not use transformers' attention interface

by_family = pytest.mark.parametrize("tiny", TINY, ids=lambda t: t.id)


@cache
def lm_of(tiny: Tiny) -> LM:
    return LM(build(tiny), None, tiny.id)


@by_family
def test_equals_whole_attention_matrices(tiny: Tiny) -> None:
    lm = lm_of(tiny)
    if tiny.id == "falcon-rw":
        with pytest.raises(UnsupportedModel, match="cannot read the attention of FalconForCausalLM"):
            most_attended_positions(lm, IDS, ROWS)
        return
    positions = most_attended_positions(lm, IDS, ROWS)
    attention = attention_of(lm, torch.tensor([IDS]))
    assert positions.shape == (lm.n_layers, lm.n_heads, len(ROWS))
    for layer in range(lm.n_layers):
        if layer in lm.layers_without_heads:
            assert (positions[layer] == -1).all()
        else:
            assert torch.equal(positions[layer], attention[layer][0][:, ROWS].argmax(-1))


@by_family
def test_is_read_argmax_during_pass_where_the_model_has_the_interface(tiny: Tiny) -> None:
    positions = _argmax_during_pass(lm_of(tiny), torch.tensor([IDS]), torch.tensor(ROWS))
    assert (positions is None) == (tiny.family in OLD)


@by_family
def test_all_of_it_is_kept_in_some_layers_even_while_gradients_are_taken(tiny: Tiny) -> None:
    """Of gated heads too; the gradient is what it is without keeping anything."""
    lm, ids = lm_of(tiny), torch.tensor([IDS])
    layers = lm.layers_with_heads[-2:]
    gate = torch.rand(lm.n_layers, lm.n_heads, generator=torch.Generator().manual_seed(0)).requires_grad_()

    def slope() -> torch.Tensor:
        with lm.gated(gate):
            return torch.autograd.grad(lm.model(ids, use_cache=False).logits[0, -1, 0], gate)[0]

    with record_attention(lm, layers, len(IDS), torch.float64) as stored:
        kept_slope = slope()
    assert set(stored) == (set() if tiny.family in OLD else set(layers))
    torch.testing.assert_close(kept_slope, slope())
    if stored:
        with lm.gated(gate.detach()):
            expected_attention = attention_of(lm, ids, layers)
        for layer in layers:
            assert not stored[layer].requires_grad
            torch.testing.assert_close(
                stored[layer], expected_attention[layer][0].double(), rtol=1e-4, atol=1e-5
            )  # some in float32


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt_oss", "deepseek_v3"])
def test_in_half_precision(family) -> None:
    """Whole matrices are rounded to bfloat16, so that several keys may be largest: ours must be one of them."""
    lm = LM(build(next(t for t in TINY if t.id == family)).to(torch.bfloat16), None, family)
    assert _argmax_during_pass(lm, torch.tensor([IDS]), torch.tensor(ROWS)) is not None
    positions = most_attended_positions(lm, IDS, ROWS)
    for layer, attention in attention_of(lm, torch.tensor([IDS])).items():
        rows = attention[0][:, ROWS].float()
        ours = rows.gather(-1, positions[layer][..., None])[..., 0]
        assert (ours >= rows.amax(-1) * (1 - 2**-6)).all()


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor that was made."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **kwargs or {})
        self.size = max([self.size, *(t.numel() for t in tree_leaves(out) if isinstance(t, torch.Tensor))])
        return out


def test_memory_grows_with_the_length_of_the_text() -> None:
    lm, sizes = tiny_lm(context=2048), {}
    for length in (512, 1024):
        with Largest() as largest:
            most_attended_positions(lm, texts((length,))[0], range(length - 8, length))
        sizes[length] = largest.size
    assert sizes[1024] < 1024**2
    assert sizes[1024] == 2 * sizes[512]


def test_nothing_stays_in_the_interface(monkeypatch) -> None:
    lm, before = lm_of(TINY[0]), dict(ALL_ATTENTION_FUNCTIONS._local_mapping)
    logits = lm.model(torch.tensor([IDS])).logits
    most_attended_positions(lm, IDS, ROWS)
    assert ALL_ATTENTION_FUNCTIONS._local_mapping == before
    assert torch.equal(lm.model(torch.tensor([IDS])).logits, logits)
    with pytest.raises(IndexError):
        most_attended_positions(lm, IDS, [99])
    assert ALL_ATTENTION_FUNCTIONS._local_mapping == before
    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._local_mapping, "sdpa", ALL_ATTENTION_FUNCTIONS["sdpa"])
    mine = dict(ALL_ATTENTION_FUNCTIONS._local_mapping)
    most_attended_positions(lm, IDS, ROWS)  # what someone else put there is kept
    assert ALL_ATTENTION_FUNCTIONS._local_mapping == mine


def test_a_kernel_that_does_something_else_is_not_believed(monkeypatch) -> None:
    """A kernel that sees only half of the keys: plain attention does not give its output, so nothing is returned."""
    sdpa = ALL_ATTENTION_FUNCTIONS["sdpa"]

    def half_blind(module, query, key, value, mask, **options):
        return sdpa(
            module, query, key, torch.where(torch.arange(key.shape[2])[:, None] % 2 == 0, value, 0), mask, **options
        )

    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._local_mapping, "sdpa", half_blind)
    lm = lm_of(TINY[0])
    assert _argmax_during_pass(lm, torch.tensor([IDS]), torch.tensor(ROWS)) is None
    with pytest.raises(UnsupportedModel, match="cannot read the attention of"):
        most_attended_positions(lm, IDS, ROWS)
