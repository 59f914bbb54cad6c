"""Cognitive questions: main questions cut into steps, each of which calls for one function (the CogQA layout).

A JSON list of {"question": …, "answer": …, "generated": [{"subquestion": …, "answer": …, "cognitive_skill": …}, …]}.
Each step is an example. Its label is the function. Its prompt shows the main question and those of the steps before it
that `context` names.
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
LIMITED = {"train": 0.7, "validation": 0.12, "test": 0.18}  # where few are used, most are for training
FEWEST = 8  # examples of a function, below which nothing can be fitted and tested


@dataclass(frozen=True)
class Question:
    """One step: what is asked, after which steps, and the function it calls for. `split` is '' until it is decided."""

    main: str
    before: tuple[tuple[str, str], ...]
    text: str
    answer: str
    function: str
    split: str = ""

    @property
    def group(self) -> str:
        """The main question, however it is spaced and capitalised."""
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
    """Steps from a file or a list in the CogQA layout, or built in ('varied', the default, or 'stories'), with splits.

    test: a separate file for the test split; otherwise a fifth of the main questions. A main question is in one split
    only. functions: the eight, unless you name others, or 'all' that occur. limit: about so many steps; main questions
    are kept or left out as a whole.
    """
    check_choice("context", context, CONTEXTS)
    if built_in_questions(questions):
        if test is not None:
            raise BadArgument("test is given without questions of your own: give both, or neither for built-in ones")
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
        steps = _split(_without(*parts), SPLITS[:2], seed) + [replace(q, split="test") for q in parts[1]]
    steps = _limited(steps, limit, seed)
    check_sizes(steps, f" with limit={limit}" if limit else "")
    return steps


def function_names(questions: Iterable[Question]) -> list[str]:
    """The functions of questions, in the order of figures; others after them."""
    names = {q.function for q in questions}
    return [f for f in FUNCTIONS if f in names] + sorted(names - set(FUNCTIONS))


def hash_questions(questions: Iterable[Question]) -> str:
    """A short hash of what is asked, for provenance and resuming."""
    return hashlib.sha256(repr(list(questions)).encode()).hexdigest()[:16]


def _built_in(name: str, context: str) -> list[list[Question]]:
    """The steps of each file: train and test, or all three splits."""
    folder = files("headatlas.tasks") / "data" / name
    present = [file for split in SPLITS if (file := folder / f"{split}.json").is_file()]
    return [_steps(json.loads(file.read_text(encoding="utf-8")), file.name, context) for file in present]


def _read(data: Any, name: str, context: str) -> list[Question]:
    """The steps of a file, or of what was handed over in Python, where what is wrong is the caller's mistake."""
    if isinstance(data, str | Path):
        if name == "questions":
            check_questions(name, data)
        else:
            check_exists(name, data, "file")
        return _steps(data, str(data), context)
    try:
        return _steps(data, name, context)
    except BadFile as e:
        raise BadArgument(str(e)) from e


def _steps(data: Any, where: str, context: str) -> list[Question]:
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
        at = f"{where}, entry {i}"
        main = _text(entry, "question", at)
        steps = entry.get("generated")
        if not isinstance(steps, list | tuple):
            raise BadFile(f"{at}: 'generated' is {brief(steps)}, expected a list of steps")
        before: list[tuple[str, str]] = []
        for j, step in enumerate(steps):
            here = f"{at}, step {j}"
            text, answer, function = (_text(step, key, here) for key in ("subquestion", "answer", "cognitive_skill"))
            questions.append(Question(main, tuple(before), text, answer, function))
            if context == "all" or (context == "retrieval" and function == "Retrieval"):
                before.append((text, answer))
    return questions


def _from_csv(where: str, text: str) -> list[dict[str, Any]]:
    """Rows of question, subquestion, answer, cognitive_skill: the steps of a main question in the file's order."""
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
    """Only questions of the wanted functions; logs what was dropped."""
    counts = Counter(q.function for part in parts for q in part)
    if isinstance(functions, str) and functions == "all":
        return parts
    wanted = list(FUNCTIONS) if functions is None else list_names("functions", functions)
    for name in wanted:
        if functions is not None and name not in counts:
            choices = ", ".join(sorted(counts)) or "none"
            raise BadArgument(
                f"functions has {name!r}, which no question is labelled with; there are {choices}."
                f"{did_you_mean(str(name), counts)}"
            )
    dropped = {name: n for name, n in sorted(counts.items()) if name not in wanted}
    if dropped:
        listed = ", ".join(f"{n} × {name!r}" for name, n in dropped.items())
        log.info("dropped %d questions of other functions: %s", sum(dropped.values()), listed)
    return [[q for q in part if q.function in wanted] for part in parts]


def _without(train: list[Question], test: list[Question]) -> list[Question]:
    """Train questions whose main question is not tested."""
    tested = {q.group for q in test}
    kept = [q for q in train if q.group not in tested]
    if len(kept) < len(train):
        log.info("left %d questions out of training: their main questions are in the test file", len(train) - len(kept))
    return kept


def _split(questions: list[Question], splits: Sequence[str], seed: int) -> list[Question]:
    """Main questions dealt to splits so that every function has its share in each, as nearly as can be."""
    mains: dict[str, Counter[str]] = {}
    for q in questions:
        mains.setdefault(q.group, Counter())[q.function] += 1
    counts = Counter(q.function for q in questions)
    total = sum(SHARES[s] for s in splits)
    missing = {s: {f: n * SHARES[s] / total for f, n in counts.items()} for s in splits}
    order = np.random.default_rng(seed).permutation(len(mains)).tolist()
    listed = list(mains)
    rarest = {main: min(counts[f] for f in steps) for main, steps in mains.items()}
    home: dict[str, str] = {}
    for i in sorted(order, key=lambda i: rarest[listed[i]]):  # stable: rare functions first, otherwise as drawn
        steps = mains[listed[i]]
        room = {s: sum(n * missing[s][f] / (counts[f] * SHARES[s]) for f, n in steps.items()) for s in splits}
        chosen = max(splits, key=lambda s: room[s])
        home[listed[i]] = chosen
        for f, n in steps.items():
            missing[chosen][f] -= n
    return [replace(q, split=home[q.group]) for q in questions]


def _limited(questions: list[Question], limit: int | None, seed: int) -> list[Question]:
    """About `limit` of them. Whole main questions are chosen, next the one whose functions are rarest so far."""
    if limit is None or limit >= len(questions):
        return questions
    if limit < 1:
        raise BadArgument(f"limit is {limit}, expected at least 1")
    generator = np.random.default_rng([seed, 1])
    kept: set[str] = set()
    for split in SPLITS:
        steps: dict[str, list[str]] = {}
        for q in questions:
            if q.split == split:
                steps.setdefault(q.group, []).append(q.function)
        left = [list(steps)[i] for i in generator.permutation(len(steps))]
        so_far: Counter[str] = Counter()
        while left and so_far.total() < round(limit * LIMITED[split]):
            scarce = [sum(1 / (1 + so_far[f]) for f in steps[main]) for main in left]
            chosen = left.pop(int(np.argmax(scarce)))
            so_far.update(steps[chosen])
            kept.add(chosen)
    return [q for q in questions if q.group in kept]


def check_sizes(questions: list[Question], why: str = "", functions: Iterable[str] = ()) -> None:
    """Enough examples of every function, in every split. why: the reason there may be too few, for the message."""
    counts = Counter(q.function for q in questions)
    if len(counts) < 2:
        counted = f"{len(counts)} function{'s' * (len(counts) != 1)}"
        raise BadArgument(f"questions{why} are of {counted}, expected at least 2: nothing to tell apart")
    for function, n in (dict.fromkeys(functions, 0) | counts).items():
        if n < FEWEST:
            raise BadArgument(
                f"function {function!r} has {n} example{'s' * (n != 1)}{why}, expected at least {FEWEST}: give more,"
                " or leave it out with functions"
            )
        for split in SPLITS:
            if not any(q.split == split and q.function == function for q in questions):
                raise BadArgument(
                    f"function {function!r} has no {split} example{why}: it needs main questions in train, validation"
                    " and test"
                )


# --- as the model meets them


def in_words(question: Question) -> str:
    """What a user would write."""
    known = "".join(f"\nKnown: {text} {answer}" for text, answer in question.before)
    return f"{question.main}{known}\nAnswer briefly: {question.text}"


def prompt_ids(lm: LM, question: Question, template: bool = True) -> tuple[int, ...]:
    """A prompt as tokens, in the chat template where the tokenizer has one."""
    if not chats(lm, template):
        return tuple(without_end(lm.tokenizer, _plain(question)))
    return tuple(lm.tokenizer(chat_text(lm, in_words(question)), add_special_tokens=False)["input_ids"])


def with_answer(lm: LM, question: Question, answer: str, template: bool = True) -> TokenExample:
    """A prompt and the answer that follows it, as tokens."""
    where = f"question {question.text[:40]!r}"
    if not chats(lm, template):
        return encode_target(lm, _plain(question), f" {answer}", where)
    ids = tuple(lm.tokenizer(answer, add_special_tokens=False)["input_ids"])
    if not ids:
        raise BadArgument(f"{where}: answer is {answer!r}, which has no tokens")
    return encode_target(lm, prompt_ids(lm, question, template), ids, where)


def _plain(question: Question) -> str:
    return f"{in_words(question)}\nAnswer:"
