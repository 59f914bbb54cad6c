"""Write the varied questions, in which each of the eight functions has separate material.

A function has six kinds of questions, and a kind 25 questions in three wordings. Only the test split has the third
wording. Names, things, facts, sentences and numbers are separate too: `material` lists them, and none is in two splits.
Questions from tables (facts, sentences, scenes) are made here; computed ones (passages, sums, rules, choices) are in
varied_made.py.
"""

import json
import random
from collections.abc import Sequence
from typing import Any

from varied_made import DECISION, LOGIC, MATH, RETRIEVAL, Kind, SplitDraw, VariedQuestion, join_options, words
from word_lists import capital

SEED = 2027
QUESTIONS_PER_KIND = {"train": 15, "validation": 4, "test": 6}
TEST_WORDING = 2
# Draws of a question in search of a rarer answer.
MAX_TRIES = 40
TABLE_KINDS = {
    "Knowledge Recall": words.KNOWLEDGE,
    "Semantic Understanding": words.SEMANTIC,
    "Syntactic Understanding": words.SYNTAX,
    "Inference": words.INFERENCE,
}
COMPUTED_KINDS: dict[str, dict[str, Kind]] = {
    "Retrieval": RETRIEVAL,
    "Logical Reasoning": LOGIC,
    "Decision-making": DECISION,
    "Math Calculation": MATH,
}
Row = dict[str, str]


def table_rows(table: dict[str, Any]) -> list[Row]:
    columns = table["columns"].split()
    return [dict(zip(columns, line.strip().split("|"), strict=True)) for line in table["rows"].strip().splitlines()]


def deal_rows(rng: random.Random, table: dict[str, Any]) -> dict[str, list[Row]]:
    """Deal the rows to the splits. If the table has an `even` column, each value is spread evenly over the splits."""
    rows = table_rows(table)
    rng.shuffle(rows)
    if column := table.get("even"):
        by_value: dict[str, list[Row]] = {}
        for row in rows:
            by_value.setdefault(row[column], []).append(row)
        turn_of_row = {id(row): i for value_rows in by_value.values() for i, row in enumerate(value_rows)}
        rows.sort(key=lambda row: (turn_of_row[id(row)], -len(by_value[row[column]])))
    rows_by_split: dict[str, list[Row]] = {}
    start = 0
    for split, size in QUESTIONS_PER_KIND.items():
        rows_by_split[split] = rows[start : start + size]
        rng.shuffle(rows_by_split[split])
        start += size
    assert start == len(rows), table
    return rows_by_split


def wording_and_turn(split: str, index: int) -> tuple[int, int]:
    """Return the wording of the n-th question of a kind, and how many with this wording precede it."""
    return (TEST_WORDING, index) if split == "test" else (index % 2, index // 2)


def insert_answer(answer: str, others: Sequence[str], position: int) -> list[str]:
    """Insert the answer among the other options at a position, modulo their number."""
    position %= len(others) + 1
    return [*others[:position], answer, *others[position:]]


def questions_from_table(
    rng: random.Random, kind: str, table: dict[str, Any], split: str, rows: list[Row]
) -> list[VariedQuestion]:
    """Make a question from every row."""
    questions = []
    for i, row in enumerate(rows):
        draw = SplitDraw(rng, split)
        wording, turn = wording_and_turn(split, i)
        main, *subs = table["wordings"][wording]
        sub, _, answer = subs[turn % len(subs)].partition(" = ")
        fills: dict[str, Any] = dict(row)
        if "{p" in "".join(row.values()) + main + sub:
            fills["p"] = draw.person()
        if "one" in row:
            answer, fills["subject"] = pick_verb_and_subject(row, turn, sub)
        answer = answer.format(**row) or row["answer"]
        if "wrong" in row:
            fills["o"] = join_options(insert_answer(answer, [row["wrong"]], turn))
        elif "options" in table:
            others = rng.sample([r["answer"] for r in rows if r is not row], table["options"] - 1)
            fills["o"] = join_options(insert_answer(answer, others, i))
        elif "{o4}" in main:
            fills["o4"] = join_options(insert_answer(answer, row["x"].split(", "), i), "and")
        fills = {name: value.format(**fills) if name == "x" else value for name, value in fills.items()}
        material = [part for column in table["material"].split() for part in split_words(row[column])]
        questions.append(
            VariedQuestion(
                capital(main.format(**fills)),
                capital(sub.format(**fills)),
                capital(answer),
                f"{kind} {wording + 1}{'ab'[turn % len(subs)] if len(subs) > 1 else ''}",
                tuple(dict.fromkeys([*material, *draw.material])),
            )
        )
    return questions


def pick_verb_and_subject(row: Row, turn: int, sub: str) -> tuple[str, str]:
    """Pick the verb and the subject: one thing with a nearer plural, or several with a nearer singular."""
    # The key is the start of the first form that the sub-question quotes.
    verbs = {"is": ("is", "are"), "we": ("was", "were"), "se": ("seems", "seem")}
    singular_verb, plural_verb = verbs[sub.split("'")[1][:2]]
    is_singular = turn % 2 == 0
    subject = f"{row['one']} {row['of_many']}" if is_singular else f"{row['many']} {row['of_one']}"
    return (singular_verb if is_singular else plural_verb), subject


def split_words(text: str) -> list[str]:
    """Split 'apple, pear, plum' into three; a sentence stays one."""
    return text.split(", ") if not text.endswith((".", "!")) else [text]


def build() -> dict[str, list[dict[str, Any]]]:
    """Build the entries of every split. Functions and kinds alternate, so that the first entries are of all kinds."""
    rng = random.Random(SEED)
    questions_of: dict[tuple[str, str], list[list[VariedQuestion]]] = {}
    for function, tables in TABLE_KINDS.items():
        for kind, table in tables.items():
            for split, rows in deal_rows(rng, table).items():
                questions_of.setdefault((split, function), []).append(
                    questions_from_table(rng, kind, table, split, rows)
                )
    used_numbers: set[tuple[int, int]] = set()
    for function, kinds in COMPUTED_KINDS.items():
        for kind, make in kinds.items():
            for split, size in QUESTIONS_PER_KIND.items():
                questions_of.setdefault((split, function), []).append(
                    make_questions(rng, kind, make, split, size, used_numbers)
                )
    entries: dict[str, list[dict[str, Any]]] = {}
    for split, size in QUESTIONS_PER_KIND.items():
        order = [(i, kind, f) for i in range(size) for kind in range(6) for f in (*TABLE_KINDS, *COMPUTED_KINDS)]
        entries[split] = [to_entry(f, questions_of[split, f][kind][i]) for i, kind, f in order]
    return entries


def make_questions(
    rng: random.Random, kind: str, make: Kind, split: str, size: int, used_numbers: set[tuple[int, int]]
) -> list[VariedQuestion]:
    """Make different questions. A common answer is drawn again, up to MAX_TRIES times."""
    questions: list[VariedQuestion] = []
    tries = 0
    while len(questions) < size:
        tries += 1
        draw = SplitDraw(rng, split, used_numbers)
        wording, turn = wording_and_turn(split, len(questions))
        letter, main, sub, answer = make(draw, wording, turn)
        n_same = [a.answer for a in questions].count(capital(answer))
        if main not in [a.main for a in questions] and (n_same <= len(questions) // 4 or tries > MAX_TRIES):
            # Only questions that are kept use up their numbers.
            used_numbers |= draw.new_numbers
            tries = 0
            texts = (capital(t) for t in (main, sub, answer))
            questions.append(
                VariedQuestion(*texts, f"{kind} {wording + 1}{letter}", tuple(dict.fromkeys(draw.material)))
            )
    return questions


def to_entry(function: str, question: VariedQuestion) -> dict[str, Any]:
    step = {"subquestion": question.sub, "answer": question.answer, "cognitive_skill": function}
    labels = {"template": question.template, "material": list(question.material)}
    return {"question": question.main, "answer": question.answer, "generated": [step]} | labels


def files() -> dict[str, str]:
    """Return the text of each file by name: one per split, with one entry per line."""
    texts = {}
    for split, entries in build().items():
        lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
        texts[f"{split}.json"] = f"[\n{lines}\n]\n"
    return texts
