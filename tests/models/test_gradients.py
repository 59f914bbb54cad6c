"""Gradients of models in half precision: the stream is float32 meanwhile, and nothing of that stays behind."""

import copy

import pytest
import torch
from torch import Tensor

from headatlas.models.gradients import _is_plain, frozen_float32_stream, is_norm
from headatlas.models.lm import LM
from tests.models.tiny import TINY, Tiny, build, texts

IDS = torch.tensor(texts((12,)))
POST_NORM = {"opt-350m"}  # what its norms give is its stream
ROUTED = {"mixtral", "deepseek_v3-moe", "qwen3_next", "gpt_oss"}  # rounding may choose other experts


def gate_gradient(lm: LM) -> Tensor:
    """∂ log P of a token behind the text / ∂ gate [layer, head]."""
    gate = torch.ones(lm.n_layers, lm.n_heads, requires_grad=True)
    with frozen_float32_stream(lm), lm.gated(gate):
        logits = lm.model(IDS.to(lm.device), use_cache=False).logits[0, -1]
        (gradient,) = torch.autograd.grad(logits.double().log_softmax(-1)[7], gate)
    return gradient.double()


def error(result: Tensor, expected: Tensor) -> float:
    known = expected.isfinite()
    return float((result - expected)[known].norm() / expected[known].norm())


def in_half(tiny: Tiny, device: str) -> tuple[LM, LM]:
    """The model in float32, and in bfloat16 with the same weights."""
    half = build(tiny).bfloat16().to(device)
    return LM(copy.deepcopy(half).float(), None, "whole"), LM(half, None, "half")


@pytest.mark.parametrize("tiny", TINY, ids=lambda t: t.id)
def test_every_family_adds_up_in_float32(tiny) -> None:
    check_adds_up_in_float32(tiny, "cpu")


def check_adds_up_in_float32(tiny: Tiny, device: str) -> None:
    whole, half = in_half(tiny, device)
    before = {name: p.clone() for name, p in half.model.named_parameters()}
    streams: list[torch.dtype] = []
    for i in range(half.n_layers):
        block = half.model.get_submodule(f"{half.anatomy.blocks}.{i}")
        block.register_forward_hook(
            lambda _, args, out: streams.append((out[0] if isinstance(out, tuple) else out).dtype)
        )
    result = gate_gradient(half)
    assert set(streams) == {torch.bfloat16 if tiny.id in POST_NORM else torch.float32}
    assert error(result, gate_gradient(whole)) < (0.5 if tiny.id in ROUTED else 0.08)
    assert not torch.is_autocast_enabled(device)
    assert all(torch.equal(p, before[name]) and p.dtype == torch.bfloat16 for name, p in half.model.named_parameters())
    half.model(IDS.to(device))
    assert set(streams[half.n_layers :]) == {torch.bfloat16}


@pytest.mark.parametrize(("family", "plain"), [("llama", True), ("qwen3", True), ("gemma2", False), ("gpt2", False)])
def test_plain_norms_are_known_by_what_they_give(family, plain) -> None:
    model = build(next(tiny for tiny in TINY if tiny.id == family))
    norms = [module for module in model.modules() if is_norm(module)]
    generator = torch.Generator().manual_seed(0)
    for norm in norms:  # as built, weights are all 1, or all 0 where 1 is added
        norm.weight.data = torch.rand(norm.weight.shape, generator=generator).to(norm.weight)
    assert {_is_plain(norm) for norm in norms} == {plain}


def test_norms_of_one_class_are_known_one_by_one() -> None:
    """As in Gemma 3n, where some have a weight and others do not."""
    lm = LM(build(TINY[0]).bfloat16(), None, "llama")
    first, second = [m for m in lm.model.modules() if is_norm(m)][:2]
    kind = type(first)

    class Bare(kind):
        def forward(self, x: Tensor) -> Tensor:
            return x / (x.float().pow(2).mean(-1, keepdim=True) + self.variance_epsilon).sqrt()

    Bare.__name__ = kind.__name__
    first.__class__ = second.__class__ = Bare
    del second.weight
    first.weight.data.fill_(2.0)
    assert not _is_plain(first)  # it has a weight, and does not use it
    assert not _is_plain(second)
    assert gate_gradient(lm).isfinite().all()


def test_weights_are_frozen_meanwhile() -> None:
    lm = LM(build(TINY[0]).requires_grad_(True), None, "learning")
    first = next(lm.model.parameters())
    first.requires_grad_(False)
    with pytest.raises(KeyboardInterrupt), frozen_float32_stream(lm):
        assert not any(p.requires_grad for p in lm.model.parameters())
        raise KeyboardInterrupt
    assert [p.requires_grad for p in lm.model.parameters()] == [p is not first for p in lm.model.parameters()]
