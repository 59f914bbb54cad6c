"""copying: against the definition text by text, and on a model with hand-set copying heads."""

import logging

import numpy as np
import pytest
import torch
import transformers
from scipy import stats

import headatlas as ha
from headatlas.errors import BadArgument
from headatlas.evidence.control import ANSWERS, answers_without
from headatlas.evidence.fresh_prompts import load_prompts
from headatlas.methods import get_method
from headatlas.methods.copying.compute import above_chance
from headatlas.methods.copying.texts import find_units, make_texts
from headatlas.models.lm import LM
from headatlas.results.store import load
from headatlas.tasks.words import long_words
from headatlas.testing import tiny_lm
from tests.models.tiny import TINY, build, tokenizer

WORDS = [f"w{3 * i} w{3 * i + 1}" + f" w{3 * i + 2}" * (i % 2) for i in range(12)]
TOKEN, CONCEPT, CARRIER = (0, 0), (0, 1), (1, 0)
LENGTH = 8
UNITS = [(i, i + 1, i + 2) for i in range(1, 22)]  # words of the hand-set model, as token ids


def copier() -> LM:
    """A GPT-2 of 2 × 2 heads that look a fixed number of tokens back, in lists of LENGTH tokens without a line break.

    TOKEN writes the token that comes next where the unembedding reads it. CONCEPT writes the one after that into a
    store that only CARRIER reads, one token later; CARRIER writes it where the unembedding reads it. The fourth head
    does nothing.
    """
    words, places = 26, 20
    at = {"place": 0, "word": places, "store": places + words, "out": places + 2 * words}
    width = places + 3 * words
    config = transformers.GPT2Config(
        vocab_size=words,
        n_positions=places,
        n_embd=width,
        n_layer=2,
        n_head=2,
        tie_word_embeddings=False,
        bos_token_id=0,
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    d_head = width // 2
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.fill_(1.0 if "ln_" in name and name.endswith("weight") else 0.0)
        model.transformer.wte.weight[:, at["word"] : at["word"] + words] = torch.eye(words)
        model.transformer.wpe.weight[:, :places] = 30.0 * torch.eye(places)  # dominates the norms
        model.lm_head.weight[:, at["out"] :] = 1.5 * torch.eye(words)
        wired = {
            TOKEN: (LENGTH - 1, "word", "out", 40.0),
            CONCEPT: (LENGTH - 2, "word", "store", 40.0),
            CARRIER: (1, "store", "out", 4.0),
        }
        for (layer, head), (back, source, to, gain) in wired.items():
            attention, first = model.transformer.h[layer].attn, head * d_head
            for place in range(back, places):
                attention.c_attn.weight[place, first + place - back] = 3.0  # the query asks for the place `back` before
            for place in range(places):
                attention.c_attn.weight[place, width + first + place] = 3.0  # the key says where it is
            for word in range(words):
                attention.c_attn.weight[at[source] + word, 2 * width + first + word] = 1.0
                attention.c_proj.weight[first + word, at[to] + word] = gain
    return ha.load(model)


def test_the_heads_that_copy_are_found() -> None:
    result = ha.copying(copier(), UNITS, texts=8, length=LENGTH)
    token, concept = (result.score.sel(copied=c).values for c in ("token", "concept"))
    assert token[TOKEN] > 0.3
    assert concept[CONCEPT] > 0.3
    # at the token before the unit, CARRIER reads what CONCEPT stored one token earlier: the unit's first token
    assert token[CARRIER] > 0.3
    assert abs(token[CONCEPT]) < 0.01
    assert abs(concept[TOKEN]) < 0.01
    assert (np.abs(concept[1]) < 1e-6).all()  # what the last layer writes at one token, no other token sees
    assert (np.abs(token[1, 1]) < 1e-6).all()
    assert np.argwhere(result.above_chance.sel(copied="token").values).tolist() == [list(TOKEN), list(CARRIER)]
    assert np.argwhere(result.above_chance.sel(copied="concept").values).tolist() == [list(CONCEPT)]
    assert result.clean.min() > 0.9
    assert result.corrupted.max() < 0.1


def test_unused_texts_are_the_subject_of_its_test() -> None:
    lm = copier()
    work = get_method("copying").function(lm, UNITS, texts=8, length=LENGTH)
    prompts = load_prompts(lm, work.subjects["token"], work.used, 48)
    assert len(prompts) == 48
    assert prompts.has_choice
    scored = {t.unit for t in make_texts(lm, UNITS, 8, LENGTH, 0)["concept"].scored}
    concept = load_prompts(lm, work.subjects["concept"], work.used, 8)
    assert not scored & {example.target for example in concept.examples}
    whole, removed = answers_without(lm, prompts.examples, [[], [TOKEN, CARRIER]])
    log_p = ANSWERS.index("log_p")
    assert whole[log_p] > -0.1
    assert removed[log_p] < -3


def test_half_precision_is_near() -> None:
    lm = copier()
    whole = ha.copying(lm, UNITS, texts=4, length=LENGTH).score
    lm.model.to(torch.bfloat16)
    np.testing.assert_allclose(ha.copying(lm, UNITS, texts=4, length=LENGTH).score, whole, atol=0.05)


@torch.no_grad()
def test_scores_equal_the_definition() -> None:
    """One run of the whole text for every head, z taken and put by `patched`."""
    lm = LM(build(TINY[0]), tokenizer(), "llama")
    result = ha.copying(lm, WORDS, texts=3, length=9, batch_tokens=100)
    texts = make_texts(lm, WORDS, 3, 9, 0)
    for copied, ahead in (("token", 0), ("concept", 1)):
        rise = np.zeros((3, lm.n_layers, lm.n_heads))
        base = []
        for i, text in enumerate(texts[copied].scored):
            scored, place = text.unit[ahead], len(text.first) + len(text.again) - 1
            z = lm.head_outputs([[*text.first, *text.again, *text.unit]])[0, place]
            corrupted = torch.tensor([[*text.other, *text.again, *text.unit[:ahead]]])
            base.append(lm.model(corrupted).logits[0, -1].softmax(-1)[scored].item())
            for layer, head in np.ndindex(rise.shape[1:]):
                with lm.patched((layer, head), z, positions=[place]):
                    p = lm.model(input_ids=corrupted, attention_mask=torch.ones_like(corrupted)).logits[0, -1]
                rise[i, layer, head] = p.softmax(-1)[scored].item() - base[-1]
        assert np.abs(rise).max() > 1e-4
        one = result.sel(copied=copied)
        np.testing.assert_allclose(one.score, rise.mean(0), rtol=1e-4, atol=1e-7)
        np.testing.assert_allclose(one.se_score, rise.std(0, ddof=1) / 3**0.5, rtol=1e-4, atol=1e-7)
        log_rise = np.log(rise + np.reshape(base, (3, 1, 1))) - np.log(np.reshape(base, (3, 1, 1)))
        np.testing.assert_allclose(one.log_rise, log_rise.mean(0), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(one.se_log_rise, log_rise.std(0, ddof=1) / 3**0.5, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(one.raised, (log_rise > 1e-4).mean(0), rtol=1e-6)
        assert one.corrupted.item() == pytest.approx(np.mean(base), rel=1e-5)
        assert ((one.score_low <= one.score + 1e-7) & (one.score <= one.score_high + 1e-7)).all()


def test_every_variable_is_described() -> None:
    for name, values in ha.copying(tiny_lm(), WORDS, texts=2, length=9).data_vars.items():
        assert values.attrs["long_name"], name
        assert values.attrs["description"], name
        assert "units" in values.attrs, name


def test_above_chance_is_a_sign_test() -> None:
    generator = np.random.default_rng(0)
    log_rise = generator.normal(size=(20, 5, 6))
    log_rise[:, 0, 0] = np.abs(log_rise[:, 0, 0])
    log_rise[1:, 0, 1] = np.abs(log_rise[1:, 0, 1])
    log_rise[:, 1] = np.nan  # a layer without heads
    raised = (log_rise > 0).sum(0)
    expected = [
        [stats.binomtest(int(k), 20, alternative="greater").pvalue * 24 < 0.05 and layer != 1 for k in of]
        for layer, of in enumerate(raised)
    ]
    assert above_chance(log_rise).tolist() == expected
    assert expected[0][:2] == [True, True]
    found = [above_chance(generator.normal(size=(32, 30, 9))).any() for _ in range(200)]
    assert np.mean(found) < 0.1  # at most 0.05, but for the luck of 200 draws
    assert not above_chance(np.full((32, 2, 2), 1e-6)).any()  # rounding


def test_texts_are_as_described() -> None:
    lm = tiny_lm()
    texts = make_texts(lm, WORDS, 6, 11, 0)
    assert list(texts) == ["token", "concept"]
    words = {tuple(ids) for ids in find_units(lm, WORDS)}
    assert len(words) == 12
    for copied, of in texts.items():
        assert len(of.scored) == 6
        for text in [*of.scored, *of.unused]:
            opening, *content = text.first  # the tiny tokenizer has no line break
            assert opening == lm.tokenizer.bos_token_id == text.other[0]
            assert tuple(content) == text.again + text.unit
            assert len(content) == len(text.other) - 1 == 11
            assert 2 <= len(text.unit) <= 5
            seen = [*content, *text.other[1:]]
            assert len(set(seen)) == len(seen)  # no token twice: what comes next is never in doubt
            assert not set(seen) & set(lm.tokenizer.all_special_ids)
            assert (text.unit in words) or copied == "token"
            clean, corrupted = text.clean(1), text.corrupted(1)
            assert clean.target == corrupted.target == text.unit[1:2]
            assert clean.prompt[12:] == corrupted.prompt[12:] == text.again + text.unit[:1]
    assert {len(t.unit) for t in texts["token"].scored} == {2, 3, 4, 5}
    scored, unused = ({t.unit for t in of} for of in (texts["concept"].scored, texts["concept"].unused))
    assert not scored & unused
    assert make_texts(lm, WORDS, 6, 11, 0) == texts
    assert make_texts(lm, WORDS, 6, 11, 1) != texts


def test_a_line_break_stands_between(monkeypatch) -> None:
    from headatlas.methods.copying import texts

    monkeypatch.setattr(texts, "line_break", lambda lm: (7,))
    monkeypatch.setattr(texts, "plain_tokens", lambda lm: np.arange(8, 60))
    text = make_texts(tiny_lm(), WORDS, 2, 11, 0)["token"].scored[0]
    assert text.first[-1] == text.other[-1] == 7
    assert len(text.first) == len(text.other) == 13


def test_our_words() -> None:
    words = long_words()
    assert len(words) > 400
    assert sorted(set(words)) == words
    assert all(w.isascii() and w.isalpha() and w.islower() for w in words)


def test_too_few_words(caplog, tmp_path) -> None:
    with caplog.at_level(logging.WARNING, "headatlas"):
        result = ha.copying(tiny_lm(), texts=2, length=9, out=tmp_path)
    assert "tiny: concept is left out: 0 built-in words have 2 to 5 tokens in this tokenizer" in caplog.text
    assert result.copied.values.tolist() == ["token"]
    assert load(tmp_path / "copying.nc").score.equals(result.score)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "headatlas"):
        result = ha.copying(copier(), texts=2)
    assert "concept is left out: the model has no tokenizer" in caplog.text
    assert result.attrs["length"] == 9  # what fits into 20 places
    with pytest.raises(BadArgument, match="words has 3 words of 2 to 5 tokens in this model, expected at least 8"):
        ha.copying(tiny_lm(), WORDS[:3])


def test_asked_wrongly(tmp_path) -> None:
    lm = tiny_lm()
    for length in (0, 5, 27):
        with pytest.raises(BadArgument, match=f"length is {length}, expected a whole number from 6 to 26"):
            ha.copying(lm, WORDS, length=length)
    with pytest.raises(BadArgument, match="texts is 1, expected a whole number from 2 to"):
        ha.copying(lm, WORDS, texts=1)
    for words in (3, [], ["w1", 4], [[1, -2]]):
        with pytest.raises(
            BadArgument, match="words is .*, expected a file with one word per line, or a list of words"
        ):
            ha.copying(lm, words)
    with pytest.raises(BadArgument, match="words is '.*nothing.txt': no such file"):
        ha.copying(lm, tmp_path / "nothing.txt")
    with pytest.raises(BadArgument, match="words: token 61 is not in the vocabulary, expected 0 to 60"):
        ha.copying(lm, [[61, i] for i in range(3, 20)])
    listed = tmp_path / "words.txt"
    listed.write_text("\n".join(WORDS) + "\n\n")
    assert find_units(lm, listed) == find_units(lm, WORDS)
