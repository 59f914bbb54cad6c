"""Needles are read as written, hidden at the given depth, and found again among the tokens."""

import json

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from headatlas.errors import BadArgument, BadFile
from headatlas.models.lm import LM
from headatlas.tasks.needles import Needle, check_needles, hide_needle, load_needles, load_sentences
from tests.models.copier import copier
from tests.models.tiny import TINY, build

NEEDLES = load_needles()["facts"]
SENTENCES = load_sentences()


def bytes_tokenizer() -> PreTrainedTokenizerFast:
    """Tokens begin with a space, as GPT-2's do."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    inner.train_from_iterator(
        SENTENCES[:40], trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, show_progress=False)
    )
    template = "<|user|>\n{{ messages[0]['content'] | trim }}\n<|assistant|>\n"
    return PreTrainedTokenizerFast(tokenizer_object=inner, chat_template=template)


def pieces_tokenizer() -> PreTrainedTokenizerFast:
    """Every text begins with an added space after BOS, as with Llama 2."""
    inner = Tokenizer(models.BPE(unk_token="<unk>"))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    text = [*SENTENCES[:40], *(n.text for n in NEEDLES)]
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>", "<s>"], show_progress=False)
    inner.train_from_iterator(text, trainer)
    inner.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>", bos_token="<s>")


@pytest.fixture(scope="module", params=[bytes_tokenizer, pieces_tokenizer])
def lm(request) -> LM:
    return LM(build(TINY[0]), request.param(), "tiny")


def test_the_answer_is_found_among_the_tokens(lm: LM) -> None:
    for i, needle in enumerate(NEEDLES):
        length, depth = (300, 600)[i % 2], (0.0, 0.3, 1.0)[i % 3]
        hidden = hide_needle(lm, needle, SENTENCES, length, depth)
        text, answer = lm.tokenizer.decode(hidden.ids), lm.tokenizer.decode(hidden.ids[hidden.start : hidden.end])
        assert answer.strip(" .,") == needle.answer
        assert text.count(needle.text) == 1
        assert needle.question.rstrip("?") in text
        assert length - 60 < len(hidden.ids) <= length  # another sentence would not fit
        share = text.index(needle.text) / text.index("Based on the text above")
        assert share == pytest.approx({0.0: 0.0, 0.3: 0.3, 1.0: 1.0}[depth], abs=0.25 if depth != 0.3 else 0.1)


def test_tokenizers_that_do_not_say_where_tokens_stand(lm: LM, monkeypatch) -> None:
    """The answer's tokens are then found by what texts have in common up to there."""
    expected = [hide_needle(lm, needle, SENTENCES, 300, 0.5) for needle in NEEDLES]
    monkeypatch.setattr(type(lm.tokenizer), "is_fast", False)
    for needle, hidden in zip(NEEDLES, expected, strict=True):
        again = hide_needle(lm, needle, SENTENCES, 300, 0.5)
        assert (again.ids, again.start) == (hidden.ids, hidden.start)
        assert hidden.end - again.end in (0, 1, 2)  # tokens may be missed if the last one reaches beyond the answer


def test_where_in_the_text() -> None:
    lm, needle = copier(), Needle("w2 w3 w4", "w5", "w3 w4")
    sentences = ["w6 w7", "w8 w9", "w10 w11"]
    texts = [lm.tokenizer.decode(hide_needle(lm, needle, sentences, 64, depth).ids) for depth in (0, 0.5, 1)]
    words = [text.removeprefix("<unk> ").split(" <unk>")[0] for text in texts]
    assert [w.split().index("w2") / (len(w.split()) - 3) for w in words] == pytest.approx([0, 0.5, 1], abs=0.05)
    assert words[0].split()[3:11] == ["w6", "w7", "w8", "w9", "w10", "w11", "w6", "w7"]  # and begins again
    assert hide_needle(lm, needle, sentences, 0, 0.5).start == 2  # nothing fits: the needle alone


def test_our_own_needles() -> None:
    assert len(NEEDLES) == 20
    assert len({n.text for n in NEEDLES}) == len({n.question for n in NEEDLES}) == 20
    full_text = " ".join(SENTENCES)
    for needle in NEEDLES:
        assert needle.answer in needle.text
        assert needle.text not in full_text
        assert needle.answer not in needle.question


def test_files_and_lists(tmp_path) -> None:
    rows = [{"needle": "It is red.", "question": "What?", "answer": "Red"}, {"needle": "B.", "question": "C?"}]
    expected = (Needle("It is red.", "What?", "Red"), Needle("B.", "C?", "B."))
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    (tmp_path / "table.csv").write_text("needle,question,answer\nIt is red.,What?,Red\nB.,C?,\n")
    assert load_needles(tmp_path / "mine.jsonl") == {"mine": expected}
    assert load_needles(str(tmp_path / "table.csv")) == {"table": expected}
    assert load_needles(rows) == load_needles(expected) == {"needles": expected}
    assert load_needles({"a": rows, "b": tmp_path / "mine.jsonl"}) == {"a": expected, "b": expected}
    (tmp_path / "text.txt").write_text("One two. Three!\n\nFour five?  Six\n七。八")
    assert load_sentences(tmp_path / "text.txt") == ("One two.", "Three!", "Four five?", "Six", "七。", "八")
    assert load_sentences(["a. b", "c"]) == ("a.", "b", "c")
    assert len(load_sentences(None, 20)) < 10


@pytest.mark.parametrize(
    ("needles", "error", "message"),
    [
        ([], BadArgument, "needles has no needles, expected a file"),
        ({}, BadArgument, "needles is empty, expected a file"),
        (3, BadArgument, "needles is 3, expected a file"),
        ({"needle": "a", "question": "b"}, BadArgument, "needles is .*, expected a file"),
        (["a"], BadArgument, "needles, needle 1 is 'a', expected"),
        ([{"needle": "a"}], BadArgument, "needles, needle 1 is .*, expected"),
        ([{"needle": "a", "question": 3}], BadArgument, "needles, needle 1 is .*, expected"),
        (
            [{"needle": "a", "question": "b", "answer": "c"}],
            BadArgument,
            "answer 'c', which is not a part of the needle",
        ),
        ("nowhere.jsonl", BadArgument, "needles is 'nowhere.jsonl': no such file"),
        ("broken.jsonl", BadFile, "broken.jsonl, line 2 is not JSON"),
        ("empty.jsonl", BadFile, "empty.jsonl has no needles"),
        ("table.csv", BadFile, "table.csv lacks the column question"),
        ("binary.jsonl", BadFile, "cannot read .*binary.jsonl"),
    ],
)
def test_what_is_wrong_is_told(needles, error, message, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.jsonl").write_text('{"needle": "a", "question": "b"}\n{"needle": ')
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "table.csv").write_text("needle,asked\na,b\n")
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(error, match=message):
        load_needles(needles)


def test_texts_that_do_not_do() -> None:
    for text, message in ((3, "text is 3, expected a file"), ([], "text is empty"), ("nowhere.txt", "no such file")):
        with pytest.raises(BadArgument, match=message):
            load_sentences(text)
    lm, needle = copier(), Needle("w2 w3 w4", "w5", "w3 w4")
    with pytest.raises(BadArgument, match="a, needle 1 is already in the text"):
        check_needles(lm, {"a": [needle]}, ["w1 w2 w3 w4 w5"], 50, True)
    with pytest.raises(BadArgument, match="with its question it has 15 tokens, but lengths has 13"):
        check_needles(lm, {"a": [needle]}, ["w1"], 13, True)
