"""The same promises on CUDA devices. Skipped where there is none; CI never has one."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import headatlas as ha
from headatlas.methods.gate.compute import draw_theta, loss_and_gradient, negative_log_p
from headatlas.methods.maps.ranks import Vocabulary, extremes
from headatlas.methods.probe import compute
from headatlas.models.attention import most_attended_positions
from headatlas.models.generation import generate_answers
from headatlas.models.lm import LM
from headatlas.models.memory import memory, tokens_at_once
from headatlas.models.patching import log_probs_patched
from headatlas.models.streaming_attention import streaming
from headatlas.models.tokens import make_bundle
from headatlas.runs.worker import retry_smaller
from tests.methods.test_half_precision import check_gradients, check_methods
from tests.methods.test_streaming import SEES, WITH, check_half_precision
from tests.models.test_families import questions
from tests.models.test_gradients import check_adds_up_in_float32
from tests.models.tiny import TINY, build, texts, tokenizer
from tests.test_probe_public import questions as cogqa

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.fixture
def folder(tmp_path):
    build(TINY[0]).save_pretrained(tmp_path / "tiny", max_shard_size="30KB")
    tokenizer().save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


@pytest.mark.parametrize("tiny", TINY, ids=lambda t: t.id)
def test_heads_on_a_gpu_equal_heads_on_the_cpu(tiny) -> None:
    on_cpu = ha.load(build(tiny))
    on_gpu = ha.load(build(tiny).to("cuda"))
    gate = torch.rand(on_cpu.n_layers, on_cpu.n_heads, generator=torch.Generator().manual_seed(0))
    tolerance = max(tiny.tolerance, 1e-6) * 10  # Llama and others norm in float32
    with on_cpu.gated(gate), on_gpu.gated(gate.cuda()):
        z = on_gpu.head_outputs(texts())
        torch.testing.assert_close(z, on_cpu.head_outputs(texts()), rtol=tolerance, atol=tolerance, equal_nan=True)
    with on_gpu.gated(torch.ones_like(gate)):
        gated = on_gpu.model(**on_gpu.batch(texts())).logits
    assert torch.equal(gated, on_gpu.model(**on_gpu.batch(texts())).logits)


@pytest.mark.parametrize("tiny", [t for t in TINY if t.id != "falcon-rw"], ids=lambda t: t.id)
def test_where_heads_look_most_is_the_same_on_a_gpu(tiny) -> None:
    ids, rows = texts((23,))[0], [22, 19, 20, 5, 0]
    on_cpu, on_gpu = ha.load(build(tiny)), ha.load(build(tiny).to("cuda"))
    assert torch.equal(most_attended_positions(on_gpu, ids, rows), most_attended_positions(on_cpu, ids, rows))


@pytest.mark.parametrize("tiny", TINY, ids=lambda t: t.id)
def test_gate_gradients_on_a_gpu_equal_those_on_the_cpu(tiny) -> None:
    on_cpu, on_gpu = ha.load(build(tiny)), ha.load(build(tiny).to("cuda"))
    matched = [(make_bundle(group),) for group in questions()]
    theta = draw_theta(on_cpu, [0, 1])
    tolerance = max(tiny.tolerance, 1e-6) * 100
    expected = loss_and_gradient(on_cpu, theta, matched, negative_log_p, 10**6)
    for tokens in (10**6, 60):
        for a, b in zip(loss_and_gradient(on_gpu, theta, matched, negative_log_p, tokens), expected, strict=True):
            torch.testing.assert_close(a.cpu(), b, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("tiny", TINY, ids=lambda t: t.id)
def test_every_family_adds_up_in_float32_on_a_gpu(tiny) -> None:
    check_adds_up_in_float32(tiny, "cuda")


@pytest.mark.parametrize("tiny", TINY, ids=lambda t: t.id)
def test_patching_on_a_gpu_equals_that_on_the_cpu(tiny) -> None:
    on_cpu, on_gpu = ha.load(build(tiny)), ha.load(build(tiny).to("cuda"))
    examples = [a for group in questions() for a in group][:3]
    z = torch.randn(3, on_cpu.n_layers, on_cpu.n_heads, on_cpu.d_head, generator=torch.Generator().manual_seed(0))
    tolerance = max(tiny.tolerance, 1e-6) * 10
    for a, b in zip(log_probs_patched(on_gpu, examples, z), log_probs_patched(on_cpu, examples, z), strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("tiny", WITH, ids=lambda t: t.id)
def test_heads_stream_on_a_gpu_as_on_the_cpu(tiny) -> None:
    ids, results = torch.tensor(texts((30, 30))), []
    for device in ("cpu", "cuda"):
        lm = LM(build(tiny).to(device), None, device)
        alpha = torch.linspace(0, 1, lm.n_layers * lm.n_kv_heads).view(lm.n_layers, -1).requires_grad_()
        with streaming(lm, alpha, *SEES):
            logits = lm.model(ids.to(device), use_cache=False).logits
        results.append((logits.detach().cpu(), torch.autograd.grad(logits[:, -1].logsumexp(-1).sum(), alpha)[0]))
        with streaming(lm, torch.ones_like(alpha), *SEES):
            same = lm.model(ids.to(device), use_cache=False).logits
        assert torch.equal(same, lm.model(ids.to(device), use_cache=False).logits)
    tolerance = max(tiny.tolerance, 1e-6) * 100
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_streaming_in_half_precision(dtype) -> None:
    check_half_precision(dtype, "cuda")


@pytest.mark.parametrize("tiny", [t for t in TINY if t.id in ("llama", "gemma2", "qwen3_next")], ids=lambda t: t.id)
def test_heads_changed_one_by_one_on_a_gpu_as_on_the_cpu(tiny) -> None:
    on_cpu, on_gpu = (LM(build(tiny).to(device), tokenizer(), tiny.id) for device in ("cpu", "cuda"))
    tasks = {"next": [(f"w{i}", f" w{i + 1}") for i in range(30)]}
    told = [ha.function_vector(lm, tasks=tasks, shots=4, limit=3, draws=2, layer=1) for lm in (on_cpu, on_gpu)]
    moved = [ha.influence(lm, ["w1 w5 w9", "w3 w2"], positions="all") for lm in (on_cpu, on_gpu)]
    for name, (one, other) in {"contribution": told, "vector": told, "effect": told, "kl": moved}.items():
        a, b = (torch.tensor(each[name].values) for each in (one, other))
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("check", [check_gradients, check_methods])
def test_half_precision_on_long_packed_rows(check, dtype) -> None:
    check(dtype, "cuda")


def test_the_same_seed_gives_the_same_gates_on_a_gpu(folder) -> None:
    lm = ha.load(folder, "cuda", dtype="float32")
    task = [{"prompt": f"w{i} w{(3 * i) % 40}", "target": f" w{i + 1}"} for i in range(30)]
    once, again = (ha.gate(lm, task, seeds=3, updates=5, batch=8).gate for _ in range(2))
    assert once.equals(again)


def test_a_model_on_two_devices(folder) -> None:
    """The GPU and the CPU as two devices; gates, captures and patches go where each layer is."""
    parts = {"model.embed_tokens": 0, "model.rotary_emb": 0, "model.norm": "cpu", "lm_head": "cpu"}
    spread = ha.load(
        folder, device_map=parts | {"model.layers.0": 0, "model.layers.1": "cpu", "model.layers.2": 0}, dtype="float64"
    )
    plain = ha.load(folder, device="cpu", dtype="float64")
    gate = torch.rand(4, 3, 6, generator=torch.Generator().manual_seed(0), requires_grad=True)
    z = plain.head_outputs(texts())
    results = []
    for lm in (spread, plain):
        with lm.gated(gate), lm.patched(["L0.H1", "L1.H2"], z), lm.gated(gate, positions="last"):
            logits = lm.model(**lm.batch(texts())).logits
        (slope,) = torch.autograd.grad(logits[:, -1].logsumexp(-1).sum(), gate)
        results.append((logits[:, -1].detach().cpu(), slope, lm.head_outputs(texts()), lm.fingerprint()))
    for a, b in zip(*results, strict=True):
        assert a == b if isinstance(a, str) else torch.allclose(a, b, atol=1e-6, equal_nan=True)


def test_auto_chooses_the_gpu_and_the_checkpoints_precision(folder) -> None:
    lm = ha.load(folder)
    assert lm.device.type == "cuda"
    assert lm.model.dtype == torch.float64


def test_cuda_by_number(folder) -> None:
    assert ha.load(folder, "cuda:0").device == torch.device("cuda:0")
    with pytest.raises(ha.HeadAtlasError, match="only"):
        ha.load(folder, f"cuda:{torch.cuda.device_count()}")


@pytest.fixture
def large() -> LM:
    """Of half a gigabyte."""
    sizes = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 8, "num_attention_heads": 16}
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = LlamaForCausalLM(LlamaConfig(vocab_size=1000, **sizes))
    return LM(model.eval().requires_grad_(False), tokenizer(), "large")


@contextmanager
def filled(room: int) -> Iterator[None]:
    """Fill the GPU except for a number of bytes."""
    torch.cuda.empty_cache()
    filler = torch.empty(torch.cuda.mem_get_info()[0] - room, dtype=torch.uint8, device="cuda")
    try:
        yield
    finally:
        del filler
        torch.cuda.empty_cache()


def test_running_out_of_memory_goes_on_with_less_at_once(large, caplog) -> None:
    prompts = [" ".join(f"w{(7 * i + j) % 50}" for j in range(60)) for i in range(120)]
    task = [{"prompt": prompt, "target": f" w{i % 50}"} for i, prompt in enumerate(prompts)]
    options = {"seeds": 2, "updates": 2, "batch": 64}
    plenty = ha.gate(large, task, **options)
    with filled(2**28):
        scarce = ha.gate(large, task, batch_tokens=10**6, **options)
    assert "out of memory with batch_tokens=1000000: retrying with batch_tokens=500000" in caplog.text
    assert caplog.text.count("out of memory") <= 13  # down to 122 tokens: a text has 61
    torch.testing.assert_close(torch.tensor(scarce.gate.values), torch.tensor(plenty.gate.values), rtol=0, atol=2e-3)


def test_answers_are_generated_fewer_at_once_on_a_full_card(large, caplog) -> None:
    prompts = [[4 + (7 * i + j) % 50 for j in range(60)] for i in range(800)]
    plenty = generate_answers(large, prompts, 8)
    with filled(2**28):
        scarce = retry_smaller(lambda: generate_answers(large, prompts, 8))
    assert "out of memory" in caplog.text
    same = [a == b for a, b in zip(plenty, scarce, strict=True)]
    assert sum(same) >= 0.98 * len(same)  # other batches round otherwise, and a tie may go the other way


def test_ranks_on_a_full_card_are_the_same() -> None:
    generator = torch.Generator("cuda").manual_seed(0)
    sizes = ((16, 8000, 64), (16, 64, 256), (20_000, 256))
    z, W_O, rows = (torch.randn(size, generator=generator, device="cuda") for size in sizes)
    target, k = torch.randint(20_000, (8000,), generator=generator, device="cuda"), torch.full((8000,), 10).cuda()
    expected = extremes(z, W_O, target, k, Vocabulary(rows))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    extremes(z, W_O, target, k, Vocabulary(rows))
    assert torch.cuda.max_memory_allocated() - before > 2**28
    with filled(2**28):
        results = extremes(z, W_O, target, k, Vocabulary(rows))
    for ours, theirs in zip(results, expected, strict=True):
        assert torch.equal(ours, theirs)


def test_a_probe_that_does_not_fit_on_a_full_card_is_trained_on_the_cpu(large, caplog, monkeypatch) -> None:
    """The GPU is full when training begins: with so large a model, a probe of this size does not fit."""
    plain = compute.probe_map

    def on_a_full_card(data, *args, **options):
        with filled(2**25):
            return plain(data, *args, **options)

    monkeypatch.setattr(compute, "probe_map", on_a_full_card)
    result = ha.probe(large, cogqa())
    assert "so it is trained on the CPU" in caplog.text
    np.testing.assert_allclose(result.importance.sum(("layer", "head")), 1, rtol=1e-4)


def test_what_fits_is_told_before_loading_and_chosen_from(large, folder, monkeypatch) -> None:
    needs = memory(large.model, 8, torch.float32)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    examples = [{"prompt": " ".join(f"w{(i * j + i) % 50}" for j in range(62)), "target": " w2"} for i in range(1, 129)]
    ha.gate(large, examples, seeds=1, updates=1, batch=64, batch_tokens=10**6)
    used = (torch.cuda.max_memory_allocated() - before) / (2 * 64 * 63)  # both pressures at once
    assert 0.4 < needs.per_token_with_gradients / used < 2.5
    assert 64 < tokens_at_once(large, None) <= 2**30 // (8 * 1024)
    torch.cuda.empty_cache()  # what torch keeps for itself counts as free
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda *a: (10**6, 10**6))
    with pytest.raises(
        ha.HeadAtlasError, match=r"tiny does not fit: .* 1 GPU has 0.\d GiB: try --dtype bfloat16, --device cpu"
    ):
        ha.load(folder, "cuda")
