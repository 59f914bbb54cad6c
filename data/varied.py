"""The varied questions: each of the eight functions is asked about its own material.

A function has six kinds of questions, a kind 25 questions in three wordings. The third wording is of the test split
alone, and so are the names, things, facts, sentences and numbers: `material` lists them, and none is in two splits.
What is asked of tables (facts, sentences, scenes) is here; what is drawn and worked out (passages, sums, rules,
choices) is in varied_made.py.
"""

import json
import random
from collections.abc import Sequence
from typing import Any

from varied_made import DECISION, LOGIC, MATH, RETRIEVAL, Asked, Draw, Kind, either, words
from word_lists import capital

SEED = 2027
SIZES = {"train": 15, "validation": 4, "test": 6}  # questions of a kind
TEST_WORDING = 2
TRIES = 40  # draws of a question whose answer is to be rarer
TABLES = {
    "Knowledge Recall": words.KNOWLEDGE,
    "Semantic Understanding": words.SEMANTIC,
    "Syntactic Understanding": words.SYNTAX,
    "Inference": words.INFERENCE,
}
MADE: dict[str, dict[str, Kind]] = {
    "Retrieval": RETRIEVAL,
    "Logical Reasoning": LOGIC,
    "Decision-making": DECISION,
    "Math Calculation": MATH,
}
Row = dict[str, str]


def table_rows(table: dict[str, Any]) -> list[Row]:
    columns = table["columns"].split()
    return [dict(zip(columns, line.strip().split("|"), strict=True)) for line in table["rows"].strip().splitlines()]


def deal(rng: random.Random, table: dict[str, Any]) -> dict[str, list[Row]]:
    """Rows for each split. Where a column is to be even, every split has about as many of each value."""
    rows = table_rows(table)
    rng.shuffle(rows)
    if column := table.get("even"):
        by_value: dict[str, list[Row]] = {}
        for row in rows:
            by_value.setdefault(row[column], []).append(row)
        turn = {id(row): i for same in by_value.values() for i, row in enumerate(same)}
        rows.sort(key=lambda row: (turn[id(row)], -len(by_value[row[column]])))
    dealt, start = {}, 0
    for split, size in SIZES.items():
        dealt[split] = rows[start : start + size]
        rng.shuffle(dealt[split])
        start += size
    assert start == len(rows), table
    return dealt


def wording_of(split: str, number: int) -> tuple[int, int]:
    """The wording of a question, and how many in this wording come before it."""
    return (TEST_WORDING, number) if split == "test" else (number % 2, number // 2)


def rotated(answer: str, others: Sequence[str], place: int) -> list[str]:
    """The options, the answer at a place that goes round."""
    place %= len(others) + 1
    return [*others[:place], answer, *others[place:]]


def from_table(rng: random.Random, kind: str, table: dict[str, Any], split: str, rows: list[Row]) -> list[Asked]:
    """A question of every row."""
    asked = []
    for i, row in enumerate(rows):
        draw = Draw(rng, split)
        wording, turn = wording_of(split, i)
        main, *subs = table["wordings"][wording]
        sub, _, answer = subs[turn % len(subs)].partition(" = ")
        fills: dict[str, Any] = dict(row)
        if "{p" in "".join(row.values()) + main + sub:
            fills["p"] = draw.person()
        if "one" in row:
            answer, fills["subject"] = agreement(row, turn, sub)
        answer = answer.format(**row) or row["answer"]
        if "wrong" in row:
            fills["o"] = either(rotated(answer, [row["wrong"]], turn))
        elif "options" in table:
            others = rng.sample([r["answer"] for r in rows if r is not row], table["options"] - 1)
            fills["o"] = either(rotated(answer, others, i))
        elif "{o4}" in main:
            fills["o4"] = either(rotated(answer, row["x"].split(", "), i), "and")
        fills = {name: value.format(**fills) if name == "x" else value for name, value in fills.items()}
        material = [part for column in table["material"].split() for part in parts(row[column])]
        asked.append(
            Asked(
                capital(main.format(**fills)),
                capital(sub.format(**fills)),
                capital(answer),
                f"{kind} {wording + 1}{'ab'[turn % len(subs)] if len(subs) > 1 else ''}",
                tuple(dict.fromkeys([*material, *draw.material])),
            )
        )
    return asked


def agreement(row: Row, turn: int, sub: str) -> tuple[str, str]:
    """The verb and the subject: one thing with a nearer plural, or several with a nearer singular."""
    one, many = {"is": ("is", "are"), "we": ("was", "were"), "se": ("seems", "seem")}[sub.split("'")[1][:2]]
    single = turn % 2 == 0
    subject = f"{row['one']} {row['of_many']}" if single else f"{row['many']} {row['of_one']}"
    return (one if single else many), subject


def parts(text: str) -> list[str]:
    """'apple, pear, plum' are three; a sentence is one."""
    return text.split(", ") if not text.endswith((".", "!")) else [text]


def build() -> dict[str, list[dict[str, Any]]]:
    """The entries of every split. Functions and kinds take turns, so that the first few are of all kinds."""
    rng = random.Random(SEED)
    asked: dict[tuple[str, str], list[list[Asked]]] = {}
    for function, tables in TABLES.items():
        for kind, table in tables.items():
            for split, rows in deal(rng, table).items():
                asked.setdefault((split, function), []).append(from_table(rng, kind, table, split, rows))
    numbers: set[tuple[int, int]] = set()
    for function, kinds in MADE.items():
        for kind, make in kinds.items():
            for split, size in SIZES.items():
                asked.setdefault((split, function), []).append(made(rng, kind, make, split, size, numbers))
    entries: dict[str, list[dict[str, Any]]] = {}
    for split, size in SIZES.items():
        turns = [(i, kind, f) for i in range(size) for kind in range(6) for f in (*TABLES, *MADE)]
        entries[split] = [as_entry(f, asked[split, f][kind][i]) for i, kind, f in turns]
    return entries


def made(
    rng: random.Random, kind: str, make: Kind, split: str, size: int, numbers: set[tuple[int, int]]
) -> list[Asked]:
    """Different questions. An answer that others have is drawn again, up to a point."""
    asked: list[Asked] = []
    tries = 0
    while len(asked) < size:
        tries += 1
        draw = Draw(rng, split, numbers)
        wording, turn = wording_of(split, len(asked))
        letter, main, sub, answer = make(draw, wording, turn)
        same = [a.answer for a in asked].count(capital(answer))
        if main not in [a.main for a in asked] and (same <= len(asked) // 4 or tries > TRIES):
            numbers |= draw.drawn
            tries = 0
            texts = (capital(t) for t in (main, sub, answer))
            asked.append(Asked(*texts, f"{kind} {wording + 1}{letter}", tuple(dict.fromkeys(draw.material))))
    return asked


def as_entry(function: str, asked: Asked) -> dict[str, Any]:
    step = {"subquestion": asked.sub, "answer": asked.answer, "cognitive_skill": function}
    labels = {"template": asked.template, "material": list(asked.material)}
    return {"question": asked.main, "answer": asked.answer, "generated": [step]} | labels


def files() -> dict[str, str]:
    """The text of each file by its name: one per split, with one entry per line."""
    texts = {}
    for split, entries in build().items():
        lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
        texts[f"{split}.json"] = f"[\n{lines}\n]\n"
    return texts
