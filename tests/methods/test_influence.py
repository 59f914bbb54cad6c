"""influence: against one run per head, on heads known by construction, and its numbers where they are tiny."""

import logging

import numpy as np
import pytest
import torch

import headatlas as ha
from headatlas.errors import BadArgument, BadFile
from headatlas.methods.influence import compute
from headatlas.methods.influence.compute import divergence
from headatlas.models import single_heads
from headatlas.models.lm import LM
from headatlas.results.method_tables import method_tables
from headatlas.tasks.texts import built_in_texts, load_texts
from tests.models.handmade import ASK, CARRIER, FILL, SPOILER, WORDS, handmade
from tests.models.tiny import TINY, build, tokenizer

BY_ID = {t.id: t for t in TINY}
TEXTS = [(5, 9, 11, 20, 7), (8, 30), (6, 19, 40, 12, 33, 4, 50)]


def lm_of(family: str) -> LM:
    return LM(build(BY_ID[family]), tokenizer(), family)


@torch.no_grad()
def next_tokens(lm: LM, text: tuple[int, ...]) -> torch.Tensor:
    """P(next token) after every token, [token, vocabulary], in float64."""
    return lm.model(torch.tensor([text])).logits[0].double().softmax(-1)


@pytest.mark.parametrize("positions", ["last", "all"])
@pytest.mark.parametrize("family", ["llama", "gemma2", "bloom", "deepseek_v3", "qwen3_next"])
def test_it_equals_one_run_per_head_and_text(family, positions) -> None:
    lm = lm_of(family)
    result = ha.influence(lm, TEXTS, positions=positions, batch_tokens=90).isel(text_set=0)
    of = slice(None) if positions == "all" else slice(-1, None)
    whole = [next_tokens(lm, text)[of] for text in TEXTS]
    for layer in range(lm.n_layers):
        for head in range(0, lm.n_heads, 2):
            if layer in lm.layers_without_heads:
                assert np.isnan(result.kl[layer, head])
                continue
            with lm.patched((layer, head)):
                without = [next_tokens(lm, text)[of] for text in TEXTS]
            each = [(p * (p / q).log()).sum(-1).mean().item() for p, q in zip(whole, without, strict=True)]
            assert result.kl[layer, head].item() == pytest.approx(np.mean(each), rel=1e-3, abs=1e-7)
            assert result.se[layer, head].item() == pytest.approx(np.std(each, ddof=1) / len(each) ** 0.5, rel=1e-2)
            turned = [(p.argmax(-1) != q.argmax(-1)).double().mean() for p, q in zip(whole, without, strict=True)]
            assert result.changed[layer, head].item() == pytest.approx(np.mean(turned), abs=1e-6)
    entropy = np.mean([-(p * p.log()).sum(-1).mean().item() for p in whole])
    assert result.entropy.item() == pytest.approx(entropy, rel=1e-4)


@pytest.mark.parametrize("spoiler", [False, True])
def test_it_finds_the_heads_that_do_something(spoiler) -> None:
    """Without being told which answer is right. The spoiler drowns what the carrier says; the others do nothing."""
    texts = [(w, *[FILL] * (w % 3), ASK) for w in range(WORDS)]
    kl = ha.influence(handmade(spoiler=spoiler), texts, limit=None).kl.values[0]
    order = [tuple(map(int, np.unravel_index(i, kl.shape))) for i in np.argsort(-kl, axis=None)]
    active = [SPOILER, CARRIER] if spoiler else [CARRIER]
    assert order[: len(active)] == active
    assert kl[active[0]] > 0.1
    assert kl[CARRIER] > 1e-5
    assert np.sort(kl, axis=None)[-1 - len(active)] < 1e-10


def test_a_head_matters_only_for_texts_it_works_on() -> None:
    """A head that carries the first words, and one that carries the others."""
    first, second = range(7), range(7, WORDS)
    lm = handmade({(1, 2): first, (1, 0): second}, spoiler=False)
    sets = {"first": [(w, ASK) for w in first], "second": [(w, FILL, ASK) for w in second]}
    result = ha.influence(lm, sets)
    assert result.text_set.values.tolist() == ["first", "second"]
    for name, head in {"first": (1, 2), "second": (1, 0)}.items():
        kl = result.kl.sel(text_set=name).values
        assert np.unravel_index(kl.argmax(), kl.shape) == head
        assert np.sort(kl, axis=None)[-2] < 1e-10
        np.testing.assert_allclose(kl, ha.influence(lm, {name: sets[name]}).kl.values[0], rtol=1e-5, atol=1e-12)
    rows = method_tables(result)["Influence on texts: top heads"]
    assert [row["top heads"].split()[0] for row in rows] == ["L1.H2", "L1.H0"]


@pytest.mark.parametrize("size", [1e-6, 1e-3, 1.0, 60.0])
def test_divergence_is_exact_where_it_is_tiny_and_where_it_is_huge(size) -> None:
    generator = torch.Generator().manual_seed(0)
    whole = 30 + 5 * torch.randn(4, 1000, generator=generator)
    change = size * torch.randn(4, 1000, generator=generator, dtype=torch.float64)
    # KL = log E_p[e^−d] + E_p[d] for a change d of the logits; without cancellation, log1p of E_p[e^−d' − 1 + d'],
    # where d' is d less its mean under p
    p = whole.double().softmax(-1)
    d = change - (p * change).sum(-1, keepdim=True)
    expected = torch.log1p((p * (torch.expm1(-d) + d)).sum(-1))
    torch.testing.assert_close(divergence(whole.double(), whole.double() - change), expected, rtol=1e-3, atol=1e-14)
    assert (divergence(whole, whole) == 0).all()
    assert (expected > 0).all()


def test_a_model_that_cannot_be_replayed_is_run_whole_and_that_is_said(monkeypatch, caplog) -> None:
    lm = lm_of("llama")
    expected = ha.influence(lm, TEXTS).kl
    monkeypatch.setattr(compute, "can_replay", lambda *_: False)
    monkeypatch.setattr(single_heads, "replay_from", None)  # would fail if it were used
    with caplog.at_level(logging.WARNING, "headatlas"):
        np.testing.assert_allclose(ha.influence(lm, TEXTS).kl, expected, rtol=1e-5, atol=1e-9)
    assert "every head costs a run of the whole model" in caplog.text


def test_in_half_precision_it_is_near_that_in_float32() -> None:
    """Logits that are rounded to 8 bits blur small differences: the heads that matter most stay."""
    single, half = LM(build(BY_ID["llama"]).float(), tokenizer(), "a"), LM(build(BY_ID["llama"]).bfloat16(), None, "b")
    exact, rounded = (ha.influence(lm, TEXTS, positions="all").kl.values.flatten() for lm in (single, half))
    assert np.isfinite(rounded).all()
    assert np.corrcoef(exact, rounded)[0, 1] > 0.9


def test_the_chat_template_is_used_if_asked() -> None:
    lm = lm_of("llama")
    lm.tokenizer.chat_template = "{% for m in messages %}w1 {{ m.content }} w2{% endfor %}"
    told = ha.influence(lm, ["w7 w8"], template=True).kl
    np.testing.assert_array_equal(told, ha.influence(lm, ["w1 w7 w8 w2"]).kl)
    assert not np.array_equal(told, ha.influence(lm, ["w7 w8"]).kl)


# --- texts


def test_built_in_texts_are_short_and_different() -> None:
    sets = built_in_texts()
    assert list(sets) == ["facts", "story", "code", "repeats"]
    every = [text for texts in sets.values() for text in texts]
    assert len(set(every)) == len(every) == 32
    assert all(text == text.rstrip() and len(text.split()) < 20 for text in every)
    assert load_texts() == sets
    assert load_texts("code,facts") == load_texts(["code", "facts"]) == {n: sets[n] for n in ("code", "facts")}


def test_texts_from_files(tmp_path) -> None:
    (tmp_path / "mine.txt").write_text("first text\n\nsecond text\n")
    assert load_texts(tmp_path / "mine.txt") == {"mine": ("first text", "second text")}
    (tmp_path / "two.jsonl").write_text('{"text": "a b", "set": "x"}\n{"text": "c\\nd"}\n{"text": "e", "set": "x"}\n')
    assert load_texts(str(tmp_path / "two.jsonl")) == {"x": ("a b", "e"), "two": ("c\nd",)}
    (tmp_path / "three.csv").write_text('text,set\n"one, two",y\nthree,y\n')
    assert load_texts(tmp_path / "three.csv") == {"y": ("one, two", "three")}
    for name, content, message in [
        ("bad.jsonl", '{"text": "a"}\n{"text": \n', "line 2 is not JSON"),
        ("bad.csv", "words\na\n", "lacks the column text"),
        ("empty.txt", "\n \n", "holds no text"),
        ("other.jsonl", '["a"]\n', "text 1 is .*, expected"),
    ]:
        (tmp_path / name).write_text(content)
        with pytest.raises(BadFile, match=message):
            load_texts(tmp_path / name)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("stories", "neither a built-in set .* nor a file. Did you mean 'story'"),
        ([], "texts is empty"),
        (5, "texts is 5, expected texts such as"),
        (["a", ""], r"texts\[1\] is '', expected text"),
        ({"x": "a text"}, r"texts\['x'\] is 'a text', expected a list of texts"),
        ({3: ["a"]}, "texts has the name 3"),
        ({"x": [(1, 99)]}, "set 'x': .* the vocabulary is 0 to 60"),
        ([" ".join(["w1"] * 65)], "set 'texts': .* 65 tokens long, but the model's context is 64"),
    ],
)
def test_texts_given_wrongly(texts, message) -> None:
    with pytest.raises(BadArgument, match=message):
        ha.influence(lm_of("llama"), texts)


def test_options_given_wrongly() -> None:
    with pytest.raises(BadArgument, match="positions is 'first', expected one of last, all"):
        ha.influence(lm_of("llama"), TEXTS, positions="first")
    with pytest.raises(BadArgument, match="limit is 0"):
        ha.influence(lm_of("llama"), TEXTS, limit=0)
