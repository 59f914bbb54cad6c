"""streaming: exact against explicit masks in every family; the head that must see far back is the one that is found."""

import re
from functools import partial

import numpy as np
import pytest
import torch
import xarray as xr
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

import headatlas as ha
from headatlas.errors import BadArgument, UnsupportedModel
from headatlas.methods import get_method
from headatlas.methods.streaming import MAX_KEYS
from headatlas.methods.streaming.compute import fit_alpha, log_p_of_sets, losses_one_by_one, ramp, scored_log_p
from headatlas.methods.streaming.halves import split_by_need
from headatlas.methods.streaming.texts import (
    ACTIONS,
    CIRCUMSTANCES,
    COLOURS,
    DOORS,
    PEOPLE,
    THINGS,
    ScoredText,
    Window,
    key_sentences,
    passkey_texts,
)
from headatlas.models.hooks import hooked
from headatlas.models.lm import LM
from headatlas.models.streaming_attention import check_streams, streaming
from headatlas.results.about import by_kv_group
from headatlas.tasks.prompts import Example, Task
from headatlas.testing import (
    MethodCase,
    check_layers_without_heads,
    check_parts,
    check_repeatable,
    check_resumable,
    check_shapes,
    tiny_lm,
)
from tests.models.handmade import ASK, CARRIER, FILL, SPOILER, WORDS, handmade
from tests.models.tiny import TINY, Tiny, build, texts

OWN_ATTENTION = ("gpt_neo", "gptj", "bloom", "falcon", "mpt")  # these do not use transformers' attention interface
WITH = [tiny for tiny in TINY if tiny.family not in OWN_ATTENTION]
SEES = (2, 3)
WINDOW = Window(*SEES)


def seen(n: int, window: Window) -> torch.Tensor:
    """What a streaming head may see of the tokens so far, told one by one: [token, token]."""
    mask = torch.zeros(n, n, dtype=torch.bool)
    for query in range(n):
        for key in range(query + 1):
            mask[query, key] = key < window.sink or key > query - window.recent
    return mask


def narrow_mask(window: Window, module, args, kwargs):
    """A hook that gives an attention module its own mask and the window at once, written out."""
    mask, n = (
        kwargs["attention_mask"],
        kwargs["hidden_states"].shape[1] if "hidden_states" in kwargs else args[0].shape[1],
    )
    allowed = seen(n, window)
    if mask is None:
        kwargs["attention_mask"] = allowed[None, None]
    elif mask.dtype == torch.bool:
        kwargs["attention_mask"] = mask & allowed
    else:
        kwargs["attention_mask"] = torch.where(allowed, mask, torch.finfo(mask.dtype).min)
    return args, kwargs


@torch.no_grad()
def by_hand(lm: LM, ids: torch.Tensor, layer: int, alpha: torch.Tensor, window: Window) -> torch.Tensor:
    """Logits with one layer's heads mixed by α [kv_head]: both attentions are run, and what they give is put in."""
    z: list[torch.Tensor] = []

    def keep(at: int, now: torch.Tensor) -> None:
        if at == layer:
            z.append(now)

    site = lm.anatomy.sites[layer]
    with hooked(lm.model, lm.anatomy, keep):
        lm.model(ids, use_cache=False)
        hook = lm.model.get_submodule(site.attention).register_forward_pre_hook(
            partial(narrow_mask, window), with_kwargs=True
        )
        lm.model(ids, use_cache=False)
        hook.remove()
    full, narrow = z
    mixed = full.clone()
    for head in range(lm.n_heads):
        share = alpha[head // (lm.n_heads // lm.n_kv_heads)].to(full)
        mixed[:, :, head] = share * full[:, :, head] + (1 - share) * narrow[:, :, head]
    with hooked(lm.model, lm.anatomy, lambda at, now: mixed if at == layer else None):
        return lm.model(ids, use_cache=False).logits


@pytest.mark.parametrize("tiny", WITH, ids=lambda tiny: tiny.id)
@torch.no_grad()
def test_every_family_streams_as_under_an_explicit_mask(tiny: Tiny) -> None:
    lm, ids = LM(build(tiny), None, "tiny"), torch.tensor(texts((14, 14)))
    check_streams(lm)
    whole = lm.model(ids, use_cache=False).logits
    ones = torch.ones(lm.n_layers, lm.n_kv_heads)
    with streaming(lm, ones, *SEES):
        assert torch.equal(lm.model(ids, use_cache=False).logits, whole)  # the very same calls
    with streaming(lm, ones * 0, 0, 14):  # everything is recent
        torch.testing.assert_close(lm.model(ids, use_cache=False).logits, whole, rtol=1e-5, atol=1e-5)
    layer = lm.layers_with_heads[-1]
    for values in (torch.zeros(lm.n_kv_heads), torch.linspace(0.1, 0.8, lm.n_kv_heads)):
        alpha = ones.clone()
        alpha[layer] = values
        with streaming(lm, alpha, *SEES):
            logits = lm.model(ids, use_cache=False).logits
        expected = by_hand(lm, ids, layer, values, WINDOW)
        assert (expected - whole).abs().max() > 1e-3
        torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(lm.model(ids, use_cache=False).logits, whole)  # nothing stays behind


@pytest.mark.parametrize("family", OWN_ATTENTION)
def test_families_without_the_interface_are_told(family) -> None:
    lm = LM(build(next(tiny for tiny in TINY if tiny.family == family)), None, "tiny")
    before = lm.model.config._attn_implementation
    with pytest.raises(UnsupportedModel, match=r"cannot be made to stream: its attention does not go through"):
        ha.streaming(lm, [((1, 2, 3, 4, 5, 6), (7,)), ((1, 2, 3, 4, 5, 8), (9,)), ((3, 2, 3, 4, 5, 6), (7,))])
    assert lm.model.config._attn_implementation == before


def scored(n: int, length: int = 20, seed: int = 0) -> list[ScoredText]:
    """Random tokens, of different lengths; the last three are scored."""
    ids = texts(tuple(length - 2 * i for i in range(n)), seed)
    return [ScoredText(tuple(t), tuple(range(len(t) - 3, len(t)))) for t in ids]


@torch.no_grad()
def slow_losses(lm: LM, texts: list[ScoredText], window: Window) -> np.ndarray:
    """One text, one layer, one KV head at a time, whole runs with written-out masks: [text, layer, kv_head]."""
    lost = np.full((len(texts), lm.n_layers, lm.n_kv_heads), np.nan)
    for i, text in enumerate(texts):
        ids = torch.tensor([text.ids])

        def quality(logits: torch.Tensor, text: ScoredText = text) -> float:
            log_p = logits[0].log_softmax(-1)
            return sum(log_p[place - 1, text.ids[place]].item() for place in text.scored) / len(text.scored)

        whole = quality(lm.model(ids, use_cache=False).logits)
        for layer, site in enumerate(lm.anatomy.sites):
            for head in range(lm.n_kv_heads) if site is not None else ():
                alpha = torch.ones(lm.n_kv_heads)
                alpha[head] = 0
                lost[i, layer, head] = whole - quality(by_hand(lm, ids, layer, alpha, window))
    return lost


@pytest.mark.parametrize("replay", [True, False])
@pytest.mark.parametrize("tokens", [None, 1])
def test_one_by_one_is_what_whole_runs_give(replay, tokens) -> None:
    lm, texts = tiny_lm(), scored(3)
    lost, log_p, right = losses_one_by_one(lm, texts, WINDOW, [0, 1, 2], replay=replay, batch_tokens=tokens)
    np.testing.assert_allclose(lost, slow_losses(lm, texts, WINDOW), atol=2e-5)
    assert lost.abs().max() > 0.01
    alone = [scored_log_p(lm, [text], WINDOW) for text in texts]
    torch.testing.assert_close(log_p, torch.cat([v[0][0] for v in alone]))
    torch.testing.assert_close(right, torch.cat([v[1][0] for v in alone]))


@pytest.mark.parametrize("tiny", [t for t in TINY if t.family in ("gpt_oss", "qwen3_next")], ids=lambda t: t.id)
def test_one_by_one_in_models_with_sinks_windows_and_linear_layers(tiny) -> None:
    lm, texts = LM(build(tiny), None, "tiny"), scored(2)
    layers = lm.layers_with_heads
    lost, *_ = losses_one_by_one(lm, texts, WINDOW, layers)
    np.testing.assert_allclose(lost, slow_losses(lm, texts, WINDOW)[:, layers], atol=2e-5)


def test_sets_in_one_batch_are_what_each_alone_gives() -> None:
    lm, texts = tiny_lm(), scored(3)
    alpha = (torch.rand(4, lm.n_layers, lm.n_kv_heads, generator=torch.Generator().manual_seed(0)) > 0.5).float()
    together = log_p_of_sets(lm, texts, WINDOW, alpha)
    alone = torch.stack([log_p_of_sets(lm, [text], WINDOW, a[None])[0, 0] for a in alpha for text in texts])
    torch.testing.assert_close(together.flatten(), alone, rtol=1e-5, atol=1e-5)


def test_the_gradient_is_that_of_alpha() -> None:
    lm, ids = LM(build(TINY[0]), None, "tiny"), torch.tensor(texts((12,)))

    def output(alpha: torch.Tensor) -> torch.Tensor:
        with streaming(lm, alpha, *SEES):
            return lm.model(ids, use_cache=False).logits[0, -1, :5]

    alpha = torch.linspace(0.2, 0.9, lm.n_layers * lm.n_kv_heads, dtype=torch.float64).view(lm.n_layers, -1)
    # a wide step: the norms of this family compute in float32
    assert torch.autograd.gradcheck(output, (alpha.requires_grad_(),), eps=1e-3, atol=1e-3)


@torch.no_grad()
def check_half_precision(dtype: torch.dtype, device: str) -> None:
    """Losses and α in half precision are near those in float32. test_gpu.py runs this too."""
    texts = scored(2, length=60)
    single, half = (LM(tiny_lm().model.to(device, d), None, "tiny") for d in (torch.float32, dtype))
    losses, fits = zip(
        *(
            (
                losses_one_by_one(lm, texts, WINDOW, [0, 1, 2])[0],
                fit_alpha(lm, texts, WINDOW, updates=6, strength=0.3, lr=0.1)[0],
            )
            for lm in (single, half)
        ),
        strict=True,
    )
    assert (losses[1] - losses[0]).abs().max() < 0.1 * losses[0].abs().max()
    assert (fits[1] - fits[0]).abs().max() < 0.05


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision(dtype) -> None:
    check_half_precision(dtype, "cpu")


# --- a model whose heads are known


def far_words(fills: range = range(8, 12)) -> Task:
    """'fill fill word fill … fill ask'; the target is the word, which is out of a streaming head's sight."""
    examples = [Example((FILL, FILL, w, *[FILL] * n, ASK), (w,)) for w in range(WORDS) for n in fills]
    return Task("far", tuple(examples[::2]), tuple(examples[1::2]))


def test_the_head_that_carries_a_far_word_is_found() -> None:
    result = ha.streaming(handmade(), far_words(), sink=2, recent=4, limit=12).sel(task="far")
    loss = result.loss
    assert float(loss[CARRIER]) > 0.5
    assert float(loss[SPOILER]) < -0.1  # it writes a wrong word: better if it does not see it
    others = loss.values.copy()
    others[CARRIER] = others[SPOILER] = 0
    np.testing.assert_allclose(others, 0, atol=1e-6)
    # half of the heads can stream, and the carrier is not one of them; if all do, what it carried is lost
    assert float(result.effect) >= 0 > float(result.all_effect)
    assert float(result.rest_effect) < -0.5
    assert int(result.n_removed) == 4


def test_alpha_stays_at_one_where_it_is_needed() -> None:
    result = ha.streaming(
        handmade(spoiler=False), far_words(), kind="learned", sink=2, recent=4, limit=8, updates=40, strength=0.2
    )
    gate = result.gate.isel(task=0)
    assert float(gate[CARRIER]) > 0.9
    others = gate.values.copy()
    others[CARRIER] = 0
    assert others.max() < 0.05
    assert gate.min() >= 0
    assert gate.max() <= 1
    assert float(result.distance[0, 0]) == 0  # all α start at 1
    np.testing.assert_array_equal(result.need.values, result.gate.values)  # every head has a separate KV head


def test_learned_is_plain_adam_on_distance_and_pressure() -> None:
    """The fit again, step by step: distances of hidden states computed directly, Adam as in its paper."""
    lm, texts = tiny_lm(), scored(2)
    alpha, distances, *_rest = fit_alpha(lm, texts, WINDOW, updates=7, strength=0.3, lr=0.1)
    expected = torch.ones(lm.n_layers, lm.n_kv_heads)
    first, second = torch.zeros_like(expected), torch.zeros_like(expected)
    for step in range(7):
        ids, places = torch.tensor([texts[step % 2].ids]), [p - 1 for p in texts[step % 2].scored]
        whole = lm.model.base_model(ids).last_hidden_state[0, places]
        at = expected.clone().requires_grad_()
        with streaming(lm, at, *SEES):
            mixed = lm.model.base_model(ids).last_hidden_state[0, places]
        distance = sum((m - w).square().sum() / w.square().sum() for m, w in zip(mixed, whole, strict=True)) / 3
        (grad,) = torch.autograd.grad(distance + 0.3 * at.sum() / at.numel(), at)
        first, second = 0.9 * first + 0.1 * grad, 0.999 * second + 0.001 * grad**2
        size = (second / (1 - 0.999 ** (step + 1))).sqrt() + 1e-8
        expected = (expected - 0.1 * ramp(step, 7) * first / (1 - 0.9 ** (step + 1)) / size).clamp(0, 1)
        torch.testing.assert_close(distances[step], distance.detach(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(alpha, expected, rtol=1e-4, atol=1e-4)
    assert distances[-1] > 0


LEARNED = MethodCase(get_method("streaming").function, kind="learned", updates=4, limit=2, draws=3)


@pytest.mark.parametrize(
    "check",
    [check_shapes, check_repeatable, check_resumable, check_parts, check_layers_without_heads],
    ids=lambda check: check.__name__,
)
def test_the_contract_of_learned(check) -> None:
    check(LEARNED)


def test_the_rate_rises_and_falls() -> None:
    rates = [ramp(i, 20) for i in range(20)]
    assert rates == pytest.approx([0.25, 0.5, 0.75, *[1.0] * 14, 0.75, 0.5, 0.25])


# --- results

EXAMPLES = [(t.ids[:-1], t.ids[-1:]) for t in scored(6)]


def test_query_heads_have_the_value_of_their_kv_head() -> None:
    lm = tiny_lm()
    result = ha.streaming(lm, EXAMPLES, sink=1, recent=4)
    assert result.loss.dims == ("task", "layer", "kv_head")
    for head in range(lm.n_heads):
        xr.testing.assert_equal(
            result.need.isel(head=head, drop=True), result.loss.isel(kv_head=head // 3, drop=True).rename("need")
        )
    groups = by_kv_group(result)  # the value itself, not three times as much
    np.testing.assert_allclose(groups.need.values, result.loss.values, rtol=1e-6)
    assert result.repeats.item() == result.examples.item()
    assert {"effect", "random_effect", "rest_effect", "all_effect", "p", "p_corrected", "n_removed"} <= set(result)
    assert "effect" not in ha.streaming(lm, EXAMPLES, held_out=0, recent=4)


@pytest.mark.parametrize("options", [{}, {"kind": "learned", "updates": 2}])
def test_every_variable_says_what_it_is(options) -> None:
    result = ha.streaming(tiny_lm(), EXAMPLES, sink=1, recent=4, draws=3, **options)
    for name, variable in result.data_vars.items():
        assert {"long_name", "units", "description"} <= set(variable.attrs), name
    assert result.effect.attrs["heads"] == "lowest"
    assert result.attrs["sink"] == 1
    assert ("lr" in result.attrs) == ("kind" in options)


def test_halves_of_a_map() -> None:
    need = np.array([[0.3, 0.1], [np.nan, np.nan], [0.0, 0.2]])
    assert split_by_need(need, np.random.default_rng(0)) == ([(2, 0), (0, 1)], [(2, 1), (0, 0)])
    ties = [split_by_need(np.zeros((4, 2)), np.random.default_rng(i))[0] for i in range(8)]
    assert len({tuple(sorted(lower)) for lower in ties}) > 1  # not always the first layers


def test_p_is_the_share_of_random_halves_that_lose_as_little() -> None:
    """p is small where the chosen half loses less than random ones do."""
    model = handmade({(0, 3): range(7), (1, 2): range(7, 14)}, spoiler=False)
    result = ha.streaming(model, far_words(), sink=2, recent=4, limit=12, held_out=8, draws=99).sel(task="far")
    assert float(result.effect) == pytest.approx(0, abs=1e-5)
    assert result.random_effect.min() < -0.3  # some random halves have a carrier
    lost_as_little = int((result.random_effect >= result.effect).sum())
    assert float(result.p) == pytest.approx((1 + lost_as_little) / 100)
    assert 0.05 < float(result.p) < 0.6  # others have none
    beyond = float(result.effect - result.random_effect.mean())
    assert float(result.beyond_low) < beyond < float(result.beyond_high)
    assert result.outcome.item() in ("not supported", "undecided")
    assert result.reason.item().startswith(f"p {float(result.p):.2g}")


# --- texts


def lm_that_reads(numbers: str) -> LM:
    """A tokenizer with a token for every word of the texts; numbers are cut as the pattern says."""
    plain = {" ", "."} | {f"{i:0{n}}" for n in (1, 2, 3) for i in range(10**n)}
    words = {
        w
        for text in (*COLOURS, *DOORS, *PEOPLE, *ACTIONS, *THINGS, *CIRCUMSTANCES, "The key of the is")
        for w in text.split()
    }
    tokens = ["<unk>", "<bos>", *sorted(plain | words | {f" {token}" for token in plain | words})]
    inner = Tokenizer(models.WordLevel({token: i for i, token in enumerate(tokens)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex(rf"{numbers}| ?[A-Za-z]+|[^A-Za-z]"), "isolated")
    inner.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1)])
    return LM(tiny_lm().model, PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>"), "reads")


@pytest.mark.parametrize("numbers", ["[0-9]", "[0-9]{1,3}", " ?[0-9]{1,3}"])
@pytest.mark.parametrize(("length", "window"), [(120, Window(5, 20)), (400, Window(12, 50))])
def test_passkeys_are_out_of_sight_when_they_are_asked_for(numbers, length, window) -> None:
    lm = lm_that_reads(numbers)
    both = passkey_texts(lm, length, 6, window, 2, 1)
    assert len({*both.measured, *both.held_out}) == 3
    for text in (*both.measured, *both.held_out):
        assert length - 20 < len(text) <= length
        tokens = lm.tokenizer.convert_ids_to_tokens(text.ids)
        assert tokens[0] == "<bos>"
        assert "<unk>" not in tokens
        sentences = re.findall(r"key of the (\w+ \w+) is (\d+)\.", "".join(tokens))
        early_sentences, late_sentences = sentences[: len(sentences) // 2], sentences[len(sentences) // 2 :]
        assert sorted(early_sentences) == sorted(late_sentences)
        assert (
            len({door for door, _ in early_sentences})
            == len({colour.split()[0] for colour, _ in early_sentences})
            == len(early_sentences)
        )
        assert 2 <= len(early_sentences) <= 6
        assert "".join(tokens[i] for i in text.scored).replace(" ", "") == "".join(
            number for _, number in late_sentences
        )
        digits = [i for i, token in enumerate(tokens) if re.fullmatch(r" ?\d+", token)]
        told_at = [i for i in digits if i < text.scored[0]]
        assert window.sink <= min(told_at) < max(told_at) <= text.scored[0] - window.recent


def test_there_are_as_many_doors_as_keys() -> None:
    doors = [sentence.partition(" is ")[0] for sentence in key_sentences(MAX_KEYS, np.random.default_rng(0))]
    assert len(set(doors)) == MAX_KEYS == len(COLOURS) * len(DOORS)


def test_passkeys_by_default() -> None:
    """On a model of 64 tokens: shorter texts, fewer keys."""
    result = ha.streaming(tiny_lm(), draws=3)
    assert result.task.values.tolist() == ["passkeys"]
    assert (result.attrs["sink"], result.attrs["recent"]) == (2, 8)
    assert np.isfinite(result.need).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "two"}, "kind is 'two', expected one of one, learned"),
        ({"tasks": EXAMPLES, "recent": 18, "sink": 2}, "sink is 2 and recent is 18, expected a sum below"),
        ({"recent": 0}, "recent is 0, expected a whole number, at least 1"),
        ({"sink": -1}, "sink is -1, expected a whole number, at least 0"),
        ({"recent": 30}, "sink is 7 and recent is 30, expected a sum of at most 16: otherwise a streaming head"),
        ({"length": 20}, "length is 20, expected at least 32: the sentence of a key has 8 tokens"),
        ({"limit": 1}, "limit is 1, expected a whole number from 2"),
        ({"keys": 0}, "keys is 0, expected a whole number from 1 to 104"),
        ({"draws": 0}, "draws is 0, expected a whole number from 1"),
        ({"kind": "learned", "strength": -1.0}, "strength is -1.0, expected a number above 0"),
        ({"kind": "learned", "lr": float("nan")}, "lr is nan, expected a number above 0"),
        ({"kind": "learned", "updates": 0}, "updates is 0, expected a whole number from 1"),
    ],
)
def test_wrong_arguments_are_named(options, message) -> None:
    with pytest.raises(BadArgument, match=re.escape(message)):
        ha.streaming(tiny_lm(), **options)
