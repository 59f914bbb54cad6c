"""Cognitive questions: the CogQA layout, contexts, splits, and what goes wrong with files."""

import json
import logging
from collections import Counter

import pytest

from headatlas.errors import BadArgument, BadFile, CannotDo
from headatlas.models.lm import LM
from headatlas.tasks.questions import (
    FUNCTIONS,
    HIGHER,
    LOWER,
    SPLITS,
    Question,
    check_sizes,
    hash_questions,
    in_words,
    leave_out_questions,
    load_questions,
    prompt_ids,
    with_answer,
)
from tests.models.tiny import TINY, build, tokenizer


def entry(number: int, skills=FUNCTIONS) -> dict:
    steps = [{"subquestion": f"step {i}?", "answer": f"a{i}", "cognitive_skill": s} for i, s in enumerate(skills)]
    return {"question": f"main {number}?", "answer": "done", "generated": steps}


def data(n: int = 40, skills=FUNCTIONS) -> list[dict]:
    return [entry(i, skills) for i in range(n)]


def test_functions_are_of_lower_or_higher_order() -> None:
    assert sorted(LOWER + HIGHER) == sorted(FUNCTIONS)


def test_context_is_what_earlier_steps_told() -> None:
    skills = ["Retrieval", "Inference", "Retrieval", "Math Calculation"]
    entries = data(20, skills)
    told = {
        context: [q.before for q in load_questions(entries, context=context)][:4]
        for context in ("retrieval", "all", "none")
    }
    first, second, third = ("step 0?", "a0"), ("step 1?", "a1"), ("step 2?", "a2")
    assert told["retrieval"] == [(), (first,), (first,), (first, third)]
    assert told["all"] == [(), (first,), (first, second), (first, second, third)]
    assert told["none"] == [(), (), (), ()]
    text = in_words(load_questions(entries)[3])
    assert text == "main 0?\nKnown: step 0? a0\nKnown: step 2? a2\nAnswer briefly: step 3?"


def test_a_main_question_is_in_one_split_and_functions_are_spread() -> None:
    entries = [entry(i, [FUNCTIONS[(i + j) % 8] for j in range(1 + i % 5)]) for i in range(120)]
    questions = load_questions(entries)
    homes = {}
    for q in questions:
        assert homes.setdefault(q.main, q.split) == q.split
    for function in FUNCTIONS:
        share = Counter(q.split for q in questions if q.function == function)
        n = sum(share.values())
        assert abs(share["test"] / n - 0.2) < 0.1
        assert abs(share["validation"] / n - 0.15) < 0.1
    assert load_questions(entries) == questions
    assert [q.split for q in load_questions(entries, seed=1)] != [q.split for q in questions]


def test_a_test_file_is_the_test_split_and_leaves_training(caplog) -> None:
    caplog.set_level(logging.INFO)
    questions = load_questions(data(40), [entry(i) for i in range(35, 45)])
    assert {q.main for q in questions if q.split == "test"} == {f"main {i}?" for i in range(35, 45)}
    assert {q.main for q in questions if q.split != "test"} == {f"main {i}?" for i in range(35)}
    assert "dropped 40 training questions" in caplog.text


def test_stray_labels_are_dropped_and_told(caplog) -> None:
    caplog.set_level(logging.INFO)
    entries = [*data(20), entry(90, ["Induction"] * 9), entry(91, ["induction "])]
    questions = load_questions(entries)
    assert {q.function for q in questions} == set(FUNCTIONS)
    assert "dropped 10 questions of other functions: 9 × 'Induction', 1 × 'induction'" in caplog.text
    entries = [*data(20), *(entry(90 + i, ["Induction"] * 3) for i in range(6))]
    assert "Induction" in {q.function for q in load_questions(entries, functions="all")}
    kept = load_questions(entries, functions=["Induction", "Inference"])
    assert {q.function for q in kept} == {"Induction", "Inference"}
    with pytest.raises(BadArgument, match="no question is labelled with.* Did you mean 'Inference'"):
        load_questions(entries, functions=["Inferenze"])


def test_limit_keeps_splits_and_main_questions_whole() -> None:
    questions = load_questions(data(100), limit=200)
    assert 195 <= len(questions) <= 220
    assert sum(q.split == "train" for q in questions) == pytest.approx(140, abs=8)
    splits = {q: q.split for q in load_questions(data(100))}
    assert all(splits[q] == q.split for q in questions)
    assert all(n == 8 for n in Counter(q.main for q in questions).values())


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        ("{", BadFile, "is not JSON"),
        ('{"question": "x"}', BadFile, "is {'question': 'x'}, expected a list of main questions"),
        ('["x"]', BadFile, "entry 0 is 'x', expected an object with 'question'"),
        ('[{"answer": "x"}]', BadFile, "entry 0 has no 'question'; it has 'answer'"),
        ('[{"question": "x"}]', BadFile, "entry 0: 'generated' is None, expected a list of steps"),
        ('[{"question": "x", "generated": [{"subquestion": "y"}]}]', BadFile, "entry 0, step 0 has no 'answer'"),
        (
            '[{"question": "x", "generated": [{"subquestion": "y", "answer": " ", "cognitive_skill": "z"}]}]',
            BadFile,
            "entry 0, step 0: 'answer' is ' ', expected text",
        ),
        (
            json.dumps([{"question": "\ud83d", "generated": []}]),
            BadFile,
            "entry 0: 'question' is '.ud83d', which is not valid Unicode",
        ),
        ("[]", BadArgument, "of 0 functions, expected at least 2"),
        (json.dumps(data(7)), BadArgument, "'Knowledge Recall' has 7 examples, expected at least 8"),
        (json.dumps([entry(0, FUNCTIONS * 9)]), BadArgument, "needs main questions in train, validation and test"),
    ],
)
def test_bad_files(tmp_path, content, error, message) -> None:
    path = tmp_path / "q.json"
    path.write_text(content)
    with pytest.raises(error, match=message) as e:
        load_questions(path)
    assert "\n" not in str(e.value)


def test_other_bad_requests(tmp_path) -> None:
    with pytest.raises(BadArgument, match="questions is .*none.json': no such file"):
        load_questions(tmp_path / "none.json")
    with pytest.raises(BadFile, match="cannot read questions"):
        (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
        load_questions(tmp_path / "bytes.json")
    with pytest.raises(BadArgument, match="context is 'retrival', expected one of .* Did you mean 'retrieval'"):
        load_questions(data(), context="retrival")
    with pytest.raises(BadArgument, match="test is given without questions"):
        load_questions(None, data())
    with pytest.raises(BadArgument, match="limit is 0"):
        load_questions(data(), limit=0)


def test_questions_are_built_in_by_name(tmp_path, monkeypatch) -> None:
    assert load_questions("varied") == load_questions() == load_questions(None)
    assert len(load_questions("varied")) == 1200
    assert len(load_questions("stories")) == 1716
    with pytest.raises(
        BadArgument, match=r"questions is 'vareid': no such file, nor .*varied, stories\). Did you mean"
    ):
        load_questions("vareid")
    with pytest.raises(BadArgument, match="test is given without questions:"):
        load_questions("varied", data())
    with pytest.raises(BadArgument, match="test is 'varied': no such file$"):
        load_questions(data(), "varied")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "varied").write_text(json.dumps(data(20)))
    assert len(load_questions("varied")) == 1200  # a file of that name is another path
    assert len(load_questions("./varied")) == 160


def test_splits_of_varied_questions_do_not_depend_on_the_seed() -> None:
    assert load_questions("varied", seed=1) == load_questions("varied")


def test_a_main_question_is_the_same_however_it_is_spaced() -> None:
    entries = data(30)
    entries += [entry(i) | {"question": f"  Main  {i}?"} for i in range(30)]
    homes = {}
    for q in load_questions(entries):
        assert homes.setdefault(q.group, q.split) == q.split
    assert len(homes) == 30
    questions = load_questions(data(30), [entry(i) | {"question": f"MAIN {i}?"} for i in range(10)])
    assert sum(q.split != "test" for q in questions) == 20 * 8


def test_csv(tmp_path) -> None:
    path = tmp_path / "q.csv"
    rows = [f"main {i}?,step {j}?,a{j},{s}" for j, s in enumerate(FUNCTIONS) for i in range(40)]
    path.write_text("\n".join(["question,subquestion,answer,cognitive_skill", *rows]))
    assert load_questions(path) == load_questions(data(40))
    path.write_text("question,answer\nx,y\n")
    with pytest.raises(BadFile, match="lacks the columns subquestion, cognitive_skill"):
        load_questions(path)


def test_too_few_with_a_limit_are_said_to_be() -> None:
    with pytest.raises(BadArgument, match="with limit=9"):
        load_questions(data(40), limit=9)


def test_numbers_may_be_answers() -> None:
    entries = data(20)
    entries[0]["generated"][0]["answer"] = 12
    assert load_questions(entries)[0].answer == "12"


def test_hash_follows_what_is_asked() -> None:
    assert hash_questions(load_questions(data())) == hash_questions(load_questions(data()))
    assert hash_questions(load_questions(data(), context="none")) != hash_questions(load_questions(data()))


def test_sizes_are_checked_again_after_some_are_dropped() -> None:
    questions = load_questions(data())
    with pytest.raises(BadArgument, match="'Inference' has no test example: it needs main questions"):
        check_sizes([q for q in questions if q.function != "Inference" or q.split != "test"])


def lm(template: str | None) -> LM:
    made = tokenizer()
    made.chat_template = template
    return LM(build(TINY[0]), made, "tiny")


ASK = Question("w1 w2", (), "w3", "w4 w5", "Inference")


def test_prompts_with_and_without_a_template() -> None:
    plain, chat = lm(None), lm("<bos> {{ messages[0]['content'] }} w9 ")
    unknown = 3
    expected = (5, 6, unknown, unknown, 7)  # w1 w2 Answer briefly: w3
    assert prompt_ids(plain, ASK) == (*expected, unknown)
    assert prompt_ids(chat, ASK) == (0, *expected, 13)
    assert prompt_ids(chat, ASK, template=False) == (*expected, unknown)
    for model in (plain, chat):
        example = with_answer(model, ASK, "w4 w5")
        assert example.prompt == prompt_ids(model, ASK)
        assert example.target == (8, 9)


def test_a_template_that_fails_is_one_line() -> None:
    with pytest.raises(CannotDo, match="the chat template of model 'tiny' fails: no users here.*--no-template") as e:
        prompt_ids(lm("{{ raise_exception('no users here') }}"), ASK)
    assert "\n" not in str(e.value)


def test_an_answer_without_tokens() -> None:
    for template in (None, "{{ messages[0]['content'] }}"):
        with pytest.raises(BadArgument, match="question 'w3'"):
            with_answer(lm(template), ASK, " ")


@pytest.mark.parametrize("name", ["varied", "stories"])
def test_questions_are_left_out_by_main_question(name) -> None:
    """Of every function enough for a test, at most a third of each split, and none of a story that is used."""
    everything = load_questions(name)
    remaining = leave_out_questions(everything, 48, 0)
    left_out = [q for q in everything if q not in set(remaining)]
    assert not {q.group for q in left_out} & {q.group for q in remaining}
    totals = Counter((q.split, q.function) for q in everything)
    taken = Counter((q.split, q.function) for q in left_out)
    assert all(3 * count <= totals[key] for key, count in taken.items())
    for function in FUNCTIONS:
        assert sum(taken[split, function] for split in SPLITS) >= 48
    assert leave_out_questions(everything, 48, 1) != remaining
    most = leave_out_questions(everything, 1000, 0)
    assert len(everything) / 4 < len(everything) - len(most) <= len(everything) / 3


def test_too_few_questions_are_not_left_out() -> None:
    everything = load_questions("varied", limit=160)  # 20 of each function: a third is fewer than 8
    assert leave_out_questions(everything, 48, 0) == everything
    assert leave_out_questions(load_questions("varied"), 0, 0) == load_questions("varied")
