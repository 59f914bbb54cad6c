"""Text of tokens inside a text, for tokenizers whose decoder drops the first space and those that keep it."""

from dataclasses import replace

import pytest

from headatlas.methods.probe.compute import token_texts
from headatlas.models.lm import LM
from headatlas.models.token_text import text_inside
from headatlas.tasks.needles import load_sentences
from tests.models.tiny import TINY, build
from tests.models.trained import byte_level, sentencepiece_like

TEXT = "the river\n ran  past\ta dog "


@pytest.fixture(scope="module", params=[sentencepiece_like, byte_level])
def spoken(request):
    return request.param(load_sentences(), 1500)


def test_texts_of_tokens_are_the_text(spoken) -> None:
    ids = spoken(f"A {TEXT}", add_special_tokens=False)["input_ids"][1:]
    assert "".join(text_inside(spoken, [i]) for i in ids) == f" {TEXT}"
    for start in range(len(ids)):
        before = "".join(text_inside(spoken, [i]) for i in ids[:start])
        assert before + text_inside(spoken, ids[start:]) == f" {TEXT}"
    assert text_inside(spoken, []) == ""


def test_bytes_and_special_tokens_are_as_decoded(spoken) -> None:
    for text in ("\0", "\x1b", "</s>"):
        (token,) = spoken.convert_tokens_to_ids(spoken.tokenize(text))[-1:]
        assert text_inside(spoken, [token]) == text
    assert text_inside(spoken, spoken("</s>", add_special_tokens=False)["input_ids"], skip_special_tokens=True) == ""


def test_what_a_model_writes_follows_its_prompt(spoken) -> None:
    word = spoken("a the", add_special_tokens=False)["input_ids"][-1]
    tiny = replace(TINY[0], options=TINY[0].options | {"vocab_size": len(spoken)})
    lm = LM(build(tiny), spoken, "the, the, the")
    for name, parameter in lm.model.named_parameters():
        parameter.fill_(1.0 if "norm" in name or "embed" in name else 0.0)
    lm.model.lm_head.weight[word] = 1.0
    assert lm.generate([5], 2) == " the the"
    assert token_texts(lm, [word, word]) == [" the", " the"]
