"""ablate, taylor, ig and pattern: against slow oracles, and on heads known by construction."""

import logging

import numpy as np
import pytest
import torch

import headatlas as ha
from headatlas.errors import BadArgument, UnsupportedModel
from headatlas.methods._gradients import midpoints
from headatlas.methods.ablate import compute
from headatlas.methods.ablate.compute import ablate_heads
from headatlas.methods.pattern import pattern
from headatlas.models import single_heads
from headatlas.models.gradients import gate_gradients
from headatlas.models.lm import LM
from headatlas.models.log_probs import log_probs
from headatlas.models.tokens import TokenExample, make_bundle
from headatlas.results.store import load
from headatlas.results.tables import warnings
from headatlas.tasks.bundles import held_out_bundles
from headatlas.tasks.prompts import load_tasks
from tests.models.handmade import CARRIER, SPOILER, handmade, repeat_the_word
from tests.models.tiny import TINY, build, tokenizer

BY_ID = {t.id: t for t in TINY}
EXAMPLES = [
    TokenExample((1, 2, 3), (4,)),
    TokenExample((5, 6), (7, 8)),
    TokenExample((9, 8, 7, 6, 5), (4,)),
    TokenExample((3, 3), (2,)),
]


def lm_of(family: str) -> LM:
    return LM(build(BY_ID[family]), tokenizer(), family)


@torch.no_grad()
def log_p(lm: LM, example: TokenExample) -> float:
    logits = lm.model(torch.tensor([example.prompt + example.target])).logits[0].log_softmax(-1)
    return sum(logits[len(example.prompt) - 1 + i, t].item() for i, t in enumerate(example.target))


@pytest.mark.parametrize("kind", ["zero", "mean", "resample"])
def test_ablate_equals_one_run_per_head_and_text(kind) -> None:
    lm = lm_of("llama")
    effect, baseline = ablate_heads(lm, EXAMPLES, kind, tokens=25)
    texts = [a.prompt + a.target[:-1] for a in EXAMPLES]
    z = lm.head_outputs(texts)
    mean = z.flatten(0, 1)[~z.flatten(0, 1).isnan().any((1, 2, 3))].mean(0)
    # partners: the next longer text; the longest takes the shortest. Prompts are laid end to end.
    partner = {3: 0, 0: 1, 1: 2, 2: 3}
    for i, a in enumerate(EXAMPLES):
        clean = log_p(lm, a)
        assert baseline[i].item() == pytest.approx(clean, abs=1e-5)
        for layer, head in [(0, 0), (1, 3), (2, 5)]:
            if kind == "resample":
                other = EXAMPLES[partner[i]]
                shift = len(other.prompt) - len(a.prompt)
                index = [min(max(t + shift, 0), len(other) - 2) for t in range(len(texts[i]))]
                value: object = z[partner[i]][index][None]
            else:
                value = mean if kind == "mean" else 0.0
            padded = value
            if kind == "resample":  # the oracle runs the last target token too, which predicts nothing
                padded = torch.cat([value, value[:, -1:]], dim=1)
            with lm.patched((layer, head), padded):
                assert clean - log_p(lm, a) == pytest.approx(effect[i, layer, head].item(), abs=1e-5)


def test_ablate_finds_the_carrier_and_the_spoiler() -> None:
    effect = ha.ablate(handmade(), repeat_the_word(), limit=20).contribution.sel(task="repeat").values
    assert np.unravel_index(effect.argmax(), effect.shape) == CARRIER
    assert np.unravel_index(effect.argmin(), effect.shape) == SPOILER
    assert (np.sort(np.abs(effect), axis=None)[:6] < 1e-5).all()


def test_a_model_that_cannot_be_replayed_is_run_whole_and_that_is_said(monkeypatch, caplog) -> None:
    lm = lm_of("llama")
    expected, _ = ablate_heads(lm, EXAMPLES)
    monkeypatch.setattr(compute, "can_replay", lambda *a: False)
    monkeypatch.setattr(single_heads, "replay_from", None)  # would fail if it were used
    with caplog.at_level(logging.WARNING, "headatlas"):
        effect, _ = ablate_heads(lm, EXAMPLES)
    torch.testing.assert_close(effect, expected)
    assert "cannot be run from a middle layer: every head costs a run of the whole model" in caplog.text


def test_a_decoder_that_looks_past_its_blocks_is_noticed(monkeypatch) -> None:
    """A model that adds its embeddings to the last hidden state again, or ignores what blocks give, is not replayed."""
    from headatlas.models import single_heads

    lm = lm_of("llama")
    bundles = [make_bundle([a]) for a in EXAMPLES[:2]]
    assert single_heads.can_replay(lm, bundles)
    block = lm.model.model.layers[1]
    calls = []
    block.register_forward_pre_hook(lambda m, args: calls.append(1))
    plain = block.forward
    # state kept between calls: what a block gives depends on how often it was called
    block.forward = lambda hidden, *a, **k: plain(hidden + len(calls), *a, **k)
    assert not single_heads.can_replay(lm, bundles)
    assert block.__dict__["forward"] is not plain


def test_taylor_equals_a_finite_difference() -> None:
    lm = lm_of("gpt2")
    effect = gate_gradients(lm, EXAMPLES, tokens=9)
    bundles = [make_bundle([a]) for a in EXAMPLES]
    for layer, head in [(0, 0), (1, 2)]:
        step = torch.ones(1, lm.n_layers, lm.n_heads, dtype=torch.float64)
        step[0, layer, head] += 1e-6
        with torch.no_grad():
            up = log_probs(lm, bundles, step)[0]
            step[0, layer, head] -= 2e-6
            down = log_probs(lm, bundles, step)[0]
        torch.testing.assert_close(((up - down) / 2e-6)[0].float(), effect[:, layer, head], rtol=1e-4, atol=1e-4)


def test_ig_adds_up_to_what_all_heads_contribute() -> None:
    lm = lm_of("gpt2")
    effect = gate_gradients(lm, EXAMPLES, midpoints(64))
    none = torch.zeros(1, lm.n_layers, lm.n_heads)
    with torch.no_grad():
        bundles = [make_bundle([a]) for a in EXAMPLES]
        expected = log_probs(lm, bundles)[0] - log_probs(lm, bundles, none)[0]
    torch.testing.assert_close(effect.sum((1, 2)), expected[0].float(), rtol=1e-3, atol=1e-3)


def test_ig_says_so_where_it_does_not_add_up() -> None:
    lm = lm_of("gpt2")
    task = [{"prompt": f"w{i} w{i + 1}", "target": f" w{i + 2}"} for i in range(30)]
    fine = ha.ig(lm, task, limit=6, steps=64)
    bundles = held_out_bundles(lm, *load_tasks(lm, task, None), 6)
    with torch.no_grad():
        expected = log_probs(lm, bundles, torch.zeros(1, lm.n_layers, lm.n_heads))[0].mean()
    assert float(fine.without_heads[0]) == pytest.approx(float(expected), abs=1e-5)
    assert warnings({"ig": fine}) == []
    worth = float(fine.baseline[0] - fine.without_heads[0])
    coarse = fine.assign(contribution=fine.contribution + (30 - worth) / fine.contribution[0].size)
    assert f"contributions add up to 30.0, but all heads together contribute {worth:.1f}" in "".join(
        warnings({"ig": coarse})
    )
    old = coarse.drop_vars("without_heads")
    assert warnings({"ig": old}) == []


@pytest.mark.parametrize("name", ["ablate", "taylor", "ig"])
def test_one_form_for_all(name, tmp_path) -> None:
    lm = lm_of("qwen3_next")
    task = [{"prompt": f"w{i} w{i + 1}", "target": f" w{i + 2}"} for i in range(30)]
    result = getattr(ha, name)(lm, task, limit=6, out=tmp_path)
    stored = load(tmp_path / f"{name}.nc")
    assert stored.contribution.equals(result.contribution)
    assert stored.contribution.dims == stored.importance.dims == ("task", "layer", "head")
    assert stored.baseline.dims == ("task",)
    assert stored.contribution.isel(layer=lm.layers_without_heads).isnull().all()
    assert stored.repeats.item() == 6
    assert stored.se.notnull().equals(stored.contribution.notnull())
    assert (stored.importance >= np.abs(stored.contribution) - 1e-6).where(stored.contribution.notnull(), True).all()
    with pytest.raises(BadArgument, match="limit is 1, expected a whole number, at least 2"):
        getattr(ha, name)(lm, task, limit=1)


def test_bad_ways_of_ablating() -> None:
    lm = lm_of("llama")
    with pytest.raises(BadArgument, match="kind is 'noise', expected one of zero, mean, resample"):
        ablate_heads(lm, EXAMPLES, "noise")
    with pytest.raises(BadArgument, match="kind is 'noise', expected one of zero, mean, resample"):
        ha.ablate(lm, "math", kind="noise")
    with pytest.raises(BadArgument, match="needs at least 2 examples"):
        ablate_heads(lm, EXAMPLES[:1], "resample")
    with pytest.raises(BadArgument, match="steps is 0"):
        ha.ig(lm, "math", steps=0)


# --- patterns


def looking(kind: str) -> LM:
    """A GPT-2 of one head that looks where `kind` says, by its position embeddings alone."""
    import transformers

    length, width = 10, 64
    config = transformers.GPT2Config(vocab_size=50, n_positions=32, n_embd=width, n_layer=1, n_head=1)
    model = transformers.GPT2LMHeadModel(config).eval()
    back = {"previous": 1, "induction": length - 1, "duplicate": length, "sink": 32, "self": 0}[kind]
    with torch.no_grad():
        model.transformer.wte.weight.zero_()
        positions = torch.zeros(32, width)
        positions[:, :32] = torch.eye(32)
        positions[:, 32:] = torch.eye(32)
        model.transformer.wpe.weight.copy_(positions * 30)
        qkv = model.transformer.h[0].attn.c_attn
        qkv.weight.zero_()
        qkv.bias.zero_()
        for i in range(32):
            if i >= back:
                qkv.weight[i, i - back] = 30.0  # query of position i asks for position i − back
            qkv.weight[32 + i, width + i] = 30.0  # key of position i says i
        qkv.bias[0] = 900.0 * (kind == "sink")  # every query asks for position 0
    return ha.load(model)


@pytest.mark.parametrize("kind", ["previous", "induction", "duplicate", "sink", "self"])
def test_patterns_are_told_apart(kind) -> None:
    result = pattern(looking(kind), length=10, sequences=2).score
    assert result.sel(pattern=kind).item() > 0.95
    others = [p for p in result.pattern.values if p != kind]
    assert result.sel(pattern=others).max() < 0.2  # the first tokens have nowhere to look, and look everywhere


@pytest.mark.parametrize("tiny", TINY, ids=lambda t: t.id)
def test_attention_is_the_models_own(tiny) -> None:
    """`pattern` itself compares z with that of an ordinary run, and refuses where it differs."""
    lm = LM(build(tiny), None, tiny.id)
    if tiny.id == "falcon-rw":  # transformers' plain kernel adds ALiBi twice there
        with pytest.raises(UnsupportedModel, match="cannot read the attention of"):
            pattern(lm, length=6, sequences=2)
        return
    result = pattern(lm, length=6, sequences=2)
    with_heads = lm.layers_with_heads
    values = result.score.isel(layer=with_heads)
    assert ((values >= 0) & (values <= 1)).all()
    assert values.sel(pattern="previous").mean() > 0.1
    assert result.score.isel(layer=lm.layers_without_heads).isnull().all()
    assert lm.model.config._attn_implementation != "eager" or build(tiny).config._attn_implementation == "eager"


def test_patterns_asked_wrongly() -> None:
    lm = lm_of("gpt2")
    for length in (-1, 0, 1, lm.anatomy.context):
        with pytest.raises(BadArgument, match=f"length is {length}, expected 2 to"):
            pattern(lm, length=length)
    with pytest.raises(BadArgument, match="sequences is 0"):
        pattern(lm, length=3, sequences=0)


def test_one_layer_can_be_replayed(caplog) -> None:
    with caplog.at_level(logging.WARNING, "headatlas"):
        ablate_heads(looking("previous"), EXAMPLES)
    assert not [r for r in caplog.records if r.name.startswith("headatlas")]


def test_pattern_file(tmp_path) -> None:
    result = ha.pattern(lm_of("llama"), length=5, sequences=2, out=tmp_path)
    assert load(tmp_path / "pattern.nc").score.equals(result.score)
