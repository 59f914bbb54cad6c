"""A model is the user's: after every method, mistake and pair of threads it is as it was."""

import copy
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import pytest
import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import logging as transformers_logging

from headatlas.methods import get_method, method_names
from headatlas.models.attention import attention_of, most_attended_positions, record_attention
from headatlas.models.attention_interface import PREFIX
from headatlas.models.gradients import frozen_float32_stream
from headatlas.models.library_settings import quiet_transformers, without_cudnn_attention
from headatlas.models.lm import LM
from headatlas.models.single_heads import record_blocks, replay_from
from headatlas.models.streaming_attention import streaming
from headatlas.testing import MethodCase, tiny_lm
from tests.models.tiny import TINY, build, texts
from tests.test_contract import QUICK

IDS = texts((12,))[0]


def contents(lm: LM) -> dict[str, Any]:
    """Everything that hangs on a model, its modeling file and the settings of its libraries."""
    seen: dict[str, Any] = {}
    for path, module in lm.model.named_modules():
        seen[path, "class"] = type(module)
        for name, value in vars(module).items():
            seen[path, name] = dict(value) if isinstance(value, dict) else value
        for config in [module.config] if hasattr(module, "config") else []:
            seen[path, "attention"] = config._attn_implementation
            seen[path, "config"] = config.to_dict()
        code = vars(__import__(type(module).__module__, fromlist=["*"]))
        seen[path, "code"] = {name: id(value) for name, value in code.items() if name != "__builtins__"}
    for name, parameter in lm.model.named_parameters():
        seen[name, "parameter"] = (id(parameter), parameter.requires_grad, parameter.dtype, parameter.data_ptr())
        seen[name, "values"] = parameter.detach().clone().tolist()
    functions = {k: v for k, v in ALL_ATTENTION_FUNCTIONS.items() if not k.startswith(PREFIX)}
    settings = [torch.backends.cuda.cudnn_sdp_enabled(), torch.is_autocast_enabled("cpu"), list(warnings.filters)]
    return seen | {"functions": functions, "settings": settings, "level": transformers_logging.get_verbosity()}


class Stopped(Exception):
    """No kind of error that work expects."""


@contextmanager
def unchanged(lm: LM) -> Iterator[None]:
    before = contents(lm)
    try:
        yield
    finally:
        after = contents(lm)
        changed = [key for key in before | after if before.get(key) != after.get(key)]
        assert {key: (before.get(key), after.get(key)) for key in changed} == {}


@contextmanager
def failing_pass(lm: LM, number: int) -> Iterator[None]:
    """The model's last block fails in this pass, and in those after it."""
    passes = 0

    def fail(module: Any, args: Any) -> None:
        nonlocal passes
        passes += 1
        if passes >= number:
            raise Stopped

    with ExitStack() as stack:
        block = lm.model.get_submodule(f"{lm.anatomy.blocks}.{lm.n_layers - 1}")
        stack.callback(block.register_forward_pre_hook(fail).remove)
        yield


def run_method(name: str, lm: LM) -> None:
    work_on(lm, MethodCase(get_method(name).function, **QUICK.get(name, {})))


def work_on(lm: LM, subject: MethodCase) -> None:
    result = subject.method.function(lm, **subject.method.in_preset("quick", subject.options))
    if hasattr(result, "parts"):
        done: dict[str, Any] = {}
        for part in result.parts:
            part.do(lm, **part.arguments, done=done, progress=lambda items, label: items)
        result.combine(lm, **result.arguments, done=done, progress=lambda items, label: items)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", method_names())
def test_every_method_leaves_the_model_as_it_was(name) -> None:
    lm = tiny_lm()
    with unchanged(lm):
        run_method(name, lm)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("name", sorted(set(method_names()) - {"maps", "salient"}))  # these read weights
def test_an_error_in_the_middle_leaves_the_model_as_it_was(name, number) -> None:
    lm = tiny_lm()
    with unchanged(lm), failing_pass(lm, number), pytest.raises(Stopped):
        run_method(name, lm)


def contexts(lm: LM) -> dict[str, Callable[[], AbstractContextManager[Any]]]:
    with record_blocks(lm) as record:
        lm.model(torch.tensor([IDS]), use_cache=False)
    alpha = torch.full((lm.n_layers, lm.n_kv_heads), 0.5)
    return {
        "gated": lambda: lm.gated(torch.zeros(lm.n_layers, lm.n_heads)),
        "patched": lambda: lm.patched("L1.H0", 0.0, positions="last"),
        "gradients": lambda: frozen_float32_stream(lm),
        "replayed": lambda: replay_from(lm, 2, record),
        "streaming": lambda: streaming(lm, alpha, 1, 2),
        "attention": lambda: record_attention(lm, lm.layers_with_heads, len(IDS), torch.float32),
        "kernels": without_cudnn_attention,
        "quiet": quiet_transformers,
    }


CONTEXTS = ("gated", "patched", "gradients", "replayed", "streaming", "attention", "kernels", "quiet")


def in_half(name: str = "llama") -> LM:
    model = build(next(t for t in TINY if t.id == name)).bfloat16().requires_grad_(True)
    return LM(model, None, name)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma3_text"])
@pytest.mark.parametrize("name", CONTEXTS)
def test_what_holds_in_a_block_ends_with_it_though_the_model_fails(name, family) -> None:
    lm = in_half(family)
    make = contexts(lm)[name]
    with unchanged(lm), pytest.raises(Stopped), make(), failing_pass(lm, 1):
        lm.model(torch.tensor([IDS]), use_cache=False)


@pytest.mark.parametrize("name", CONTEXTS)
def test_two_threads_with_an_lm_each_of_one_model_leave_it_as_it_was(name) -> None:
    """The first leaves its block while the second may be inside its own."""
    first = in_half()
    second = LM(first.model, None, "the same")
    inside, entered, left = threading.Event(), threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def run_once() -> None:
        with contexts(first)[name]():
            inside.set()
            entered.wait(0.2)  # the second may have to wait for us
        left.set()

    def other() -> None:
        inside.wait(10)
        with make():
            entered.set()
            left.wait(10)

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as e:  # noqa: BLE001  # shown by the test
            errors.append(e)

    make = contexts(second)[name]
    with unchanged(first):
        threads = [threading.Thread(target=run, args=(work,)) for work in (run_once, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert errors == []


def test_what_is_known_of_a_model_is_shared_by_its_lms_and_not_copied() -> None:
    lm = tiny_lm()
    assert LM(lm.model, None, "the same").state is lm.state
    assert LM(copy.deepcopy(lm.model), None, "a copy").state is not lm.state
    lm.state.batch_divisor *= 2
    assert not any("headatlas" in key for module in lm.model.modules() for key in vars(module))


@pytest.mark.parametrize(
    "tiny", [t for t in TINY if t.id in ("llama", "gemma2", "gpt_oss", "falcon")], ids=lambda t: t.id
)
def test_other_models_of_the_process_keep_their_attention_meanwhile(tiny) -> None:
    """Attention of one model is read and made to stream while another runs."""
    lm, other = LM(build(tiny), None, tiny.id), LM(build(tiny), None, "other")
    expected = other.model(torch.tensor([IDS])).logits
    lm.model(torch.tensor([IDS]), output_attentions=True)  # at the first call, transformers leaves its hooks
    with unchanged(other), record_attention(lm, lm.layers_with_heads, len(IDS), torch.float32):
        assert torch.equal(other.model(torch.tensor([IDS])).logits, expected)
        if tiny.id != "falcon":
            with streaming(lm, torch.zeros(lm.n_layers, lm.n_kv_heads), 1, 1):
                assert torch.equal(other.model(torch.tensor([IDS])).logits, expected)
    with unchanged(lm):
        most_attended_positions(lm, IDS, [3])
        attention_of(lm, torch.tensor([IDS]))
