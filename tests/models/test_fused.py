"""Compiled norms and MLPs give what plain ones give, and nothing of them stays behind."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

import headatlas as ha
from headatlas.methods.gate.fits import likelihood, slope, start
from headatlas.models.fused import compiled, fused
from headatlas.models.gradients import for_gradients
from headatlas.models.lm import LM
from headatlas.models.targets import make_bundle
from tests.models.test_families import questions
from tests.models.tiny import TINY, build

KINDS = {
    "llama": {"LlamaMLP", "LlamaRMSNorm"},
    "gpt2": {"GPT2MLP", "LayerNorm"},
    "gemma2": {"Gemma2MLP", "Gemma2RMSNorm"},
    "mixtral": {"MixtralRMSNorm"},  # which experts run depends on the data
}


def check_compiled(lm: LM, kinds: set[str], backend: str, near: float) -> None:
    bundles = [(make_bundle(group),) for group in questions()]
    theta = start(lm, range(2))
    with for_gradients(lm):
        expected = slope(lm, theta, bundles, likelihood, 10**6)
        with compiled(lm, backend) as names:
            result = slope(lm, theta, bundles, likelihood, 10**6)
        again = slope(lm, theta, bundles, likelihood, 10**6)
    assert set(names) == kinds
    for a, b, c in zip(expected, result, again, strict=True):
        torch.testing.assert_close(b, a, rtol=near, atol=near * float(a.abs().max()))
        torch.testing.assert_close(c, a, rtol=near / 100, atol=near / 100 * float(a.abs().max()))
    assert not any("forward" in vars(module) for module in lm.model.modules())


@pytest.mark.parametrize("name", KINDS)
def test_compiled_parts_give_the_same(name) -> None:
    (tiny,) = (t for t in TINY if t.id == name)
    check_compiled(ha.load(build(tiny), device="cpu"), KINDS[name], "aot_eager", 1e-5)


def test_compiled_parts_give_the_same_in_half_precision() -> None:
    (tiny,) = (t for t in TINY if t.id == "llama")
    check_compiled(ha.load(build(tiny).bfloat16(), device="cpu"), KINDS["llama"], "aot_eager", 2e-2)


def test_what_cannot_be_compiled_runs_as_it_is(caplog) -> None:
    lm = ha.load(build(TINY[0]), device="cpu")

    def broken(*args):
        raise RuntimeError("no compiler here")

    with caplog.at_level("INFO", "headatlas.models.fused"), compiled(lm, broken) as names:
        lm.model(torch.arange(8)[None])
    assert names == []
    assert "it cannot be compiled" in caplog.text


@pytest.mark.parametrize(
    ("passes", "wide", "device", "expected"),
    [
        (100, 1024, "cuda", True),
        (99, 1024, "cuda", False),
        (100, 1023, "cuda", False),
        (100, 1024, "cpu", False),
    ],
)
def test_only_long_fits_of_wide_models_on_a_gpu_are_compiled(monkeypatch, passes, wide, device, expected) -> None:
    lm = SimpleNamespace(d_model=wide, device=torch.device(device))
    called = []
    monkeypatch.setattr("headatlas.models.fused.compiled", lambda model: called.append(model) or nullcontext())
    with fused(lm, passes):
        pass
    assert called == [lm] * expected
