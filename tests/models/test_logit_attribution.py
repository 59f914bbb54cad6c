"""Direct contributions: against norms written out, and against the model's modules, per family."""

import math
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headatlas.models.lm import LM
from headatlas.models.logit_attribution import PassRecord, head_writes, logit_contributions, logit_scale, record_pass
from tests.models.tiny import TINY, Tiny, build, texts, tokenizer

# OPT-350m norms the stream itself behind every block and has no final norm: no part of it stays what it was.
DIRECT = [t for t in TINY if t.id != "opt-350m"]
OWN_NORM = {"gemma2", "gemma3_text", "gemma3", "olmo2"}  # of the attention's output
PLUS_ONE = ("Gemma", "Qwen3Next")  # their norms' scale is 1 + weight
MLP = ("mlp", "ffn", "fc2")
IDS = texts((6,))[0]

by_family = pytest.mark.parametrize("tiny", DIRECT, ids=lambda t: t.id)
plain_blocks = pytest.mark.parametrize("tiny", [t for t in DIRECT if t.family not in OWN_NORM], ids=lambda t: t.id)


@cache
def lm_of(tiny: Tiny) -> LM:
    return LM(build(tiny), tokenizer(), tiny.id)


@cache
def passed(tiny: Tiny) -> tuple[PassRecord, Tensor]:
    """What a pass leaves behind, and the logits [token, vocabulary]."""
    lm = lm_of(tiny)
    with record_pass(lm) as kept:
        return kept, logits(lm)


@torch.no_grad()
def logits(lm: LM) -> Tensor:
    return lm.model(torch.tensor([IDS]), use_cache=False).logits[0]


def into_norms(lm: LM) -> dict[nn.Module, Tensor]:
    """The input [token, d_model] of every norm as wide as the stream, in the order in which they run."""
    seen: dict[nn.Module, Tensor] = {}

    def keep(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        if args[0].ndim == 3 and args[0].shape[-1] == lm.d_model:
            seen.pop(module, None)
            seen[module] = args[0][0].clone()

    hooks = [m.register_forward_pre_hook(keep) for m in lm.model.modules() if "Norm" in type(m).__name__]
    logits(lm)
    for hook in hooks:
        hook.remove()
    return seen


def frozen(norm: nn.Module, x: Tensor, part: Tensor) -> Tensor:
    """What a part adds to a norm's output, while the norm divides by the size of x; written out."""
    if "LayerNorm" in type(norm).__name__:
        x, part = x - x.mean(-1, keepdim=True), part - part.mean(-1, keepdim=True)
    eps = getattr(norm, "eps", getattr(norm, "variance_epsilon", 1e-5))  # OLMo's is a number in its code
    weight = getattr(norm, "weight", None)
    weight = torch.ones(x.shape[-1]) if weight is None else weight
    if type(norm).__name__.startswith(PLUS_ONE):
        weight = 1 + weight
    return weight * part / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt()


def part_of(lm: LM, kept: PassRecord, layer: int, head: int) -> Tensor:
    """What a head adds to the stream [token, d_model], by the projection itself."""
    site = lm.anatomy.sites[layer]
    assert site is not None
    project = lm.model.get_submodule(site.out)
    alone = torch.zeros_like(kept.z[layer])
    alone[:, head] = kept.z[layer][:, head]
    alone = alone.flatten(-2)[None]
    part = (project(alone) - project(torch.zeros_like(alone)))[0]
    part = part * getattr(lm.model.config, "residual_multiplier", 1.0)
    if lm.anatomy.family in OWN_NORM:
        norm = lm.model.get_submodule(f"{lm.anatomy.blocks}.{layer}").post_attention_layernorm
        part = frozen(norm, into_norms(lm)[norm], part)
    return part


def close(a: Tensor, b: Tensor) -> None:
    """To what float32 can hold: contributions are kept in it."""
    torch.testing.assert_close(a.float(), b.float(), rtol=1e-4, atol=1e-5 * max(1.0, b.abs().max().item()))


@by_family
def test_a_part_changes_the_logits_by_what_is_said(tiny: Tiny, monkeypatch) -> None:
    """The final norm gives what it would without the head's part, at the size it had; the rest is the model's own."""
    lm, (kept, own) = lm_of(tiny), passed(tiny)
    monkeypatch.setattr(lm.model.config.get_text_config(), "final_logit_softcapping", None, raising=False)
    before = logits(lm)
    *_, (final, x) = into_norms(lm).items()
    bias = getattr(final, "bias", None)
    close(frozen(final, x, x) + (0 if bias is None else bias), final(x[None])[0])  # the norm above is this one
    for layer in sorted(kept.z)[:: max(1, len(kept.z) - 1)]:
        for head in (0, lm.n_heads - 1):
            less = frozen(final, x, part_of(lm, kept, layer, head))
            hook = final.register_forward_hook(lambda module, args, out, less=less: out - less)
            lost = before - logits(lm)
            hook.remove()
            lost = lost - lost.mean(-1, keepdim=True)
            for token in (2, len(IDS) - 1):
                parts = head_writes(lm, kept, layer, token)
                assert parts.shape == (lm.n_heads, lm.d_model)
                scale = logit_scale(lm, kept, token, own[token])
                said = logit_contributions(lm, parts[head]) * scale
                close(said, lost[token])
                some = torch.tensor([5, 0, 17])
                close(logit_contributions(lm, parts, some)[head] * scale, said[some])


@plain_blocks
def test_without_the_mlp_a_head_of_the_last_layer_reaches_the_final_norm_as_it_is(tiny: Tiny) -> None:
    lm = lm_of(tiny)
    layer = max(i for i, site in enumerate(lm.anatomy.sites) if site is not None)
    assert layer == lm.n_layers - 1
    block = lm.model.get_submodule(f"{lm.anatomy.blocks}.{layer}")
    mlp = next(getattr(block, name) for name in MLP if hasattr(block, name))

    def nothing(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        if len(args) == 2:  # BLOOM and MPT add the stream inside
            return args[1]
        return tuple(torch.zeros_like(o) for o in output) if isinstance(output, tuple) else torch.zeros_like(output)

    hook = mlp.register_forward_hook(nothing)
    try:
        with record_pass(lm) as kept:
            *_, (final, x) = into_norms(lm).items()
        for head in range(lm.n_heads):
            with lm.patched((layer, head)):
                *_, without = into_norms(lm).values()
            for token in (2, len(IDS) - 1):
                close(head_writes(lm, kept, layer, token)[head], frozen(final, x, x - without)[token])
    finally:
        hook.remove()


@by_family
def test_the_scale_of_the_logits_is_the_configurations(tiny: Tiny) -> None:
    lm, (kept, own) = lm_of(tiny), passed(tiny)
    config = lm.model.config.get_text_config()
    expected = {
        "cohere": getattr(config, "logit_scale", None),
        "cohere2": getattr(config, "logit_scale", None),
        "granite": 1 / getattr(config, "logits_scaling", 1),
    }.get(tiny.family, 1.0)
    for token in range(len(IDS)):
        assert logit_scale(lm, kept, token, own[token]) == pytest.approx(expected, rel=1e-4)
    assert expected == {"cohere": 0.0625, "cohere2": 0.0625, "granite": 0.5}.get(tiny.family, 1.0)


@pytest.mark.parametrize("size", [1, 5, 10, 20, 100])
def test_capped_logits_have_no_scale(size: float) -> None:
    """However far the cap bends them: contributions are those before it."""
    lm = LM(build(next(t for t in TINY if t.id == "gemma2")), tokenizer(), "gemma2")
    cap = lm.model.config.final_logit_softcapping
    largest = (torch.atanh(logits(lm)[-1] / cap) * cap).abs().max()
    norm = lm.model.model.norm
    norm.weight.copy_((1 + norm.weight) * size / largest - 1)
    with record_pass(lm) as kept:
        own = logits(lm)[-1]
    assert own.abs().max().item() == pytest.approx(cap * math.tanh(size / cap), rel=1e-3)
    assert logit_scale(lm, kept, -1, own) == 1
