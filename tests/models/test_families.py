"""Every promise about heads, for every family. The table in docs/reference/families.md is written from the results."""

import copy
import inspect
from functools import cache
from itertools import product

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from headatlas.edits.change import applied, make_edit
from headatlas.edits.checkpoint import write_checkpoint
from headatlas.edits.fold import fold, folded_copy, open_source
from headatlas.edits.prune import prune
from headatlas.errors import UnsupportedModel
from headatlas.methods.ablate.compute import ablate_heads
from headatlas.models.families import FAMILIES
from headatlas.models.interventions import Change, answer_states, answers_under
from headatlas.models.lm import LM
from headatlas.models.log_probs import log_probs
from headatlas.models.single_heads import can_replay
from headatlas.models.tokens import TokenExample, make_bundle
from headatlas.models.weights import Weights
from headatlas.progress import silent
from tests.models.tiny import TINY, Tiny, build, texts, tokenizer

# These are made by multiplying stored matrices, all others are copied. A product's last bit depends on the CPU and on
# how the factors are aligned in memory, which differs between a model that was built and one that was read.
PRODUCTS = {"opt-350m": ("embedding", "unembedding"), "deepseek_v3": ("value",), "deepseek_v3-moe": ("value",)}

by_family = pytest.mark.parametrize("tiny", TINY, ids=lambda t: t.id)


@cache
def lm_of(tiny: Tiny) -> LM:
    return LM(build(tiny), tokenizer(), tiny.id)


def same(a: Tensor, b: Tensor, tiny: Tiny) -> None:
    torch.testing.assert_close(a, b, rtol=tiny.tolerance, atol=tiny.tolerance, equal_nan=True)


def layers(lm: LM) -> list[int]:
    return lm.layers_with_heads


def run_and_record(lm: LM, path: str, ids: list[list[int]]) -> tuple[dict[str, Tensor], Tensor]:
    """Arguments and first output of the module at `path` during a plain forward pass."""
    seen = {}

    def hook(module, args, kwargs, out):
        inputs = inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments
        seen["in"] = {k: v.clone() if isinstance(v, Tensor) else v for k, v in inputs.items()}
        seen["out"] = (out[0] if isinstance(out, tuple) else out).clone()  # Falcon adds to it in place

    handle = lm.model.get_submodule(path).register_forward_hook(hook, with_kwargs=True)
    lm.model(**lm.batch(ids))
    handle.remove()
    return seen["in"], seen["out"]


def test_every_family_is_tested() -> None:
    assert {t.family for t in TINY} == set(FAMILIES)


@by_family
@pytest.mark.family_property(1, "heads add up to the attention's output")
def test_heads_sum_to_attention_output(tiny: Tiny) -> None:
    lm = lm_of(tiny)
    ids = texts((6, 6))
    z = lm.head_outputs(ids)
    for layer in layers(lm):
        inputs, out = run_and_record(lm, lm.anatomy.sites[layer].attention, ids)
        matrices = torch.stack([lm.weights.W_O(layer, h) for h in range(lm.n_heads)])
        total = torch.einsum("bthd,hdm->btm", z[:, :, layer], matrices)
        bias = lm.weights.output_bias(layer)
        total = total if bias is None else total + bias
        same(total, out - inputs.get("residual", 0), tiny)  # BLOOM adds the residual inside its attention


@by_family
@pytest.mark.family_property(2, "gates of 1 change no bit")
def test_gates_of_one_are_bit_identical(tiny: Tiny) -> None:
    lm = lm_of(tiny)
    inputs = lm.batch(texts())
    plain = lm.model(**inputs).logits
    for shape in [(lm.n_layers, lm.n_heads), (4, lm.n_layers, lm.n_heads)]:
        with lm.gated(torch.ones(shape)):
            assert torch.equal(lm.model(**inputs).logits, plain)


@by_family
@pytest.mark.family_property(3, "removing a head = zeroing its slice of the output projection")
def test_removing_a_head_equals_zeroing_its_weights(tiny: Tiny) -> None:
    lm = lm_of(tiny)
    inputs = lm.batch(texts())
    for layer, head in [(layers(lm)[0], 1), (layers(lm)[-1], lm.n_heads - 1)]:
        surgery = LM(copy.deepcopy(lm.model), None, "copy")
        surgery.weights.W_O(layer, head).zero_()  # a view into the copy's own weights
        expected = surgery.model(**inputs).logits
        assert not torch.allclose(expected, lm.model(**inputs).logits)
        gate = torch.ones(lm.n_layers, lm.n_heads)
        gate[layer, head] = 0
        with lm.gated(gate):
            same(lm.model(**inputs).logits, expected, tiny)
        with lm.patched((layer, head)):
            same(lm.model(**inputs).logits, expected, tiny)


@by_family
@pytest.mark.family_property(4, "padding, left or right, changes nothing")
def test_padded_batch_equals_each_text_alone(tiny: Tiny) -> None:
    lm = lm_of(tiny)
    ids = texts()
    alone = [lm.model(**lm.batch([i])).logits[0] for i in ids]
    alone_z = [lm.head_outputs([i])[0] for i in ids]
    for side in ("left", "right"):
        logits, z = lm.model(**lm.batch(ids, side)).logits, lm.head_outputs(ids, side=side)
        for row, i in enumerate(ids):
            real = slice(-len(i), None) if side == "left" else slice(0, len(i))
            same(logits[row, real], alone[row], tiny)
            same(z[row, : len(i)], alone_z[row], tiny)
            assert z[row, len(i) :].isnan().all()


@by_family
@pytest.mark.family_property(5, "generation under gates = full forwards under gates")
def test_generation_under_gates_equals_full_forwards(tiny: Tiny) -> None:
    lm = lm_of(tiny)
    ids = texts((5, 3, 8))
    gate = torch.rand(3, lm.n_layers, lm.n_heads, generator=torch.Generator().manual_seed(1))
    steps = 6
    plain = lm.model(**lm.batch(ids)).logits[:, -1]
    seen: list[Tensor] = []
    with lm.gated(gate):
        handle = lm.model.register_forward_hook(lambda module, args, out: seen.append(out.logits[:, -1]))
        words = lm.generate(ids, max_new_tokens=steps, eos_token_id=None)
        handle.remove()
        slow = [list(i) for i in ids]
        for step in range(steps):
            logits = lm.model(**lm.batch(slow), use_cache=False).logits[:, -1]
            same(seen[step], logits, tiny)
            for row, token in zip(slow, logits.argmax(-1).tolist(), strict=True):
                row.append(token)
    assert words == [lm.tokenizer.decode(row[-steps:], skip_special_tokens=True) for row in slow]
    assert not torch.allclose(seen[0], plain, atol=1e-3)  # the gates did something


@by_family
@pytest.mark.family_property(6, "x · W_V = the values the model computes")
def test_value_weights_make_the_models_values(tiny: Tiny) -> None:
    lm = lm_of(tiny)
    ids = texts((3, 3))
    for layer in layers(lm):
        site = lm.anatomy.sites[layer]
        inputs, _ = run_and_record(lm, site.attention, ids)
        x = next(iter(inputs.values())).flatten(0, 1)  # [batch · token, d]
        made = lm.weights.values(layer, x)
        each = torch.stack([x @ lm.weights.W_V(layer, h) for h in range(lm.n_heads)], dim=1)
        if site.layout == "latent":
            # The model's own modules. Without the bias, the linear part differs by one positive factor per token.
            attention = lm.model.get_submodule(site.attention)

            def values_of(latent: Tensor, attention=attention) -> Tensor:
                normed = attention.kv_a_layernorm(latent[:, : attention.kv_lora_rank])
                return attention.kv_b_proj(normed).unflatten(-1, (lm.n_heads, -1))[..., -lm.d_head :]

            latent = attention.kv_a_proj_with_mqa(x)
            expected, unbiased = values_of(latent), values_of(latent - attention.kv_a_proj_with_mqa.bias)
            factor = each.norm(dim=(1, 2)) / unbiased.norm(dim=(1, 2))
            same(each / factor[:, None, None], unbiased, tiny)
        else:
            expected = cached_values(lm, layer, ids)
            bias = lm.weights.value_bias(layer)
            linear = each if bias is None else each + bias.repeat_interleave(lm.n_heads // lm.n_kv_heads, 0)
            clip = site.clip or torch.inf
            same(linear.clamp(-clip, clip), expected.repeat_interleave(lm.n_heads // expected.shape[1], 1), tiny)
        same(made.repeat_interleave(expected.shape[1] // made.shape[1], 1), expected, tiny)


def cached_values(lm: LM, layer: int, ids: list[list[int]]) -> Tensor:
    """The value vectors in the model's own KV cache: [batch · token, heads, d_head]."""
    cache = lm.model(**lm.batch(ids), use_cache=True).past_key_values
    return cache.layers[layer].values.transpose(1, 2).flatten(0, 1)


@by_family
@pytest.mark.family_property(7, "from disk = from memory")
def test_disk_equals_memory(tiny: Tiny, tmp_path) -> None:
    lm = lm_of(tiny)
    for shards in ("1GB", "20KB"):
        lm.model.save_pretrained(tmp_path / shards, max_shard_size=shards)
        disk, memory = Weights.from_disk(tmp_path / shards), lm.weights
        assert disk.anatomy == memory.anatomy
        names = [(n, (i,)) for n in ("value", "value_bias", "output", "output_bias") for i in layers(lm)]
        for name, of in [*names, ("embedding", ()), ("unembedding", ())]:
            a, b = getattr(disk, name)(*of), getattr(memory, name)(*of)
            if name in PRODUCTS.get(tiny.id, ()):
                torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
            else:
                assert (a is None and b is None) or torch.equal(a, b)
        x = torch.randn(5, lm.d_model, dtype=tiny.dtype, generator=torch.Generator().manual_seed(2))
        same(disk.first_mlp(x), memory.first_mlp(x), tiny)


@by_family
@pytest.mark.family_property(8, "layers without heads are reported and NaN")
def test_layers_without_heads_are_reported_and_nan(tiny: Tiny) -> None:
    lm = lm_of(tiny)
    types = getattr(lm.model.config.get_text_config(), "layer_types", None) or []
    assert lm.layers_without_heads == [i for i, kind in enumerate(types) if "linear" in kind]
    assert bool(lm.layers_without_heads) == (tiny.family == "qwen3_next")
    missing = lm.head_outputs(texts((6, 6))).isnan()
    assert [i for i in range(lm.n_layers) if missing[:, :, i].any()] == lm.layers_without_heads
    assert missing[:, :, lm.layers_without_heads].all()


@by_family
@pytest.mark.family_property(9, "first MLP and its norm = block 0's own")
def test_first_mlp_is_block_zeros(tiny: Tiny) -> None:
    """The norm is found here by watching which one's output the MLP really receives."""
    lm = lm_of(tiny)
    ids = texts((6, 6))
    block = f"{lm.anatomy.blocks}.0"
    opt = tiny.family == "opt"
    mlp = next(n for n, _ in lm.model.get_submodule(block).named_children() if n in ("mlp", "ffn", "fc1"))
    inputs, out = run_and_record(lm, f"{block}.{mlp}", ids)
    received = next(iter(inputs.values()))
    expected = run_and_record(lm, f"{block}.fc2", ids)[1] if opt else out - inputs.get("residual", 0)
    norms = [n for n, _ in lm.model.get_submodule(block).named_children() if "norm" in n or n.startswith("ln")]
    x = received
    for norm in norms:
        norm_in, norm_out = run_and_record(lm, f"{block}.{norm}", ids)
        if norm_out.numel() == received.numel() and torch.equal(norm_out.flatten(), received.flatten()):
            x = next(iter(norm_in.values()))
    assert (x is received) == (tiny.family == "olmo2")  # the only one here without a norm before its MLP
    same(lm.weights.first_mlp(x.reshape(-1, lm.d_model)), expected.reshape(-1, lm.d_model), tiny)
    same(lm.weights.first_mlp(x.reshape(-1, lm.d_model)[:1]), expected.reshape(-1, lm.d_model)[:1], tiny)


@by_family
@pytest.mark.family_property(10, "gates and patches on chosen tokens go to those tokens, however padded")
def test_positions_are_tokens_of_the_text(tiny: Tiny) -> None:
    lm = lm_of(tiny)
    ids, other = texts((4, 7)), texts((4, 7), seed=5)
    layer = layers(lm)[0]
    plain, theirs = lm.head_outputs(ids), lm.head_outputs(other)
    for side in ("left", "right"):
        with lm.gated(torch.zeros(lm.n_layers, lm.n_heads), positions=[1, -1]):
            z = lm.head_outputs(ids, side=side)[:, :, layer]
        for row, last in enumerate((3, 6)):
            assert (z[row] == 0).all(dim=(1, 2)).nonzero().flatten().tolist() == [1, last]
        with lm.patched((layer, 2), theirs):
            z = lm.head_outputs(ids, side=side)[:, :, layer]
        same(z[:, :, 2], theirs[:, :, layer, 2], tiny)
        same(z[:, :, 1], plain[:, :, layer, 1], tiny)
    with lm.gated(torch.zeros(lm.n_layers, lm.n_heads), positions="last"):  # through the whole model, LM head included
        left, right = lm.model(**lm.batch(ids)).logits[0, -1], lm.model(**lm.batch(ids, "right")).logits[0, 3]
    same(left, right, tiny)


def questions(seed: int = 0) -> list[list[TokenExample]]:
    """Prompts and targets of odd lengths, in three groups that each begin alike."""
    generator = torch.Generator().manual_seed(seed)

    def draw(n: int) -> tuple[int, ...]:
        return tuple(torch.randint(1, 50, (n,), generator=generator).tolist())

    beginnings = [draw(n) for n in (5, 8, 5)]
    return [[TokenExample(first + draw(p), draw(t)) for p, t in ((3, 1), (1, 2), (5, 1))] for first in beginnings]


@by_family
@pytest.mark.family_property(11, "log P(target) under gates and its gradients = text by text, packed or not")
def test_targets_under_gates_equal_text_by_text(tiny: Tiny) -> None:
    lm = lm_of(tiny)
    groups = questions()
    examples = [a for group in groups for a in group]
    gate = torch.rand(2, lm.n_layers, lm.n_heads, generator=torch.Generator().manual_seed(0)).to(tiny.dtype)
    gate.requires_grad_()
    expected = []
    for g in gate:
        for a in examples:
            with lm.gated(g):
                log_p = lm.model(torch.tensor([a.prompt + a.target])).logits[0].log_softmax(-1)
            expected.append(sum(log_p[len(a.prompt) - 1 + i, t] for i, t in enumerate(a.target)))
    oracle = torch.stack(expected).view(2, -1)
    close = {"rtol": max(tiny.tolerance, 1e-6) * 10, "atol": max(tiny.tolerance, 1e-6) * 10}
    alone, together = [make_bundle([a]) for a in examples], [make_bundle(group) for group in groups]
    assert [s.shared for s in together] == [5, 8, 5]
    for bundles, packed in [(alone, False), (alone, True), (together, True), ([together[2], *alone[3:6]], True)]:
        order = [examples.index(a) for bundle in bundles for a in bundle.examples]
        log_p, right = log_probs(lm, bundles, gate, packed=packed)
        torch.testing.assert_close(log_p, oracle[:, order], check_dtype=False, **close)
        (again,) = torch.autograd.grad(log_p.sum(), gate)
        (slope,) = torch.autograd.grad(oracle[:, order].sum(), gate, retain_graph=True)
        torch.testing.assert_close(again.nan_to_num(), slope.nan_to_num(), **close)
        assert right.shape == log_p.shape


@by_family
@pytest.mark.family_property(12, "ablating by replay from the head's layer = ablating in whole runs")
def test_replay_equals_whole_runs(tiny: Tiny) -> None:
    lm = lm_of(tiny)
    examples = [a for group in questions() for a in group][:5]
    assert can_replay(lm, [make_bundle([a]) for a in examples[:2]])
    for how in ("zero", "mean", "resample"):
        fast, baseline = ablate_heads(lm, examples, how, tokens=90)
        slow, _ = ablate_heads(lm, examples, how, replay=False)
        close = max(tiny.tolerance, 1e-6) * 10
        torch.testing.assert_close(fast, slow, rtol=close, atol=close, equal_nan=True)
        assert torch.isfinite(fast[:, layers(lm)]).all()
        assert (fast[:, layers(lm)].abs() > 1e-6).any()
        assert torch.isfinite(baseline).all()


@by_family
@pytest.mark.family_property(13, "z and log P at an answer's tokens = those of plain runs, packed or not")
def test_states_at_answers_equal_plain_runs(tiny: Tiny) -> None:
    lm = lm_of(tiny)
    groups = questions()
    states = answer_states(lm, [make_bundle(group) for group in groups])
    for a, (surprisal, z) in zip([a for group in groups for a in group], states, strict=True):
        same(z, lm.head_outputs([a.prompt + a.target])[0, len(a.prompt) :], tiny)
        log_p = lm.model(torch.tensor([a.prompt + a.target])).logits[0].log_softmax(-1)
        expected = [-log_p[len(a.prompt) - 1 + i, t].item() for i, t in enumerate(a.target)]
        assert surprisal.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-5)


@by_family
@pytest.mark.family_property(14, "answers while heads are scaled and pushed = text by text")
def test_answers_under_changes_equal_text_by_text(tiny: Tiny) -> None:
    lm = lm_of(tiny)
    examples = [a for group in questions() for a in group][:4]
    generator = torch.Generator().manual_seed(0)
    gates = torch.rand(3, lm.n_layers, lm.n_heads, generator=generator)
    push = torch.randn(lm.n_layers, lm.n_heads, lm.d_head, generator=generator)
    changes = [Change(torch.ones(lm.n_layers, lm.n_heads)), Change(gates[0]), Change(gates[1], push), Change(gates[2])]
    for everywhere, tokens in product((False, True), (10**4, 20)):
        result = answers_under(lm, examples, changes, everywhere=everywhere, tokens=tokens)
        for c, change in enumerate(changes):
            for e, a in enumerate(examples):
                n = len(a.prompt) + len(a.target) - 1
                where = "all" if everywhere else list(range(len(a.prompt) - 1, n))
                every = torch.ones(lm.n_layers, lm.n_heads, dtype=torch.bool)
                push_now = torch.zeros_like(push) if change.add is None else push
                with lm.gated(change.gate, where), lm.patched(every, push_now, add=True, positions=where):
                    logits = lm.model(**lm.batch([(a.prompt + a.target)[:-1]])).logits[0, len(a.prompt) - 1 :].float()
                own = logits.gather(1, torch.tensor(a.target)[:, None])
                log_p, rank = logits.log_softmax(-1).gather(1, torch.tensor(a.target)[:, None]), (logits > own).sum(1)
                expected = [log_p.mean().item(), (1 + rank).log().mean().item(), (rank == 0).float().mean().item()]
                assert result[c, e].tolist() == pytest.approx(expected, rel=1e-4, abs=1e-4)


NO_BIAS = {"mistral", "mixtral", "qwen2", "phi3", "gptj", "mpt", "stablelm"}  # nor a switch for one
PRUNED = {"llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_next", "gemma", "gemma2", "gemma3_text", "gemma3"}
PRUNED |= {"phi", "phi3", "cohere", "cohere2", "olmo", "granite", "gpt_oss"}


@by_family
@pytest.mark.family_property(15, "an edited checkpoint, loaded by plain transformers = the edit while the model runs")
def test_an_edited_checkpoint_equals_the_edit_while_the_model_runs(tiny: Tiny, tmp_path) -> None:
    """Scaled and, where the family can, steered and pruned. The other families say why they cannot."""
    lm_of(tiny).model.save_pretrained(tmp_path / "old", max_shard_size="20KB")

    def loaded(name: str) -> LM:
        model = AutoModelForCausalLM.from_pretrained(
            tmp_path / name, dtype=tiny.dtype, experts_implementation="eager", local_files_only=True
        )
        return LM(model.eval(), tokenizer(), name)

    lm, generator = loaded("old"), torch.Generator().manual_seed(0)
    gate = torch.rand(lm.n_layers, lm.n_heads, generator=generator, dtype=torch.float64)
    for i, layer in enumerate(layers(lm)):  # another group of each layer
        gate[layer].unflatten(0, (lm.n_kv_heads, -1))[i % lm.n_kv_heads] = 0
    head, layer = f"L{layers(lm)[0]}.H1", f"L{layers(lm)[-1]}"
    steer = {head: torch.randn(lm.d_head, generator=generator), layer: torch.randn(lm.d_model, generator=generator)}
    inputs = lm.batch(texts())
    edit = make_edit(lm.anatomy, scale=gate, steer=steer)
    with applied(lm, edit):
        expected = lm.model(**inputs).logits
    same(folded_copy(lm, edit).model(**inputs).logits, expected, tiny)  # in memory, any family can be steered
    if tiny.family in NO_BIAS:
        with pytest.raises(UnsupportedModel, match="cannot steer .* have no bias, and no"):
            fold(open_source(tmp_path / "old"), edit)
        edit = make_edit(lm.anatomy, scale=gate)
        with applied(lm, edit):
            expected = lm.model(**inputs).logits
    assert not torch.allclose(expected, lm.model(**inputs).logits, atol=1e-3)
    source = fold(open_source(tmp_path / "old"), edit)
    if tiny.family in PRUNED:
        source, saved = prune(source, edit)
        assert (saved.groups, saved.n_kv_heads) == (1, lm.n_kv_heads - 1)
    else:
        with pytest.raises(
            UnsupportedModel, match="cannot prune .*; without prune, the heads' weights are set to zero"
        ):
            prune(source, edit)
    (tmp_path / "new").mkdir()
    write_checkpoint(source, tmp_path / "new", silent)
    new = loaded("new")
    assert new.n_kv_heads == lm.n_kv_heads - (tiny.family in PRUNED)
    same(new.model(**inputs).logits, expected, tiny)
