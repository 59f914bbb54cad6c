"""GGUF files of several families: their weights and tokens, what is refused, and how much memory it takes."""

import logging
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

import headatlas as ha
from headatlas.errors import BadFile
from headatlas.models.cache import cached_models
from headatlas.models.gguf import opens_with_bos, read_header
from headatlas.progress import default_progress
from headatlas.tasks.questions import Question, prompt_ids, with_answer
from tests.models.tiny_gguf import FAMILIES, TinyGGUF, tiny_llama, write_family, write_gguf

TEXTS = ["the cat", " the cat", "cat12 the\n", "thé\tcat", "the and cat"]
families = pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("HEADATLAS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def family_named(name: str) -> TinyGGUF:
    return next(f for f in FAMILIES if f.name == name)


# --- weights


@families
def test_a_gguf_is_the_model_it_was_made_of(family, tmp_path) -> None:
    model = family.build()
    write_family(tmp_path / "tiny.gguf", family, model)
    lm = ha.load(tmp_path / "tiny.gguf")
    loaded = lm.model.state_dict()
    assert loaded.keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        near = 1e-6 if "norm" in name else 0  # Gemma's are written plus one
        torch.testing.assert_close(loaded[name], tensor, rtol=0, atol=near)
    ids = torch.arange(20)[None]
    with torch.no_grad():
        torch.testing.assert_close(lm.model(ids).logits, model(ids).logits, rtol=1e-4, atol=1e-4)


@families
def test_a_quantised_gguf_is_kept_in_two_bytes_a_weight(family, tmp_path, cache) -> None:
    model = family.build()
    write_family(tmp_path / "tiny.gguf", family, model, quantise=True)
    lm = ha.load(tmp_path / "tiny.gguf")
    assert lm.model.dtype == torch.float32
    weights = sum(p.numel() for p in model.parameters())
    cached_bytes = sum(p.stat().st_size for p in cached_models()[0].glob("*.safetensors"))
    assert cached_bytes < 2.05 * weights + 10_000  # vectors stay in float32; each tensor is named in a header
    loaded = lm.model.state_dict()
    for name, tensor in model.state_dict().items():
        # Q8_0 is within half a step, 1/127 of its block's largest; float16 adds 1/2048 of the value
        torch.testing.assert_close(loaded[name], tensor, rtol=5e-4, atol=float(tensor.abs().max()) / 200 + 1e-6)


def test_what_is_stored_is_what_the_file_dequantises_to(tmp_path) -> None:
    """Every kind of number a file may hold: as it is where two bytes or four hold it, else the nearest float16."""
    model = tiny_llama(num_hidden_layers=6)
    kinds = [gguf.GGMLQuantizationType[k] for k in ("F32", "F16", "BF16", "Q4_0", "Q5_1", "Q8_0")]
    write_gguf(tmp_path / "tiny.gguf", model, kinds=kinds)
    loaded = ha.load(tmp_path / "tiny.gguf").model.state_dict()
    seen = set()
    for i, (name, tensor) in enumerate(
        (n, t) for n, t in model.state_dict().items() if n.endswith("mlp.down_proj.weight")
    ):
        kind = kinds[i]
        wanted = torch.from_numpy(gguf.dequantize(gguf.quantize(tensor.numpy(), kind), kind))
        wanted = wanted if kind.name in ("F32", "F16", "BF16") else wanted.half().float()
        assert torch.equal(loaded[name], wanted), kind.name
        seen.add(kind.name)
    assert len(seen) == len(kinds)


def test_a_value_that_float16_cannot_hold_is_kept(tmp_path) -> None:
    model = tiny_llama()
    with torch.no_grad():
        model.model.layers[0].mlp.down_proj.weight[3] = 1e6
    write_gguf(tmp_path / "tiny.gguf", model, kinds=[gguf.GGMLQuantizationType.Q8_0])
    assert ha.load(tmp_path / "tiny.gguf").model.model.layers[0].mlp.down_proj.weight[3, 0].item() == pytest.approx(
        1e6, rel=1e-3
    )


def test_llama_3_scales_its_rotary_frequencies(tmp_path, caplog) -> None:
    """Its files hold only what each frequency is divided by."""
    llama3 = {
        "rope_type": "llama3",
        "rope_theta": 500_000.0,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    }
    model = tiny_llama(
        rope_parameters=llama3 | {"original_max_position_embeddings": 8192}, max_position_embeddings=16_384
    )
    plain = tiny_llama(rope_parameters={"rope_type": "default", "rope_theta": 500_000.0})
    factors = (plain.model.rotary_emb.inv_freq / model.model.rotary_emb.inv_freq).numpy()
    assert factors[0] == 1 < factors[2] < 31 < factors[3]  # a head of 8 has four, and one of them is in between
    write_gguf(tmp_path / "tiny.gguf", model, more={"rope_freqs.weight": factors}, rope_theta=500_000.0)
    with caplog.at_level(logging.WARNING, "headatlas"):
        lm = ha.load(tmp_path / "tiny.gguf")
    torch.testing.assert_close(lm.model.model.rotary_emb.inv_freq, model.model.rotary_emb.inv_freq)
    assert "scales its" not in caplog.text
    write_gguf(tmp_path / "other.gguf", model, more={"rope_freqs.weight": factors + 1}, rope_theta=500_000.0)
    with caplog.at_level(logging.WARNING, "headatlas"):
        ha.load(tmp_path / "other.gguf")
    assert "other.gguf scales its rotary positions (rope_freqs.weight), which is ignored" in caplog.text


# --- tokens


def hub_folder(family: TinyGGUF, folder: Path, opens: bool) -> ha.LM:
    family.build().save_pretrained(folder)
    family.tokenizer(opens).save_pretrained(folder)
    return ha.load(folder)


@families
@pytest.mark.parametrize("add_bos", [None, True, False], ids=["unsaid", "with BOS", "without BOS"])
def test_a_gguf_and_a_hub_folder_encode_alike(family, add_bos, tmp_path) -> None:
    """Where the file says nothing of BOS, as the family's tokenizers on the hub do."""
    opens = family.opens if add_bos is None else add_bos
    hub = hub_folder(family, tmp_path / "hub", opens)
    write_family(tmp_path / "tiny.gguf", family, family.build(), add_bos)
    lm = ha.load(tmp_path / "tiny.gguf")
    bos = family.vocabulary["tokens"].index(family.bos)
    for text in TEXTS:
        ids = lm.encode(text)[0]
        assert ids == hub.encode(text)[0], text
        assert (ids[0] == bos) == opens
        assert bos not in ids[1:]
    again = ha.load(cached_models()[0].name)  # by its own name, from the cache
    assert again.encode(TEXTS) == lm.encode(TEXTS)


def test_bos_that_the_file_does_not_name(tmp_path, caplog) -> None:
    """It is token 1 of SentencePiece; in a byte-level vocabulary it could be any."""
    for name in ("llama-2", "llama-3"):
        family = family_named(name)
        write_family(tmp_path / f"{name}.gguf", family, family.build(), names_bos=False)
        with caplog.at_level(logging.WARNING, "headatlas"):
            ids = ha.load(tmp_path / f"{name}.gguf").encode("the cat")[0]
        assert (ids[0] == 1) == (name == "llama-2")
        assert ("does not say whether texts begin with BOS, and which" in caplog.text) == (name == "llama-3")


def test_eos_is_added_where_the_file_says_so(tmp_path) -> None:
    family = family_named("llama-2")
    write_family(tmp_path / "tiny.gguf", family, family.build(), add_eos_token=True)
    ids = ha.load(tmp_path / "tiny.gguf").encode("the cat")[0]
    assert (ids[0], ids[-1]) == (1, 2)


@pytest.mark.parametrize("family", [f for f in FAMILIES if f.opens], ids=lambda f: f.name)
def test_a_text_that_begins_with_bos_gets_no_second_one(family, tmp_path) -> None:
    write_family(tmp_path / "tiny.gguf", family, family.build())
    lm = ha.load(tmp_path / "tiny.gguf")
    bos = family.vocabulary["tokens"].index(family.bos)
    assert lm.encode(f"{family.bos}the cat")[0].count(bos) == 1
    assert lm.encode(f"{family.bos}{family.bos}the cat")[0].count(bos) == 2


@pytest.mark.parametrize("writes", [True, False], ids=["template writes BOS", "template does not"])
def test_a_chat_template_decides_about_bos(writes, tmp_path) -> None:
    family = family_named("gemma3")
    template = "{{ bos_token if " + str(writes).lower() + " else '' }}{{ messages[0]['content'] }}"
    write_family(tmp_path / "tiny.gguf", family, family.build(), chat_template=template)
    lm = ha.load(tmp_path / "tiny.gguf")
    bos = family.vocabulary["tokens"].index(family.bos)
    question = Question("the cat", (), "the", "cat", "Inference")
    prompt = prompt_ids(lm, question)
    assert prompt.count(bos) == writes
    assert with_answer(lm, question, "cat").prompt == prompt
    assert with_answer(lm, question, "cat", template=False).prompt.count(bos) == 1


def test_bos_that_cannot_be_told_is_said_once(tmp_path, caplog) -> None:
    """A byte-level vocabulary without a name, and separate tokens for beginning and end: Llama 3, or another?"""
    write_gguf(tmp_path / "tiny.gguf", tiny_llama())
    with caplog.at_level(logging.WARNING, "headatlas"):
        lm = ha.load(tmp_path / "tiny.gguf")
        ha.load(tmp_path / "tiny.gguf")
    [message] = [r.getMessage() for r in caplog.records]
    assert "tiny.gguf does not say whether texts begin with <bos>: they are encoded without it" in message
    assert lm.encode("ab") == [[4]]


@pytest.mark.parametrize(
    ("model", "pre", "expected"),
    [
        ("llama", None, True),
        ("gemma4", None, True),
        ("gpt2", "llama-bpe", True),
        ("gpt2", "tekken", True),
        ("gpt2", "qwen2", False),
        ("gpt2", "smollm", False),
        ("gpt2", None, None),
        ("t5", None, False),
    ],
)
def test_bos_by_kind_of_vocabulary(model, pre, expected) -> None:
    """What llama.cpp does where the file has no `add_bos_token`; for `gpt2` without a name, we do not know."""
    metadata = {"tokenizer.ggml.model": model, "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2}
    metadata |= {"tokenizer.ggml.pre": pre} if pre else {}
    assert opens_with_bos(metadata) is expected
    assert opens_with_bos(metadata | {"tokenizer.ggml.add_bos_token": True}) is True
    assert opens_with_bos(metadata | {"tokenizer.ggml.add_bos_token": False}) is False


# --- what is refused, before anything is converted


def test_a_truncated_file_says_so(tmp_path, cache) -> None:
    write_gguf(tmp_path / "good.gguf", tiny_llama())
    good = (tmp_path / "good.gguf").read_bytes()
    read_header(tmp_path / "good.gguf")
    for size in (0, 3, 10, 500, len(good) // 2, len(good) - 40):
        (tmp_path / "bad.gguf").write_bytes(good[:size])
        with pytest.raises(BadFile, match=f"bad.gguf is truncated: it has {size:,} bytes, but needs at least"):
            ha.load(tmp_path / "bad.gguf")
    assert not cache.exists()


def test_tensors_that_are_no_part_of_the_model_are_refused(tmp_path, cache) -> None:
    write_gguf(tmp_path / "tiny.gguf", tiny_llama(), more={"blk.0.attn_q_norm.weight": np.ones(8, np.float32)})
    with pytest.raises(BadFile, match="has a tensor blk.0.attn_q_norm.weight, which is not one of a LlamaForCausalLM"):
        ha.load(tmp_path / "tiny.gguf")
    assert not cached_models()


def test_weights_that_are_not_numbers_are_refused(tmp_path) -> None:
    model = tiny_llama()
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[3, 4] = torch.nan
    write_gguf(tmp_path / "tiny.gguf", model)
    with pytest.raises(BadFile, match="tiny.gguf: tensor blk.1.ffn_up.weight holds NaN or infinity"):
        ha.load(tmp_path / "tiny.gguf")
    assert not cached_models()


# --- how much memory it takes


def test_converting_holds_a_few_tensors_and_not_the_model(tmp_path, cache) -> None:
    """In a separate process: the peak memory, minus that at the start."""
    model = tiny_llama(hidden_size=1024, intermediate_size=2048, num_hidden_layers=1, vocab_size=512)
    write_gguf(tmp_path / "wide.gguf", model, quantise=True, layers=10)
    code = f"""
import resource
from pathlib import Path
from headatlas.models import gguf
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
gguf.SHARD_BYTES //= 8  # the same ratio to the model as for real ones
before = peak()
gguf.from_gguf(Path({str(tmp_path / "wide.gguf")!r}))
print(before, peak())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    before, peak = map(int, done.stdout.split())
    sizes = [f.stat().st_size for f in cached_models()[0].glob("*.safetensors")]
    assert 180e6 < sum(sizes) < 200e6  # 95 million weights of two bytes
    assert peak - before < 0.8 * sum(sizes), done.stdout


def test_progress_is_shown_while_it_happens(tmp_path) -> None:
    messages = []

    def progress(items, label):
        for i, item in enumerate(items):
            messages.append((label, i + 1, len(items)))
            yield item

    write_gguf(tmp_path / "tiny.gguf", tiny_llama(), quantise=True)
    token = default_progress.set(progress)
    try:
        ha.load(tmp_path / "tiny.gguf")
    finally:
        default_progress.reset(token)
    assert messages[0][0] == "dequantising tiny.gguf"
    assert messages[-1][1] == messages[-1][2] >= len(read_header(tmp_path / "tiny.gguf").tensors)
    messages.clear()
    ha.load(tmp_path / "tiny.gguf")
    assert not messages


def test_an_architecture_that_transformers_reads_all_at_once(tmp_path, monkeypatch) -> None:
    def unknown(*arguments):
        raise NotImplementedError

    write_gguf(tmp_path / "tiny.gguf", tiny_llama(), quantise=True)
    one_by_one = ha.load(tmp_path / "tiny.gguf")
    monkeypatch.setenv("HEADATLAS_CACHE", str(tmp_path / "other"))
    monkeypatch.setattr("headatlas.models.gguf.get_gguf_hf_weights_map", unknown)
    at_once = ha.load(tmp_path / "tiny.gguf")
    assert at_once.fingerprint() == one_by_one.fingerprint()


def test_from_disk_embeddings_are_as_stored_and_norms_are_exact(tmp_path) -> None:
    """E and U stay in two bytes; what is stored in float32 is not rounded to that."""
    model = tiny_llama()
    with torch.no_grad():
        model.model.layers[0].post_attention_layernorm.weight += 1e-4 * torch.randn(32)  # no float16 numbers
    write_gguf(tmp_path / "tiny.gguf", model, quantise=True)
    lm = ha.load(tmp_path / "tiny.gguf")
    disk = ha.Weights.from_disk(cached_models()[0])
    assert disk.embedding().dtype == disk.unembedding().dtype == torch.float16
    assert torch.equal(disk.embedding().float(), lm.weights.embedding())
    assert torch.equal(disk.unembedding().float(), lm.weights.unembedding())
    x = lm.weights.embedding()
    torch.testing.assert_close(disk.first_mlp(x), lm.weights.first_mlp(x), rtol=1e-6, atol=1e-7)


def test_from_disk_a_padding_token_may_have_a_high_number(tmp_path) -> None:
    """Only the rows of E that are needed are held, so it counts more rows than there are."""
    tiny_llama(pad_token_id=60).save_pretrained(tmp_path / "tiny")
    lm, disk = ha.load(tmp_path / "tiny"), ha.Weights.from_disk(tmp_path / "tiny")
    inputs: list[list[torch.Tensor]] = [[], []]
    for weights, seen in zip((lm.weights, disk), inputs, strict=True):
        weights.run(torch.tensor([[1, 2], [3, 4]]), lambda layer, x, seen=seen: seen.append(x))
    torch.testing.assert_close(*inputs)
