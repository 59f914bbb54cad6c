"""Cognitive questions: main questions split into steps, each of which calls for one function (the CogQA layout).

A JSON list of {"question": …, "answer": …, "generated": [{"subquestion": …, "answer": …, "cognitive_skill": …}, …]}.
Each step is an example. Its label is the function. Its prompt shows the main question and the earlier steps that
`context` selects.
"""

import csv
import hashlib
import io
import json
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from headatlas.errors import (
    BadArgument,
    BadFile,
    brief,
    check_choice,
    check_columns,
    check_exists,
    did_you_mean,
    list_names,
    one_line,
)
from headatlas.models.lm import LM
from headatlas.models.tokens import TokenExample, encode_target, without_end
from headatlas.tasks.built_in import FUNCTIONS, QUESTIONS, built_in_questions, check_questions
from headatlas.tasks.chat import chat_text, chats

log = logging.getLogger(__name__)

LOWER = ("Retrieval", "Knowledge Recall", "Semantic Understanding", "Syntactic Understanding")
HIGHER = ("Math Calculation", "Inference", "Logical Reasoning", "Decision-making")
CONTEXTS = ("retrieval", "all", "none")
SPLITS = ("train", "validation", "test")
SHARES = {"train": 0.65, "validation": 0.15, "test": 0.2}
# Shares under a limit: of few questions, a larger share is needed for training.
LIMITED_SHARES = {"train": 0.7, "validation": 0.12, "test": 0.18}
# Examples per function that fitting and testing need.
MIN_EXAMPLES = 8
# The share of each split that may be left out for a test, and the fewest questions that are worth it.
MAX_LEFT_OUT = 1 / 3
MIN_LEFT_OUT = 8


@dataclass(frozen=True)
class Question:
    """One step. before: question and answer of the earlier steps in its prompt. split: '' until it is assigned."""

    main: str
    before: tuple[tuple[str, str], ...]
    text: str
    answer: str
    function: str
    split: str = ""

    @property
    def group(self) -> str:
        """Return the main question without differences in spacing and case."""
        return " ".join(self.main.casefold().split())


def load_questions(
    questions: str | Path | Sequence[Any] | None = None,
    test: str | Path | Sequence[Any] | None = None,
    *,
    context: str = "retrieval",
    functions: Sequence[str] | str | None = None,
    limit: int | None = None,
    seed: int = 0,
) -> list[Question]:
    """Load steps with splits: built-in ('varied', the default, or 'stories'), or a file or list in the CogQA layout.

    test: a separate file for the test split (default: a fifth of the main questions). All steps of a main question are
    in the same split. functions: names of functions to keep (default: the eight; 'all' keeps every label).
    limit: approximate number of steps; main questions are kept or dropped as a whole.
    """
    check_choice("context", context, CONTEXTS)
    if built_in_questions(questions):
        if test is not None:
            raise BadArgument("test is given without questions: give both, or neither for built-in questions")
        parts = _built_in(str(questions or next(iter(QUESTIONS))), context)
    else:
        sources = (("questions", questions), ("test", test))
        parts = [_read(source, name, context) for name, source in sources if source is not None]
    parts = _with_functions(parts, functions)
    if len(parts) == 1:
        steps = _split(parts[0], SPLITS, seed)
    elif len(parts) == len(SPLITS):
        steps = [replace(q, split=split) for split, part in zip(SPLITS, parts, strict=True) for q in part]
    else:
        steps = _split(_drop_tested_questions(*parts), SPLITS[:2], seed) + [replace(q, split="test") for q in parts[1]]
    steps = limit_questions(steps, limit, seed)
    check_sizes(steps, f" with limit={limit}" if limit else "")
    return steps


def function_names(questions: Iterable[Question]) -> list[str]:
    """Return the functions of questions in the order of figures, others after them."""
    names = {q.function for q in questions}
    return [f for f in FUNCTIONS if f in names] + sorted(names - set(FUNCTIONS))


def hash_questions(questions: Iterable[Question]) -> str:
    """Return a short hash of the questions, for provenance and resuming."""
    return hashlib.sha256(repr(list(questions)).encode()).hexdigest()[:16]


def _built_in(name: str, context: str) -> list[list[Question]]:
    """Read the steps of each built-in file: train and test, or all three splits."""
    folder = files("headatlas.tasks") / "data" / name
    present = [file for split in SPLITS if (file := folder / f"{split}.json").is_file()]
    return [_read_steps(json.loads(file.read_text(encoding="utf-8")), file.name, context) for file in present]


def _read(data: Any, name: str, context: str) -> list[Question]:
    """Read the steps of a file, or of a Python object, whose errors are BadArgument instead of BadFile."""
    if isinstance(data, str | Path):
        if name == "questions":
            check_questions(name, data)
        else:
            check_exists(name, data, "file")
        return _read_steps(data, str(data), context)
    try:
        return _read_steps(data, name, context)
    except BadFile as e:
        raise BadArgument(str(e)) from e


def _read_steps(data: Any, where: str, context: str) -> list[Question]:
    if isinstance(data, str | Path):
        try:
            text = Path(data).read_text(encoding="utf-8-sig")
            data = _from_csv(where, text) if where.lower().endswith(".csv") else json.loads(text)
        except (OSError, UnicodeDecodeError) as e:
            raise BadFile(f"cannot read questions from {where}: {one_line(e)}") from e
        except (ValueError, RecursionError) as e:
            raise BadFile(f"{where} is not JSON: {one_line(e)}") from e
    if not isinstance(data, list | tuple):
        raise BadFile(
            f"{where} is {brief(data)}, expected a list of main questions (the CogQA layout), or a file of it"
        )
    questions = []
    for i, entry in enumerate(data):
        place = f"{where}, entry {i}"
        main = _text(entry, "question", place)
        steps = entry.get("generated")
        if not isinstance(steps, list | tuple):
            raise BadFile(f"{place}: 'generated' is {brief(steps)}, expected a list of steps")
        before: list[tuple[str, str]] = []
        for j, step in enumerate(steps):
            step_place = f"{place}, step {j}"
            keys = ("subquestion", "answer", "cognitive_skill")
            text, answer, function = (_text(step, key, step_place) for key in keys)
            questions.append(Question(main, tuple(before), text, answer, function))
            if context == "all" or (context == "retrieval" and function == "Retrieval"):
                before.append((text, answer))
    return questions


def _from_csv(where: str, text: str) -> list[dict[str, Any]]:
    """Read rows of question, subquestion, answer, cognitive_skill; the steps of a question keep their order."""
    columns = ("question", "subquestion", "answer", "cognitive_skill")
    reader = csv.DictReader(io.StringIO(text, newline=""))
    check_columns(where, reader.fieldnames, columns)
    mains: dict[str, list[dict[str, Any]]] = {}
    try:
        for row in reader:
            mains.setdefault(row["question"] or "", []).append({c: row[c] for c in columns[1:]})
    except csv.Error as e:
        raise BadFile(f"{where}, line {reader.line_num} is not CSV: {one_line(e)}") from e
    return [{"question": main, "generated": steps} for main, steps in mains.items()]


def _text(entry: Any, key: str, where: str) -> str:
    if not isinstance(entry, dict):
        raise BadFile(f"{where} is {brief(entry)}, expected an object with {key!r}")
    if key not in entry:
        raise BadFile(f"{where} has no {key!r}; it has {', '.join(map(repr, entry)) or 'nothing'}")
    value = entry[key]
    if key == "answer" and isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        raise BadFile(f"{where}: {key!r} is {brief(value)}, expected text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as e:
        raise BadFile(f"{where}: {key!r} is {brief(value)}, which is not valid Unicode") from e
    return value.strip()


def _with_functions(parts: list[list[Question]], functions: Sequence[str] | str | None) -> list[list[Question]]:
    """Keep only questions of the selected functions; log how many are dropped."""
    counts = Counter(q.function for part in parts for q in part)
    if isinstance(functions, str) and functions == "all":
        return parts
    selected = list(FUNCTIONS) if functions is None else list_names("functions", functions)
    for name in selected:
        if functions is not None and name not in counts:
            choices = ", ".join(sorted(counts)) or "none"
            raise BadArgument(
                f"functions has {name!r}, which no question is labelled with, expected some of {choices}."
                f"{did_you_mean(str(name), counts)}"
            )
    dropped = {name: n for name, n in sorted(counts.items()) if name not in selected}
    if dropped:
        listed = ", ".join(f"{n} × {name!r}" for name, n in dropped.items())
        log.info("dropped %d questions of other functions: %s", sum(dropped.values()), listed)
    return [[q for q in part if q.function in selected] for part in parts]


def _drop_tested_questions(train: list[Question], test: list[Question]) -> list[Question]:
    """Drop training questions whose main question is in the test."""
    tested = {q.group for q in test}
    remaining = [q for q in train if q.group not in tested]
    if len(remaining) < len(train):
        n_dropped = len(train) - len(remaining)
        log.info("dropped %d training questions whose main questions are in the test file", n_dropped)
    return remaining


def _split(questions: list[Question], splits: Sequence[str], seed: int) -> list[Question]:
    """Assign main questions to splits so that every function has nearly its share in each."""
    mains: dict[str, Counter[str]] = {}
    for q in questions:
        mains.setdefault(q.group, Counter())[q.function] += 1
    counts = Counter(q.function for q in questions)
    total = sum(SHARES[s] for s in splits)
    missing = {s: {f: n * SHARES[s] / total for f, n in counts.items()} for s in splits}
    order = np.random.default_rng(seed).permutation(len(mains)).tolist()
    listed = list(mains)
    rarest = {main: min(counts[f] for f in steps) for main, steps in mains.items()}
    split_of: dict[str, str] = {}
    # Rare functions first, while every split has room. The sort is stable: ties keep their random order.
    for i in sorted(order, key=lambda i: rarest[listed[i]]):
        steps = mains[listed[i]]
        room = {s: sum(n * missing[s][f] / (counts[f] * SHARES[s]) for f, n in steps.items()) for s in splits}
        best = max(splits, key=lambda s: room[s])
        split_of[listed[i]] = best
        for f, n in steps.items():
            missing[best][f] -= n
    return [replace(q, split=split_of[q.group]) for q in questions]


def leave_out_questions(questions: Sequence[Question], n: int, seed: int) -> list[Question]:
    """Return the questions without about n of each function, for a test; whole main questions are left out.

    At most a third of a function's questions in each split is left out, and none of a function of which that is fewer
    than a test needs.
    """
    counts = Counter((q.split, q.function) for q in questions)
    totals = Counter(q.function for q in questions)
    max_counts = {key: int(MAX_LEFT_OUT * count) for key, count in counts.items()}
    wanted = {key: min(max_counts[key], round(n * count / totals[key[1]])) for key, count in counts.items()}
    by_function = {f: sum(wanted[key] for key in wanted if key[1] == f) for f in totals}
    wanted = {key: count if by_function[key[1]] >= MIN_LEFT_OUT else 0 for key, count in wanted.items()}
    mains: dict[str, Counter[tuple[str, str]]] = {}
    for q in questions:
        mains.setdefault(q.group, Counter())[q.split, q.function] += 1
    listed = list(mains)
    left_out: set[str] = set()
    taken: Counter[tuple[str, str]] = Counter()
    for i in np.random.default_rng([seed, 2]).permutation(len(listed)).tolist():
        steps = mains[listed[i]]
        is_wanted = any(taken[key] < wanted[key] for key in steps)
        if is_wanted and all(taken[key] + count <= max_counts[key] for key, count in steps.items()):
            left_out.add(listed[i])
            taken.update(steps)
    return [q for q in questions if q.group not in left_out]


def limit_questions(questions: list[Question], limit: int | None, seed: int) -> list[Question]:
    """Select about `limit` steps: whole main questions, next the one whose functions are rarest so far."""
    if limit is None or limit >= len(questions):
        return questions
    if limit < 1:
        raise BadArgument(f"limit is {limit}, expected at least 1")
    generator = np.random.default_rng([seed, 1])
    selected: set[str] = set()
    for split in SPLITS:
        steps: dict[str, list[str]] = {}
        for q in questions:
            if q.split == split:
                steps.setdefault(q.group, []).append(q.function)
        remaining = [list(steps)[i] for i in generator.permutation(len(steps))]
        counts: Counter[str] = Counter()
        while remaining and counts.total() < round(limit * LIMITED_SHARES[split]):
            rarity = [sum(1 / (1 + counts[f]) for f in steps[main]) for main in remaining]
            rarest = remaining.pop(int(np.argmax(rarity)))
            counts.update(steps[rarest])
            selected.add(rarest)
    return [q for q in questions if q.group in selected]


def check_sizes(questions: list[Question], why: str = "", functions: Iterable[str] = ()) -> None:
    """Check that every function has enough examples, and some in every split. why: a likely reason, for errors."""
    counts = Counter(q.function for q in questions)
    if len(counts) < 2:
        counted = f"{len(counts)} function{'s' * (len(counts) != 1)}"
        raise BadArgument(f"questions{why} are of {counted}, expected at least 2 to compare")
    for function, n in (dict.fromkeys(functions, 0) | counts).items():
        if n < MIN_EXAMPLES:
            raise BadArgument(
                f"function {function!r} has {n} example{'s' * (n != 1)}{why}, expected at least {MIN_EXAMPLES}:"
                " give more, or leave it out with functions"
            )
        for split in SPLITS:
            if not any(q.split == split and q.function == function for q in questions):
                raise BadArgument(
                    f"function {function!r} has no {split} example{why}: it needs main questions in train, validation"
                    " and test"
                )


# --- prompts


def in_words(question: Question) -> str:
    """Return the question as a user would write it."""
    earlier = "".join(f"\nKnown: {text} {answer}" for text, answer in question.before)
    return f"{question.main}{earlier}\nAnswer briefly: {question.text}"


def prompt_ids(lm: LM, question: Question, template: bool = True) -> tuple[int, ...]:
    """Encode a prompt, in the chat template if the tokenizer has one."""
    if not chats(lm, template):
        return tuple(without_end(lm.tokenizer, _plain_prompt(question)))
    return tuple(lm.tokenizer(chat_text(lm, in_words(question)), add_special_tokens=False)["input_ids"])


def with_answer(lm: LM, question: Question, answer: str, template: bool = True) -> TokenExample:
    """Encode a prompt and an answer after it."""
    where = f"question {question.text[:40]!r}"
    if not chats(lm, template):
        return encode_target(lm, _plain_prompt(question), f" {answer}", where)
    ids = tuple(lm.tokenizer(answer, add_special_tokens=False)["input_ids"])
    if not ids:
        raise BadArgument(f"{where}: answer is {answer!r}, which has no tokens")
    return encode_target(lm, prompt_ids(lm, question, template), ids, where)


def _plain_prompt(question: Question) -> str:
    return f"{in_words(question)}\nAnswer:"
