"""Compiled MLPs and rotary embeddings give what plain ones give, and nothing of them stays behind."""

from contextlib import ExitStack, nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch._dynamo.backends.debugging import aot_eager

import headatlas as ha
from headatlas.methods.gate.fits import likelihood, slope, start
from headatlas.models.fused import ROTARY, _attention_code, compiled, fused
from headatlas.models.gradients import for_gradients
from headatlas.models.lm import LM
from headatlas.models.targets import make_bundle
from headatlas.tasks.bundles import MatchedBundles
from tests.models.test_families import questions
from tests.models.tiny import TINY, build

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method:DeprecationWarning")  # older torch, by itself

KINDS = {
    "llama": {"LlamaMLP", ROTARY},
    "gpt2": {"GPT2MLP"},
    "gemma2": {"Gemma2MLP", ROTARY},
    "mixtral": {ROTARY},  # which experts run depends on the data
    "gptj": {"GPTJMLP", ROTARY},
    "opt": set(),  # two matrices, that lie loose in the block
}


@pytest.fixture(autouse=True)
def _nothing_compiled_before() -> None:
    torch._dynamo.reset()


def check_compiled(lm: LM, kinds: set[str] | None, backend: str, near: float) -> None:
    """kinds: what is compiled, where that is known."""
    bundles = [(make_bundle(group),) for group in questions()]
    theta = start(lm, range(2))
    rotations = [vars(home)[ROTARY] for home in _attention_code(lm)]
    torch._dynamo.reset()  # it counts how often a function was compiled, whoever did
    with for_gradients(lm):
        expected = slope(lm, theta, bundles, likelihood, 10**6)
        with compiled(lm, backend) as tried:
            result = slope(lm, theta, bundles, likelihood, 10**6)
        again = slope(lm, theta, bundles, likelihood, 10**6)
    assert kinds is None or {name for name, good in tried.items() if good} == kinds
    for a, b, c in zip(expected, result, again, strict=True):
        torch.testing.assert_close(b, a, rtol=near, atol=near * float(a.abs().max()))
        torch.testing.assert_close(c, a, rtol=near / 100, atol=near / 100 * float(a.abs().max()))
    assert not any("forward" in vars(module) for module in lm.model.modules())
    assert [vars(home)[ROTARY] for home in _attention_code(lm)] == rotations


@pytest.mark.parametrize("name", KINDS)
def test_compiled_parts_give_the_same(name) -> None:
    (tiny,) = (t for t in TINY if t.id == name)
    check_compiled(ha.load(build(tiny), device="cpu"), KINDS[name], "aot_eager", 1e-5)


def test_compiled_parts_give_the_same_in_half_precision() -> None:
    (tiny,) = (t for t in TINY if t.id == "llama")
    check_compiled(ha.load(build(tiny).bfloat16(), device="cpu"), KINDS["llama"], "aot_eager", 2e-2)


@pytest.mark.parametrize("name", ["bloom", "mpt"])
def test_a_trial_leaves_the_graph_whole(name) -> None:
    """Their MLPs take the stream besides what a norm made of it: gradients would run on through the norm."""
    (tiny,) = (t for t in TINY if t.id == name)
    check_compiled(ha.load(build(tiny), device="cpu"), None, "aot_eager", 1e-5)


class Counting:
    """A compiler that counts what it compiled, and gives up after so many."""

    def __init__(self, most: float = float("inf")) -> None:
        self.most, self.graphs = most, 0

    def __call__(self, graph, inputs):
        if self.graphs >= self.most:
            raise OSError("No space left on device")
        self.graphs += 1
        return aot_eager(graph, inputs)


def a_llama() -> tuple[LM, list[MatchedBundles]]:
    (tiny,) = (t for t in TINY if t.id == "llama")
    return ha.load(build(tiny), device="cpu"), [(make_bundle(group),) for group in questions()]


def test_batches_of_other_sizes_are_not_compiled_again() -> None:
    (lm, bundles), compiler = a_llama(), Counting()
    made = []
    with for_gradients(lm), compiled(lm, compiler):
        for seeds, few in ((3, bundles), (4, bundles[:-1]), (2, bundles[:2]), (7, bundles), (6, bundles)):
            slope(lm, start(lm, range(seeds)), few, likelihood, 10**6)
            made.append(compiler.graphs)
    assert made[0] <= 3
    assert made[-1] == made[-3] <= 4  # sizes that were the same by chance make another


@pytest.mark.parametrize("how", ["too often", "the compiler gives up"])
def test_what_cannot_be_compiled_once_more_runs_as_it_is(how) -> None:
    (lm, bundles), compiler = a_llama(), Counting()
    theta = start(lm, range(1))
    with for_gradients(lm), compiled(lm, compiler) as tried:
        slope(lm, start(lm, range(2)), bundles, likelihood, 10**6)
        assert tried == dict.fromkeys(KINDS["llama"], True)
        before = compiler.graphs
        if how == "too often":
            limit = torch._dynamo.config.patch(recompile_limit=1)
        else:
            limit, compiler.most = nullcontext(), before
        with limit:
            result = slope(lm, theta, bundles[:1], likelihood, 10**6)  # a batch of one is another kind of input
    with for_gradients(lm):
        expected = slope(lm, theta, bundles[:1], likelihood, 10**6)
    assert compiler.graphs == before
    for a, b in zip(expected, result, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-5 * float(a.abs().max()))


def test_two_models_of_a_family_leave_nothing_behind_in_whatever_order_they_end() -> None:
    (lm, _), (other, _) = a_llama(), a_llama()
    (home,) = _attention_code(lm)
    plain = vars(home)[ROTARY]
    first, second = ExitStack(), ExitStack()
    first.enter_context(compiled(lm, "aot_eager"))
    second.enter_context(compiled(other, "aot_eager"))
    first.close()
    second.close()
    assert vars(home)[ROTARY] is plain


@pytest.mark.parametrize("no_compiler_at_all", [False, True])
def test_what_cannot_be_compiled_runs_as_it_is(monkeypatch, caplog, no_compiler_at_all) -> None:
    lm = ha.load(build(TINY[0]), device="cpu")

    def broken(*args, **kwargs):
        raise RuntimeError("no compiler here")

    if no_compiler_at_all:  # as on a Python that is too new
        monkeypatch.setattr("torch.compile", broken)
    with caplog.at_level("INFO", "headatlas.models.fused"), compiled(lm, broken) as tried, for_gradients(lm):
        slope(lm, start(lm, range(2)), [(make_bundle(group),) for group in questions()], likelihood, 10**6)
    assert tried == dict.fromkeys(KINDS[TINY[0].id], False)
    assert "it cannot be compiled" in caplog.text


@pytest.mark.parametrize(
    ("updates", "wide", "device", "expected"),
    [
        (500, 1024, "cuda", True),
        (499, 1024, "cuda", False),
        (500, 1023, "cuda", False),
        (500, 1024, "cpu", False),
    ],
)
def test_only_long_fits_of_wide_models_on_a_gpu_are_compiled(monkeypatch, updates, wide, device, expected) -> None:
    lm = SimpleNamespace(d_model=wide, device=torch.device(device))
    called = []
    monkeypatch.setattr("headatlas.models.fused.compiled", lambda model: called.append(model) or nullcontext())
    with fused(lm, updates):
        pass
    assert called == [lm] * expected
