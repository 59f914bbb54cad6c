"""Answers of the live page: every number against a slow, plain computation; the model is left as it was."""

import ast
import base64
import contextlib
import copy
import io
import math
from functools import cache
from itertools import combinations, islice
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

import headatlas as ha
from headatlas.errors import BadArgument, UnsupportedModel
from headatlas.evidence.matching import match
from headatlas.live import answers as module
from headatlas.live.answers import Live, matched_gates
from headatlas.live.question import Question, read_question
from headatlas.models.lm import LM
from headatlas.models.logit_attribution import head_writes, logit_contributions
from tests.models.tiny import TINY, build, tokenizer

BY_ID = {t.id: t for t in TINY}
PROMPT = "w1 w5 w9 w2 w30 w7"
OFF = ((0, 1, 0.0), (1, 3, 0.5), (2, 0, 2.0))
TARGET, OTHER = (7, 20, 33), (50,)
KINDS = list(Live(LM(build(BY_ID["llama"]), tokenizer(), "")).kinds)

switched = pytest.mark.parametrize("heads", [(), OFF], ids=["whole", "switched"])


@cache
def lm_of(family: str) -> LM:
    return LM(build(BY_ID[family]), tokenizer(), family)


@pytest.fixture(scope="module")
def lm() -> LM:
    return lm_of("llama")


@pytest.fixture(scope="module")
def live(lm) -> Live:
    return Live(lm)


@pytest.fixture(scope="module")
def hybrid() -> Live:
    """The last of its four layers has heads."""
    return Live(lm_of("qwen3_next"))


def ask(live: Live, kind: str, prompt: str = PROMPT, **fields: Any) -> dict[str, Any]:
    *_, last = live.kinds[kind](Question(prompt, **fields))
    return last["result"]


def unpack(text: str, dtype: str = "<f4") -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype)


def map_of(live: Live, kind: str, prompt: str = PROMPT, **fields: Any) -> np.ndarray:
    return unpack(ask(live, kind, prompt, **fields)["map"]).reshape(live.lm.n_layers, live.lm.n_heads)


@torch.no_grad()
def run(lm: LM, ids: list[int], heads: Any = (), **options: Any) -> Any:
    """The model itself, with heads switched: (layer, head, scale) each, or a gate."""
    gate = heads if isinstance(heads, Tensor) else Question(PROMPT, tuple(heads)).gate(lm)
    with lm.gated(gate):
        return lm.model(torch.tensor([ids]), use_cache=False, **options)


def log_p(lm: LM, prompt: str, target: tuple[int, ...], heads: Any = (), other: tuple[int, ...] = ()) -> float:
    """A pass for every token of the answer, less the same for the other one."""
    ids, total = lm.encode(prompt)[0], 0.0
    for i, token in enumerate(target):
        total += run(lm, ids + list(target[:i]), heads).logits[0, -1].log_softmax(-1)[token].item()
    return total - (log_p(lm, prompt, other, heads) if other else 0)


def words(n: int) -> str:
    return " ".join(f"w{(7 * i) % 57}" for i in range(n))


def traces(lm: LM) -> tuple[Any, ...]:
    """Everything that a question may change in a model meanwhile."""
    modules = list(lm.model.modules())
    hooks = sum(len(m._forward_pre_hooks) + len(m._forward_hooks) for m in modules)
    own = [type(m).__name__ for m in modules if "forward" in vars(m)]
    learning = [p.requires_grad for p in lm.model.parameters()]
    return hooks, own, learning, lm.model.config._attn_implementation, list(lm._edit_batches), torch.is_grad_enabled()


# --- what comes next


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2", "granite", "cohere", "bloom"])
@switched
def test_next_is_what_the_model_gives(family, heads) -> None:
    lm = lm_of(family)
    told, ids = ask(Live(lm), "next", heads=heads), lm.encode(PROMPT)[0]
    p, before = (run(lm, ids, h).logits[0, -1].float().softmax(-1) for h in (heads, ()))
    assert told["tokens"] == PROMPT.split()
    likeliest = {i for each in (p, before) for i in each.argsort(descending=True)[:10].tolist()}
    assert {t["id"] for t in told["next"]} == likeliest
    assert len(told["next"]) == len(likeliest)
    for token in told["next"]:
        assert token["p"] == pytest.approx(p[token["id"]].item(), rel=1e-5)
        assert token["before"] == pytest.approx(before[token["id"]].item(), rel=1e-5)
        assert token["text"] == lm.tokenizer.decode([token["id"]])
    sizes = [max(t["p"], t["before"]) for t in told["next"]]
    assert sizes == sorted(sizes, reverse=True)
    best = before.argmax().item()  # of the whole model, whatever is switched
    assert told["target"]["ids"] == [best]
    assert told["target"]["log_p"] == pytest.approx(p[best].log().item(), abs=1e-5)
    assert told["other"] is None


@switched
@pytest.mark.parametrize("target", [(7,), TARGET], ids=["token", "tokens"])
@pytest.mark.parametrize("other", [(), OTHER, (8, 9)], ids=["alone", "other", "others"])
def test_log_p_of_answers_is_that_of_their_tokens_one_by_one(live, lm, heads, target, other) -> None:
    told = ask(live, "next", heads=heads, target=target, other=other)
    for name, ids in (("target", target), ("other", other)):
        if ids:
            assert told[name]["ids"] == list(ids)
            assert told[name]["tokens"] == [lm.tokenizer.decode([i]) for i in ids]
            assert told[name]["log_p"] == pytest.approx(log_p(lm, PROMPT, ids, heads), abs=1e-4)
    assert (told["other"] is None) == (not other)


LETTERS = "abcdefghijklmnopqrstuvwxyz"
SPACED = "cdefghijklm"  # these have a separate token after a space


@pytest.fixture(scope="module")
def spelling() -> Live:
    """A token a letter; 'ab' and 'a ' are one."""
    merges = [("a", "b"), ("a", "Ġ"), *(("Ġ", c) for c in SPACED)]
    vocabulary = {t: i for i, t in enumerate([*LETTERS, "Ġ", *("".join(m) for m in merges)])}
    inner = Tokenizer(models.BPE(vocabulary, merges))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    return Live(LM(build(BY_ID["llama"]), PreTrainedTokenizerFast(tokenizer_object=inner), "spelling"))


@switched
def test_text_is_an_answer_with_the_space_that_the_whole_model_finds_likelier(spelling, heads) -> None:
    def ids(text: str) -> tuple[int, ...]:
        return tuple(spelling.lm.tokenizer(text)["input_ids"])

    choices = set()
    for text in [*LETTERS[2:], "cat", "zoo"]:
        options = [ids(text), ids(f" {text}")]
        best = max(options, key=lambda t: log_p(spelling.lm, "my x", t) / len(t))
        assert ask(spelling, "next", "my x", heads=heads, target=text)["target"]["ids"] == list(best)
        assert ask(spelling, "next", "my x", heads=heads, other=text)["other"]["ids"] == list(best)
        assert ask(spelling, "next", "my x", target=f" {text}")["target"]["ids"] == list(ids(f" {text}"))
        choices.add(options.index(best))
    assert choices == {0, 1}


def test_an_answer_that_would_change_the_prompts_tokens_stands_alone(spelling) -> None:
    b, space_c = (spelling.lm.tokenizer(t)["input_ids"] for t in ("b", " c"))
    assert ask(spelling, "next", "xa", target="b")["target"]["ids"] == b  # 'ab' and 'a ' are tokens
    assert ask(spelling, "next", "x", target=" c")["target"]["ids"] == space_c
    blank = ask(spelling, "next", "xa", target="  ", other=" ")
    assert blank["target"]["ids"] == [blank["next"][0]["id"]]
    assert blank["other"] is None


def test_answers_that_do_not_fit_are_refused(live) -> None:
    for target in ((1,) * 5, "w1 w2 w3 w4 w5"):
        with pytest.raises(BadArgument, match="65 tokens long, but the model's context is 64"):
            ask(live, "next", words(60), target=target)
    with pytest.raises(BadArgument, match="65 tokens long, but the model's context is 64"):
        ask(live, "next", words(65))


def test_few_passes_are_remembered_and_forgetting_changes_nothing(lm) -> None:
    live = Live(lm)
    prompts = [words(n) for n in range(1, module.MAX_READINGS + 4)]
    first = [ask(live, "next", p) for p in prompts]
    assert len(live._readings) == module.MAX_READINGS
    assert [ask(live, "next", p) for p in prompts] == first


# --- where a head looks


@pytest.mark.parametrize("family", ["llama", "mistral", "gpt2", "gpt_oss", "opt"])
@pytest.mark.parametrize(
    ("at_once", "short"),
    [(module.MAX_ATTENTION_BYTES, module.SHORT_PROMPT), (module.MAX_ATTENTION_BYTES, 0), (0, 0)],
    ids=["in the first pass", "all at once", "layer by layer"],
)
@switched
def test_attention_is_what_plain_kernels_give(family, at_once, short, heads, monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_ATTENTION_BYTES", at_once)
    monkeypatch.setattr(module, "SHORT_PROMPT", short)
    lm = lm_of(family)
    live, ids = Live(lm), lm.encode(PROMPT)[0]
    before = lm.model.config._attn_implementation
    lm.model.set_attn_implementation("eager")
    expected = run(lm, ids, heads, output_attentions=True).attentions
    lm.model.set_attn_implementation(before)
    for layer in (0, lm.n_layers - 1):
        for head in (0, lm.n_heads - 1):
            told = unpack(ask(live, "attention", heads=heads, layer=layer, head=head)["attention"], "<f2")
            own = expected[layer][0, head, :, : len(ids)]
            np.testing.assert_allclose(told.reshape(own.shape), own, atol=1e-3)
    assert len(live.reading(Question(PROMPT, heads)).attention) == (lm.n_layers if at_once else 1)


def of_llama(out: Tensor, head: int) -> Tensor:
    return out.unflatten(-1, (2, 10))[:, head // 3]


def of_gpt2(out: Tensor, head: int) -> Tensor:
    return out[:, 96:].unflatten(-1, (6, 8))[:, head]


def of_deepseek(out: Tensor, head: int) -> Tensor:
    return out.unflatten(-1, (6, 16))[:, head, 6:]


@pytest.mark.parametrize(
    ("family", "projection", "cut"),
    [
        ("llama", "model.layers.1.self_attn.v_proj", of_llama),
        ("gpt2", "transformer.h.1.attn.c_attn", of_gpt2),
        ("deepseek_v3", "model.layers.1.self_attn.kv_b_proj", of_deepseek),
    ],
)
@switched
def test_values_have_the_length_that_the_model_gives_them(family, projection, cut, heads) -> None:
    lm, seen = lm_of(family), []
    hook = lm.model.get_submodule(projection).register_forward_hook(
        lambda m, args, out: seen.append(out.flatten(0, -2))
    )
    run(lm, lm.encode(PROMPT)[0], heads)
    hook.remove()
    for head in range(lm.n_heads):
        told = unpack(ask(Live(lm), "attention", heads=heads, layer=1, head=head)["values"])
        np.testing.assert_allclose(told, cut(seen[0], head).norm(dim=-1), rtol=1e-4)


def test_a_model_in_training_tells_where_it_looks(lm) -> None:
    learning = LM(build(BY_ID["llama"]).requires_grad_(True), tokenizer(), "learning")
    assert ask(Live(learning), "attention", layer=1) == ask(Live(lm), "attention", layer=1)


@pytest.mark.parametrize("n", [5, 60])
def test_thumbnails_hold_the_largest_of_each_square(live, lm, n) -> None:
    told = ask(live, "thumbnails", words(n), layer=1, heads=OFF)
    size = told["size"]
    assert size == min(n, module.THUMBNAIL_SIZE)
    assert len(told["heads"]) == lm.n_heads
    ends = [(i * n // size, -(-(i + 1) * n // size)) for i in range(size)]
    for head in (0, 5):
        large = unpack(ask(live, "attention", words(n), layer=1, head=head, heads=OFF)["attention"], "<f2")
        large = large.reshape(n, n).astype(np.float32)
        small = np.array([[int(large[a:b, c:d].max() * 255) for c, d in ends] for a, b in ends])
        np.testing.assert_array_equal(unpack(told["heads"][head], "u1").reshape(size, size), small)


def test_a_model_that_does_not_tell_where_its_heads_look_says_so_and_answers_the_rest() -> None:
    live = Live(lm_of("falcon-rw"))
    before = traces(live.lm)
    for kind in ("attention", "thumbnails"):
        with pytest.raises(UnsupportedModel, match="cannot read the attention of"):
            ask(live, kind)
    assert traces(live.lm) == before
    best = run(live.lm, live.lm.encode(PROMPT)[0]).logits[0, -1].argmax().item()
    assert ask(live, "next")["next"][0]["id"] == best
    assert np.isfinite(map_of(live, "slope")).all()


# --- what heads write


@pytest.mark.parametrize("family", ["llama", "granite", "gemma2"])
@switched
def test_writes_are_sorted_and_are_the_direct_contributions(family, heads) -> None:
    live = Live(lm_of(family))
    told = ask(live, "writes", heads=heads, layer=1, head=4)
    raised, lowered = ([t["change"] for t in told[name]] for name in ("raised", "lowered"))
    assert told["token"] == 5
    assert raised == sorted(raised, reverse=True)
    assert lowered == sorted(lowered)
    assert len(raised) == len(lowered) == module.TOP_TOKENS
    every = {i: map_of(live, "direct", heads=heads, target=(i,))[1, 4] for i in range(61)}
    ranked = sorted(every, key=lambda i: -every[i])
    for name, best in (("raised", ranked[:10]), ("lowered", ranked[:-11:-1])):
        assert [t["text"] for t in told[name]] == [live.text(i) for i in best]
        assert [t["change"] for t in told[name]] == pytest.approx([every[i] for i in best], rel=1e-4, abs=1e-6)
    scale = {"granite": 0.5}.get(family, 1)
    part = head_writes(live.lm, live.reading(Question(PROMPT, heads)).record, 1, 5)[4]
    by_hand = logit_contributions(live.lm, part) * scale
    np.testing.assert_allclose([every[i] for i in range(61)], by_hand, rtol=1e-3, atol=1e-5)


def test_what_a_head_writes_at_a_token_does_not_depend_on_what_comes_after(live) -> None:
    told = ask(live, "writes", words(9), layer=2, head=3, token=4)
    alone = ask(live, "writes", words(5), layer=2, head=3)
    for name in ("raised", "lowered"):
        assert [t["text"] for t in told[name]] == [t["text"] for t in alone[name]]
        changes = [t["change"] for t in alone[name]]
        assert [t["change"] for t in told[name]] == pytest.approx(changes, rel=1e-3)
    with pytest.raises(BadArgument, match="token is 9, but the prompt has 9 tokens, counted from 0"):
        ask(live, "writes", words(9), token=9)


@switched
def test_direct_is_of_first_tokens_and_less_the_other_one(live, heads) -> None:
    both = map_of(live, "direct", heads=heads, target=TARGET, other=OTHER)
    first, other = (map_of(live, "direct", heads=heads, target=(t,)) for t in (TARGET[0], OTHER[0]))
    np.testing.assert_allclose(both, first - other, atol=1e-5)
    assert not np.allclose(both, first, atol=1e-2)


# --- what removing heads does


@pytest.mark.parametrize(("target", "other"), [(TARGET, ()), (TARGET, OTHER), (TARGET[:1], OTHER[:1])])
@switched
def test_slope_is_a_finite_difference(heads, target, other) -> None:
    lm = lm_of("gpt2")  # it does not round to float32 inside
    live = Live(lm)
    slope = map_of(live, "slope", heads=heads, target=target, other=other)
    np.testing.assert_allclose(
        map_of(live, "slope", heads=heads, target=target, other=other), slope, rtol=1e-5, atol=1e-6
    )
    for layer, head in [(0, 0), (0, 1), (1, 3), (2, 0), (2, 5)]:
        sides = []
        for step in (1e-5, -1e-5):
            gate = Question(PROMPT, heads).gate(lm).double()
            gate[layer, head] *= 1 + step
            sides.append(log_p(lm, PROMPT, target, gate, other))
        assert slope[layer, head] == pytest.approx((sides[0] - sides[1]) / 2e-5, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("replays", [None, False], ids=["replayed", "run whole"])
@pytest.mark.parametrize(("heads", "other"), [((), ()), (OFF, OTHER)], ids=["whole", "switched"])
def test_exact_is_what_removing_each_head_costs(family, replays, heads, other) -> None:
    live = Live(lm_of(family))
    live._replays = replays
    *progress, last = live.exact(Question(PROMPT, heads, target=TARGET, other=other))
    assert [p["progress"] for p in progress] == pytest.approx([1 / 3, 2 / 3, 1])
    cost = unpack(last["result"]["map"]).reshape(3, 6)
    before = log_p(live.lm, PROMPT, TARGET, heads, other)
    for layer, head in [(0, 0), (0, 1), (1, 3), (2, 0), (2, 5)]:
        with live.lm.patched((layer, head)):
            assert cost[layer, head] == pytest.approx(before - log_p(live.lm, PROMPT, TARGET, heads, other), abs=1e-4)
    assert live._replays == (replays is None)


@pytest.mark.parametrize("short", [True, False])
@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2", "deepseek_v3"])
def test_a_model_in_half_precision_says_the_same(family, short, monkeypatch) -> None:
    if not short:
        monkeypatch.setattr(module, "SHORT_PROMPT", 2)
    half = build(BY_ID[family]).bfloat16()
    exact_live, live = (Live(LM(model, tokenizer(), family)) for model in (copy.deepcopy(half).float(), half))
    before = traces(live.lm)
    for kind in ("slope", "exact", "direct"):
        a, b = (map_of(each, kind, heads=OFF, target=TARGET, other=OTHER) for each in (live, exact_live))
        assert np.abs(a - b).mean() < 0.1 * np.abs(b).mean()
    for kind in KINDS:
        ask(live, kind, heads=OFF, target=TARGET, layer=1, head=4, token=2)
    assert traces(live.lm) == before


def test_a_long_question_goes_on_after_others_as_if_there_had_been_none(lm) -> None:
    live = Live(lm)
    expected = ask(live, "exact", target=TARGET, heads=OFF)
    paused = live.exact(Question(PROMPT, OFF, target=TARGET))
    next(paused)
    for n in range(1, module.MAX_READINGS + 2):
        ask(live, "next", words(n), heads=((0, 0, 0.0),))
    ask(live, "attention", heads=((2, 1, 0.0),))
    *_, last = paused
    assert last["result"] == expected


# --- random heads


def gate_of(*rows: tuple[float, ...]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float32)


def drawn(gate: Tensor, most: int | None = None, seed: int = 0) -> list[tuple[tuple[float, ...], ...]]:
    """Gates with any heads of the same layers switched."""
    counts = {layer: int((row != 1).sum()) for layer, row in enumerate(gate)}
    sets = {layer: list(combinations(range(gate.shape[1]), n)) for layer, n in counts.items() if n}
    gates = islice(matched_gates(gate, sets, np.random.default_rng(seed)), most)
    return [tuple(tuple(row) for row in g.tolist()) for g in gates]


def test_random_heads_are_others_of_the_same_layers_switched_as_far() -> None:
    gate = gate_of((0, 0, 1, 1, 1, 1), (1, 1, 0, 0.5, 1, 1), (1,) * 6)
    others = drawn(gate, 60)
    assert len(set(others)) == len(others) == 60
    own = tuple(tuple(row) for row in gate.tolist())
    assert own not in others
    for other in others:
        assert [sorted(row) for row in other] == [sorted(row) for row in own]
    assert drawn(gate, 60) == others
    assert drawn(gate, 60, seed=1) != others
    assert {other[0] for other in others} != {own[0]}
    assert {other[1] for other in others} != {own[1]}


@pytest.mark.parametrize(
    ("rows", "ways"),
    [
        (((0, 1, 1), (1, 1, 1)), 3),
        (((0, 1, 1), (1, 0, 0)), 9),
        (((0, 0.5, 1),), 6),
        (((0, 0.5, 1), (2, 1, 1)), 18),
        (((0, 0, 0), (1, 1, 1)), 1),
        (((0.5, 0.5, 0.5), (0, 0, 0)), 1),
    ],
)
def test_all_of_few_are_drawn(rows, ways) -> None:
    for seed in range(3):
        assert len(set(drawn(gate_of(*rows), seed=seed))) == len(drawn(gate_of(*rows), seed=seed)) == ways - 1


def test_minus_zero_is_zero(lm) -> None:
    gate = read_question(lm, {"prompt": "w1", "heads": [[0, 0, 0.0], [0, 1, -0.0]]}).gate(lm)
    others = drawn(gate)
    assert len(set(others)) == len(others) == 14
    assert tuple(tuple(row) for row in gate.tolist()) not in others


@pytest.mark.parametrize("other", [(), OTHER])
def test_control_compares_with_random_heads(live, lm, other) -> None:
    question = Question(PROMPT, OFF, target=TARGET, other=other, draws=12, seed=3)
    *progress, last = live.control(question)
    told, before = last["result"], log_p(lm, PROMPT, TARGET, (), other)
    assert [p["progress"] for p in progress] == pytest.approx([5 / 12, 10 / 12, 1])
    effect = log_p(lm, PROMPT, TARGET, OFF, other) - before
    generator = np.random.default_rng(3)
    matched = match([(0, 1), (1, 3), (2, 0)], live.influence, lm.n_kv_heads, generator, min_sets=13)
    gates = islice(matched_gates(question.gate(lm), matched.by_layer, generator), 12)
    random = [log_p(lm, PROMPT, TARGET, gate, other) - before for gate in gates]
    assert told["matched"] == matched.text
    assert live.influence.shape == (3, 6)
    assert told["before"] == pytest.approx(before, rel=1e-4)
    assert told["effect"] == pytest.approx(effect, rel=1e-3, abs=1e-4)
    assert told["random"] == pytest.approx(random, rel=1e-3, abs=1e-4)
    assert told["p"] == (1 + sum(r <= effect for r in random)) / 13
    assert told["all"] is False


def test_draws_switch_only_the_sets_that_are_given() -> None:
    gate = gate_of((0, 0.5, 1, 1), (1, 1, 1, 1))
    gates = list(matched_gates(gate, {0: [(0, 1), (1, 2)]}, np.random.default_rng(0)))
    expected = [(0.5, 0, 1, 1), (1, 0, 0.5, 1), (1, 0.5, 0, 1)]
    assert sorted(tuple(g[0].tolist()) for g in gates) == sorted(expected)
    assert all(g[1].tolist() == [1, 1, 1, 1] for g in gates)


def test_control_has_no_more_random_heads_than_there_are(live) -> None:
    few = ask(live, "control", heads=((1, 2, 0.0),), draws=20)
    assert len(few["random"]) == 5
    assert few["all"] is True
    assert 1 / 6 <= few["p"] <= 1
    layer = tuple((1, h, 0.0) for h in range(6))
    none = ask(live, "control", heads=layer, target=TARGET)
    assert (none["random"], none["p"], none["all"]) == ([], 1, True)
    expected = log_p(live.lm, PROMPT, TARGET, layer) - log_p(live.lm, PROMPT, TARGET)
    assert none["effect"] == pytest.approx(expected, rel=1e-3)
    with pytest.raises(BadArgument, match="heads is empty: switch a head off before"):
        ask(live, "control")


def test_exactly_as_many_draws_as_there_are_sets_are_all_of_them(live) -> None:
    told = ask(live, "control", heads=((1, 2, 0.0),), draws=5)
    assert len(told["random"]) == 5
    assert told["all"] is True


# --- what it says


@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral"])
@pytest.mark.parametrize("n", [6, 60, 63])
@pytest.mark.parametrize("new", [8, 20])
@switched
def test_a_continuation_is_what_generate_gives(family, n, new, heads) -> None:
    lm = lm_of(family)
    *partial, last = Live(lm).continuation(Question(words(n), heads, new=new))
    fits = min(new, 64 - n)
    with lm.gated(Question("", heads).gate(lm)):
        ids, text = lm.generate_ids(words(n), fits)[0], lm.generate(words(n), fits)
    assert last["result"] == {"text": text, "tokens": len(ids)}
    texts = [p["partial"]["text"] for p in partial]
    assert len(texts) == math.ceil(min(fits, len(ids) + 1) / module.TOKENS_PER_STEP)
    assert texts[-1] == text
    assert all(text.startswith(t) for t in texts)


@pytest.mark.parametrize("stop", [0, 3, 9])
def test_a_continuation_ends_where_the_model_ends_it(live, lm, stop, monkeypatch) -> None:
    ids = lm.generate_ids(PROMPT, 20, eos_token_id=None)[0]
    assert ids.index(ids[stop]) == stop
    monkeypatch.setattr(lm.model.generation_config, "eos_token_id", ids[stop])
    assert ask(live, "continuation", new=20) == {"text": lm.tokenizer.decode(ids[:stop]), "tokens": stop}


def test_nothing_is_written_after_a_full_context(live) -> None:
    assert ask(live, "continuation", words(64)) == {"text": "", "tokens": 0}


# --- the script


def run_script(live: Live, monkeypatch, prompt: str, **fields: Any) -> tuple[list[str], list[Any]]:
    """Lines that it prints, and what it loads."""
    loaded: list[Any] = []

    def load(*args: Any, **options: Any) -> LM:
        loaded.append((*args, options))
        return live.lm

    monkeypatch.setattr(ha, "load", load)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(ask(live, "script", prompt, **fields)["text"], "script", "exec"), {"__name__": "__main__"})
    return out.getvalue().splitlines(), loaded


@pytest.mark.parametrize("prompt", [PROMPT, "w1 'w2\" {w3} \\n\nw4 {{}} w5"])
@pytest.mark.parametrize("heads", [(), OFF], ids=["whole", "switched"])
@pytest.mark.parametrize("other", [(), OTHER])
def test_the_script_prints_what_the_page_shows(lm, monkeypatch, prompt, heads, other) -> None:
    live = Live(lm, "some/model")
    fields: dict[str, Any] = {"target": TARGET, "other": other, "new": 5}
    lines, loaded = run_script(live, monkeypatch, prompt, heads=heads, **fields)
    assert loaded == [("some/model", {"device": "cpu", "dtype": "float64"})]
    assert len(lines) % 2 == 0
    half = len(lines) // 2
    for part, gate in ((lines[:half], ()), (lines[half:], heads)):
        told = ask(live, "next", prompt, heads=gate, **fields)
        answers = [a for a in (told["target"], told["other"]) if a]
        assert len(part) == 10 + len(answers) + 1
        likeliest = sorted(told["next"], key=lambda t: -t["p"])[:10]
        for line, token in zip(part, likeliest, strict=False):
            p, text = line.split(maxsplit=1)
            assert float(p) == pytest.approx(token["p"], abs=1e-4)
            assert ast.literal_eval(text) == token["text"]
        for line, answer in zip(part[10:], answers, strict=False):
            start, value = line.rsplit(" = ")
            assert start == f"log P({lm.tokenizer.decode(answer['ids'])!r})"
            assert float(value) == pytest.approx(answer["log_p"], abs=2e-4)
        assert ast.literal_eval(part[-1]) == ask(live, "continuation", prompt, heads=gate, **fields)["text"]


def test_a_script_for_a_model_of_ones_own_names_it_and_runs(lm, monkeypatch) -> None:
    live = Live(LM(lm.model, tokenizer(), "my\nmodel"))
    assert "# 'my\\nmodel', as you loaded it\n" in ask(live, "script")["text"]
    lines, loaded = run_script(live, monkeypatch, PROMPT)
    assert loaded == [(..., {})]
    assert len(lines) == 24


def test_a_script_keeps_a_path_as_it_is(lm, monkeypatch) -> None:
    _, loaded = run_script(Live(lm, "my  models/it's"), monkeypatch, PROMPT)
    assert loaded[0][0] == "my  models/it's"


@pytest.mark.parametrize("n", [60, 63])
def test_a_script_for_a_long_prompt_runs(live, monkeypatch, n) -> None:
    lines, _ = run_script(live, monkeypatch, words(n))
    assert ast.literal_eval(lines[-1]) == ask(live, "continuation", words(n))["text"]


# --- hybrids, and what stays behind


@pytest.mark.parametrize("kind", KINDS)
def test_a_hybrid_answers_for_layers_with_heads(hybrid, kind) -> None:
    told = ask(hybrid, kind, layer=3, head=2, heads=((3, 1, 0.0),), new=3)
    if "map" in told:
        values = unpack(told["map"]).reshape(4, 6)
        assert np.isnan(values[:3]).all()
        assert np.isfinite(values[3]).all()
        assert np.ptp(values[3]) > 0


def test_a_layer_without_heads_is_refused(hybrid) -> None:
    for kind in ("attention", "thumbnails", "writes"):
        with pytest.raises(BadArgument, match="^layer is 1, which has no attention heads$"):
            ask(hybrid, kind, layer=1)
    with pytest.raises(BadArgument, match="^heads has L1.H0, but layer 1 has no attention heads$"):
        read_question(hybrid.lm, {"prompt": "w1", "heads": [[1, 0, 0]]})


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_stays_behind_in_the_model(lm, kind) -> None:
    before, live = traces(lm), Live(lm)
    question = Question(PROMPT, OFF, target=TARGET, new=20)
    answer = live.kinds[kind](question)
    next(answer)
    assert traces(lm) == before  # between two steps, other questions are answered
    answer.close()
    assert traces(lm) == before
    list(live.kinds[kind](question))
    assert traces(lm) == before
