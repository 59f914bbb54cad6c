"""The CogQA files as they are shipped: layout, sizes, balance, and answers that can be checked from the text alone."""

import json
import re
from collections import Counter
from importlib.resources import files
from typing import Any

import pytest

LOWER = ("Retrieval", "Knowledge Recall", "Semantic Understanding", "Syntactic Understanding")
HIGHER = ("Math Calculation", "Inference", "Logical Reasoning", "Decision-making")
FUNCTIONS = LOWER + HIGHER
FOLDER = files("headatlas.tasks") / "data" / "stories"
SPLITS = {name: json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")) for name in ("train", "test")}
ENTRIES: list[dict[str, Any]] = SPLITS["train"] + SPLITS["test"]
ITEMS = [(e["question"], s["subquestion"], s["answer"], s["cognitive_skill"]) for e in ENTRIES for s in e["generated"]]


def words(text: str) -> int:
    return len(text.split())


def statement(answer: str) -> str:
    """'Yes, Ann has 12 pens.' to 'ann has 12 pens'; '' where the answer is not a sentence."""
    return re.sub(r"^(yes|no), ", "", answer.lower())[:-1] if answer.endswith(".") else ""


def triples_of(function: str) -> list[tuple[str, str, str]]:
    return [item[:3] for item in ITEMS if item[3] == function]


def test_layout() -> None:
    for entry in ENTRIES:
        assert list(entry) == ["question", "answer", "generated"]
        assert all(list(sub) == ["subquestion", "answer", "cognitive_skill"] for sub in entry["generated"])
    assert {item[3] for item in ITEMS} == set(FUNCTIONS)
    assert all(
        part == part.strip() and part and "  " not in part and "{" not in part for item in ITEMS for part in item
    )
    assert all(question.endswith("?") and sub.endswith("?") for question, sub, _, _ in ITEMS)


def test_lengths() -> None:
    assert sum(words(e["question"]) for e in ENTRIES) / len(ENTRIES) <= 55
    assert all(15 <= words(e["question"]) <= 65 and 1 <= words(e["answer"]) <= 9 for e in ENTRIES)
    assert all(4 <= words(sub) <= 16 and 1 <= words(answer) <= 9 for _, sub, answer, _ in ITEMS)
    assert all(4 <= len(e["generated"]) <= 6 for e in ENTRIES)


def test_every_main_question_mixes_functions() -> None:
    for entry in ENTRIES:
        skills = [sub["cognitive_skill"] for sub in entry["generated"]]
        assert len(set(skills)) == len(skills)
        assert set(skills) & set(HIGHER)


def test_sizes_and_balance() -> None:
    assert len(ENTRIES) >= 320
    counts = Counter(item[3] for item in ITEMS)
    assert min(counts.values()) >= 190
    assert max(counts.values()) <= 1.1 * min(counts.values())
    held = Counter(sub["cognitive_skill"] for e in SPLITS["test"] for sub in e["generated"])
    assert all(0.2 <= held[f] / counts[f] <= 0.3 for f in FUNCTIONS)


def test_no_question_twice() -> None:
    assert len({e["question"] for e in ENTRIES}) == len(ENTRIES)
    assert not {e["question"] for e in SPLITS["train"]} & {e["question"] for e in SPLITS["test"]}
    assert len({item[:2] for item in ITEMS}) == len(ITEMS)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_answers_are_mixed_alike(function: str) -> None:
    answers = [answer for _, _, answer in triples_of(function)]
    assert 0.4 <= sum(map(bool, map(statement, answers))) / len(answers) <= 0.6
    yes_no = sum(answer.startswith(("Yes", "No")) for answer in answers) / len(answers)
    assert 0.15 <= yes_no <= 0.5


def test_yes_is_as_common_as_no() -> None:
    firsts = Counter(re.split(r"\W", item[2])[0] for item in ITEMS)
    assert 0.7 <= firsts["Yes"] / firsts["No"] <= 1.4


@pytest.mark.parametrize("function", FUNCTIONS)
def test_yes_is_as_common_as_no_in_every_function(function: str) -> None:
    firsts = Counter(re.split(r"\W", answer)[0] for _, _, answer in triples_of(function))
    assert 0.4 <= firsts["Yes"] / (firsts["Yes"] + firsts["No"]) <= 0.6


def test_articles() -> None:
    for text in (part for item in ITEMS for part in item[:3]):
        assert not re.search(r"\ba [aeiou](?!ne\b|ni|se)", text.lower()), text


def test_retrieval_answers_are_stated() -> None:
    for question, _, answer in triples_of("Retrieval"):
        key = statement(answer) or answer.lower()
        assert key in ("yes", "no") or key in question.lower(), (question, answer)


@pytest.mark.parametrize("function", [f for f in FUNCTIONS if f not in ("Retrieval", "Logical Reasoning")])
def test_other_answers_are_not_stated(function: str) -> None:
    """A rule may hold the answer as one of its cases; elsewhere a sentence answer in the text would be retrieval."""
    for question, sub, answer in triples_of(function):
        fact = statement(answer)
        assert not fact or not re.search(rf"\b{re.escape(fact)}\b", question.lower()), (question, sub, answer)


NAME = r"([A-Z][a-z]+)"
SUMS = [
    (rf"{NAME} has (\d+) boxes of (\d+) ", lambda a, b: a * b),
    (rf"{NAME} buys (\d+) bags of (\d+) ", lambda a, b: a * b),
    (rf"{NAME} had (\d+) [a-z ]+ but lost (\d+)\b", lambda a, b: a - b),
    (rf"{NAME} buys (\d+) large and (\d+) small ", lambda a, b: a + b),
    (rf"{NAME} pays (\d+) euros for each of (\d+) ", lambda a, b: a * b),
    (rf"{NAME} walks (\d+) laps of (\d+) minutes", lambda a, b: a * b),
    (rf"{NAME} walks (\d+) minutes there and (\d+) minutes back", lambda a, b: a + b),
    (rf"{NAME} gets (\d+) points in each of (\d+) rounds", lambda a, b: a * b),
    (rf"{NAME} gets (\d+) points, then (\d+) more", lambda a, b: a + b),
    (rf"{NAME} gets (\d+) points but loses (\d+)", lambda a, b: a - b),
    (rf"{NAME} takes the bus whose number is (\d+) times (\d+)", lambda a, b: a * b),
    (rf"{NAME}'s bus number is (\d+) plus (\d+)", lambda a, b: a + b),
    (rf"{NAME} was on floor (\d+) but moved up (\d+) floors", lambda a, b: a + b),
]


def test_sums_are_right() -> None:
    checked = 0
    for question, sub, answer in triples_of("Math Calculation"):
        for pattern, result in SUMS:
            match = next((m for m in re.finditer(pattern, question) if m[1] in sub), None)
            about = r"pay|walk|points|bus|floor|have|buy"
            if not match or not (set(re.findall(about, sub)) & set(re.findall(about, pattern + "have"))):
                continue
            numbers = re.findall(r"\d+", answer)
            value = str(result(int(match[2]), int(match[3])))
            if numbers:
                assert numbers == [value], (question, sub, answer)
            else:
                assert (answer == "Yes") == (re.findall(r"\d+", sub) == [value]), (question, sub, answer)
            checked += 1
    assert checked >= 50
