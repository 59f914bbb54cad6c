"""Edits folded into weights: exact in every type, shared in memory, streamed on disk."""

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import headatlas as ha
from headatlas.edits.change import applied, make_edit
from headatlas.edits.fold import open_source
from headatlas.errors import BadArgument, BadFile, CannotDo
from headatlas.models.checkpoint_reader import Checkpoint
from headatlas.models.lm import LM
from headatlas.testing import tiny_lm, tiny_relations, tiny_task
from tests.models.tiny import GROUPED, TINY, Tiny, build, texts, tokenizer

PLAIN = Tiny("llama", "LlamaConfig", GROUPED | {"head_dim": 10, "tie_word_embeddings": True})  # no biases, one matrix


def saved(model, folder, **options):
    model.save_pretrained(folder, **options)
    tokenizer().save_pretrained(folder)
    return folder


def logits(model) -> torch.Tensor:
    return model(torch.tensor(texts((9,)))).logits


def plain(folder, **options):
    return AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, **options).eval()


def test_the_new_model_shares_what_is_not_changed_and_leaves_the_old_one(folder) -> None:
    lm = ha.load(folder)
    before, fingerprint = logits(lm.model), lm.fingerprint()
    with lm.patched("L2.H5"):  # not the new model's
        new = ha.edit(lm, remove=["L1.H3"], scale={"L1.H0": 0.3}, steer={"L0.H2": np.ones(10)})
    assert lm.fingerprint() == fingerprint
    assert torch.equal(logits(lm.model), before)
    gate = torch.ones(3, 6)
    gate[1, 3], gate[1, 0] = 0, 0.3
    with lm.gated(gate), lm.patched("L0.H2", torch.ones(10), add=True):
        torch.testing.assert_close(logits(new.model), logits(lm.model), rtol=1e-5, atol=1e-5)
    own = {n for n, p in new.model.named_parameters() if p.data_ptr() != lm.model.get_parameter(n).data_ptr()}
    projections = [f"model.layers.{i}.self_attn.o_proj" for i in (0, 1)]
    assert own == {f"{p}.{kind}" for p in projections for kind in ("weight", "bias")}
    assert new.name == "tiny, edited"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_zeros_and_halves_are_exact_and_keep_their_type(dtype, tmp_path) -> None:
    saved(build(PLAIN).to(dtype), tmp_path / "old")
    ha.edit(tmp_path / "old", remove="L0.H1", scale="L2.H4=0.5", out=tmp_path / "new")
    old, new = (load_file(tmp_path / name / "model.safetensors") for name in ("old", "new"))
    assert "lm_head.weight" not in new  # tied, as it was
    for name, tensor in old.items():
        expected = tensor.clone()
        if name == "model.layers.0.self_attn.o_proj.weight":
            expected[:, 10:20] = 0
        if name == "model.layers.2.self_attn.o_proj.weight":
            expected[:, 40:50] *= 0.5
        assert new[name].dtype == dtype
        assert torch.equal(new[name], expected), name


def test_what_is_rounded_is_kept_in_the_type_the_model_is_run_in(tmp_path) -> None:
    """As converted GGUF files are: stored in float16, run in float32."""
    saved(build(PLAIN).float(), tmp_path / "old")
    file = tmp_path / "old" / "model.safetensors"
    save_file({n: t.half() for n, t in load_file(file).items()}, file, metadata={"format": "pt", "mine": "kept"})
    ha.edit(tmp_path / "old", remove="L1.H0", scale="L0.H1=0.3", out=tmp_path / "new")
    new = load_file(tmp_path / "new" / "model.safetensors")
    types = {n: t.dtype for n, t in new.items() if t.dtype != torch.float16}
    assert types == {"model.layers.0.self_attn.o_proj.weight": torch.float32}
    with safe_open(tmp_path / "new" / "model.safetensors", "pt") as f:
        assert f.metadata() == {"format": "pt", "mine": "kept"}
    lm = ha.load(tmp_path / "old")
    with applied(lm, make_edit(lm.anatomy, "L1.H0", {"L0.H1": 0.3})):
        torch.testing.assert_close(logits(plain(tmp_path / "new")), logits(lm.model), rtol=1e-5, atol=1e-5)


def test_steering_adds_biases_that_are_zero_elsewhere(tmp_path) -> None:
    saved(build(PLAIN), tmp_path / "old", max_shard_size="20KB")
    np.save(tmp_path / "d.npy", np.arange(10.0))
    ha.edit(tmp_path / "old", remove="L1.H1", steer="L1.H1=" + str(tmp_path / "d.npy*-2"), out=tmp_path / "new")
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    assert config["attention_bias"] is True
    checkpoint = Checkpoint(tmp_path / "new")
    biases = {n: checkpoint.read(n) for n in checkpoint.files if n.endswith(".bias")}
    assert len(biases) == 3 * 4
    assert [n for n, b in biases.items() if b.any()] == ["model.layers.1.self_attn.o_proj.bias"]
    lm = LM(plain(tmp_path / "old"), None, "old")
    with lm.patched("L1.H1", -2 * torch.arange(10.0)):  # what is removed and steered is replaced
        torch.testing.assert_close(logits(plain(tmp_path / "new")), logits(lm.model), rtol=1e-10, atol=1e-10)


def test_only_what_changes_is_read_and_a_bias_goes_beside_its_weight(tmp_path, monkeypatch) -> None:
    saved(build(TINY[0]), tmp_path / "old", max_shard_size="20KB")
    read = []
    own = Checkpoint.read
    monkeypatch.setattr(Checkpoint, "read", lambda self, name: read.append(name) or own(self, name))
    ha.edit(tmp_path / "old", remove="L1.H3", out=tmp_path / "new")
    assert read == ["model.layers.1.self_attn.o_proj.weight"]
    for name, file in Checkpoint(tmp_path / "old").files.items():
        assert Checkpoint(tmp_path / "new").files[name].name == file.name
    total = json.loads((tmp_path / "new" / "model.safetensors.index.json").read_text())["metadata"]["total_size"]
    assert total == sum(t.nbytes for f in (tmp_path / "new").glob("*.safetensors") for t in load_file(f).values())
    copied = {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}
    for name in copied:
        assert (tmp_path / "new" / name).read_bytes() == (tmp_path / "old" / name).read_bytes()


def test_every_tensor_begins_at_a_multiple_of_its_size(tmp_path) -> None:
    saved(build(PLAIN).bfloat16(), tmp_path / "old")
    file = tmp_path / "old" / "model.safetensors"
    tensors = load_file(file) | {"odd": torch.zeros(3, dtype=torch.uint8), "wide": torch.zeros(2, dtype=torch.int64)}
    save_file(tensors, file, metadata={"format": "pt"})
    ha.edit(tmp_path / "old", remove="L1.H3", steer={"L0.H0": torch.ones(10)}, out=tmp_path / "new")
    with (tmp_path / "new" / "model.safetensors").open("rb") as f:
        length = int.from_bytes(f.read(8), "little")
        header = json.loads(f.read(length))
    assert length % 8 == 0
    sizes = {"I64": 8, "BF16": 2, "U8": 1}
    for about in (about for name, about in header.items() if name != "__metadata__"):
        assert about["data_offsets"][0] % sizes[about["dtype"]] == 0


def test_a_model_in_memory_is_written_too_and_pruned(tmp_path) -> None:
    lm = LM(build(TINY[0]), tokenizer(), "mine")
    groups = [f"L{layer}.H{head}" for layer, group in enumerate((0, 1, 0)) for head in range(3 * group, 3 * group + 3)]
    assert ha.edit(lm, remove=[*groups, "L0.H4"], prune=True, out=tmp_path / "new") == tmp_path / "new"
    assert not [p.name for p in (tmp_path / "new").iterdir() if p.name.startswith(".")]
    small = plain(tmp_path / "new")
    assert (small.config.num_attention_heads, small.config.num_key_value_heads, small.config.head_dim) == (3, 1, 10)
    with lm.patched([*groups, "L0.H4"]):
        torch.testing.assert_close(logits(small), logits(lm.model), rtol=1e-10, atol=1e-10)
    record = json.loads((tmp_path / "new" / "headatlas-edit.json").read_text())["pruned"]
    count = sum(p.numel() for p in lm.model.parameters()) - sum(p.numel() for p in small.parameters())
    assert (record["parameters"], record["all_parameters"]) == (count, sum(p.numel() for p in lm.model.parameters()))
    cache = lm.model(torch.tensor([[3]]), use_cache=True).past_key_values
    assert record["all_cache"] == sum(t.nbytes for layer in cache.layers for t in (layer.keys, layer.values))
    assert record["cache"] * 2 == record["all_cache"]
    assert "fewer parameters" in (tmp_path / "new" / "README.md").read_text()


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ("L0.H0,L0.H1,L0.H2", "every layer must lose a whole group (3 heads that share keys and values), but layer 1"),
        (torch.ones(3, 6, dtype=torch.bool), "every layer would lose all of its heads"),
    ],
)
def test_what_cannot_be_pruned_is_refused_with_zeroing_offered(folder, tmp_path, heads, message) -> None:
    with pytest.raises(CannotDo) as caught:
        ha.edit(folder, remove=heads, prune=True, out=tmp_path / "new")
    assert message in str(caught.value)
    assert "without prune, the heads' weights are set to zero instead" in str(caught.value)
    assert not (tmp_path / "new").exists()
    with pytest.raises(BadArgument, match="prune is True without out"):
        ha.edit(folder, remove=heads, prune=True)


def test_how_many_groups_could_go_is_told_where_the_configuration_is_strict(tmp_path) -> None:
    """Llama's wants the hidden size, 48 here, to be a multiple of the number of heads."""
    lm = LM(build(Tiny("llama", "LlamaConfig", GROUPED | {"num_key_value_heads": 6, "head_dim": 10})), None, "strict")
    with pytest.raises(
        CannotDo, match=r"48\) is not a multiple .* \(5\)\.\); 2, 3, 4, 5 groups of every layer could be dropped"
    ):
        ha.edit(lm, remove="L0.H0,L1.H0,L2.H0", prune=True, out=tmp_path / "new")


def test_a_quantised_projection_is_refused(folder, tmp_path) -> None:
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.1.self_attn.o_proj.weight"
    save_file(tensors | {name: tensors[name].to(torch.float8_e4m3fn)}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(BadFile, match="o_proj.weight .* is quantised: dequantise"):
        ha.edit(folder, remove="L1.H0", out=tmp_path / "new")
    del tensors[name]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(BadFile, match="has no tensor model.layers.1.self_attn.o_proj.weight: it is incomplete"):
        ha.edit(folder, remove="L1.H0", out=tmp_path / "new")
    assert open_source(folder).anatomy.n_layers == 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["tiny"]


def test_removed_heads_are_zero_in_every_map_of_the_edited_model(tmp_path) -> None:
    lm = tiny_lm()
    lm.model.save_pretrained(tmp_path / "old")
    lm.tokenizer.save_pretrained(tmp_path / "old")
    ha.edit(tmp_path / "old", remove="L1.H3,L2.H0", out=tmp_path / "new")
    new, task = ha.load(tmp_path / "new"), tiny_task("first", 0)
    gone = {"layer": [1, 2], "head": [3, 0]}
    effects = [
        ha.ablate(new, task, limit=8).contribution,
        ha.taylor(new, task, limit=8).contribution,
        ha.ig(new, task, limit=8).contribution,
    ]
    effects += [ha.maps(new, relations=tiny_relations()).score]
    for map_ in effects:
        at = map_.to_dataset(name="x").stack(at=("layer", "head")).x
        for layer, head in zip(*gone.values(), strict=True):
            assert float(abs(at.sel(layer=layer, head=head)).max()) < 1e-6, map_.name
        assert float(abs(at).max()) > 1e-4
    z = new.head_outputs(texts((6,)))
    assert z[0, :, 1, 3].abs().max() > 0  # the head still runs; nothing of it is written
    assert not new.weights.W_O(1, 3).any()
