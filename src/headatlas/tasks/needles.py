"""Needles: sentences to hide in a long text, each with a question that only it answers.

On disk: JSON Lines of {"needle": …, "question": …, "answer": …}, or CSV with these columns. The answer is a part
of the needle, word for word; without an answer, it is the whole needle.
"""

import csv
import hashlib
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from headatlas.errors import (
    BadArgument,
    BadFile,
    CannotDo,
    HeadAtlasError,
    brief,
    check_columns,
    check_exists,
    one_line,
)
from headatlas.models.lm import LM
from headatlas.models.tokens import without_end
from headatlas.tasks.chat import chat_text, chats
from headatlas.tasks.words import word_ids

FOLDER = files("headatlas.tasks") / "data" / "needles"
BUILT_IN = "facts"
EXPECTED = (
    'a file, needles such as [{"needle": "…", "question": "…", "answer": "…"}, …], or several of these by name,'
    " {name: needles}"
)
FIELDS = ("needle", "question", "answer")
# Characters per token that no usual text exceeds on average.
MAX_CHARACTERS_PER_TOKEN = 12


@dataclass(frozen=True)
class Needle:
    """A sentence to hide. text: the sentence. answer: the part of it that answers the question."""

    text: str
    question: str
    answer: str


@dataclass(frozen=True)
class Haystack:
    """Token ids of a text with a needle in it, followed by the question; ids[start:end] is the answer."""

    ids: tuple[int, ...]
    start: int
    end: int


def load_needles(needles: Any = None) -> dict[str, tuple[Needle, ...]]:
    """Load sets of needles by name: the built-in one, a file, a list, or {name: any of these}."""
    if isinstance(needles, Mapping) and not set(FIELDS) & set(needles):
        sets = {str(name): _load(part, f"needles[{name!r}]")[1] for name, part in needles.items()}
    else:
        sets = dict([_load(needles, "needles")])
    if not sets:
        raise BadArgument(f"needles is empty, expected {EXPECTED}")
    return sets


def load_sentences(text: Any = None, tokens: int | None = None) -> tuple[str, ...]:
    """Load the sentences of a text: built-in, a file, or a list. tokens: read only about this many tokens."""
    if text is None:
        text = re.split(r"\n+", (FOLDER / "text.txt").read_text(encoding="utf-8"))
    elif isinstance(text, str | Path):
        text = [_read(text, "text")]
    elif not isinstance(text, Sequence) or not all(isinstance(line, str) for line in text):
        raise BadArgument(f"text is {brief(text)}, expected a file, or a list of sentences")
    pieces = [s for line in text for s in re.split(r"(?<=[.!?])\s+|(?<=[。！？])|\s*\n\s*", line.strip()) if s]
    if not pieces:
        raise BadArgument("text is empty, expected sentences for needles to be hidden in")
    ends = np.cumsum([len(s) for s in pieces])
    enough = len(pieces) if tokens is None else int(np.searchsorted(ends, MAX_CHARACTERS_PER_TOKEN * tokens)) + 1
    return tuple(pieces[:enough])


def hash_needles(sets: Mapping[str, Sequence[Needle]], sentences: Sequence[str]) -> str:
    """Return a short hash of needles and text, for provenance and resuming."""
    return hashlib.sha256(repr((sorted(sets.items()), sentences)).encode()).hexdigest()[:16]


def hide_needle(
    lm: LM, needle: Needle, sentences: Sequence[str], length: int, depth: float, template: bool = True
) -> Haystack:
    """Hide a needle among as many sentences as fit into a prompt of at most `length` tokens.

    depth: its position, from 0 (before the first sentence) to 1 (after the last). Sentences are repeated if there are
    too few.
    """
    encode = partial(_encode, lm, template)
    fixed_length = len(encode(_ask(lm, needle.text, needle.question, template)))
    sizes = [max(1, len(lm.tokenizer(f" {s}", add_special_tokens=False)["input_ids"])) for s in sentences]
    room = max(0, length - fixed_length)
    # An estimate, since tokens may join across sentences; the loop below makes it exact.
    count = int(np.searchsorted(np.cumsum(np.resize(sizes, room + 1)), room, side="right"))
    while True:
        before = [sentences[i % len(sentences)] for i in range(count)]
        after = [before.pop() for _ in range(count - round(depth * count))][::-1]
        text = " ".join([*before, needle.text, *after])
        prompt = _ask(lm, text, needle.question, template)
        ids = encode(prompt)
        if len(ids) <= length or not count:
            break
        count -= 1
    if needle.text not in prompt:
        raise CannotDo(f"the chat template of model {lm.name!r} changes the text (template=False: do not use it)")
    first = prompt.index(needle.text) + _find_answer(needle)
    return Haystack(tuple(ids), *_span(lm, template, prompt, ids, first, first + len(needle.answer)))


def answer_beginning(lm: LM, needle: Needle, template: bool = True) -> tuple[int, ...]:
    """Return the tokens of the needle's words before its answer, as the beginning of a reply to its question."""
    text = needle.text[: _find_answer(needle)].strip()
    if not text:
        return ()
    if chats(lm, template):
        return tuple(lm.tokenizer(text, add_special_tokens=False)["input_ids"])
    return tuple(word_ids(lm.tokenizer, [text])[0])


def check_needles(
    lm: LM, sets: Mapping[str, Sequence[Needle]], sentences: Sequence[str], length: int, template: bool
) -> None:
    """Check that every needle fits into a prompt of `length` tokens and is not in the text already."""
    text = " ".join(sentences)
    for name, needles in sets.items():
        for i, needle in enumerate(needles):
            where = f"{name}, needle {i + 1}"
            if needle.text in text:
                raise BadArgument(f"{where} is already in the text")
            shortest = hide_needle(lm, needle, sentences, 0, 0.0, template)
            if len(shortest.ids) > length:
                n_tokens = len(shortest.ids)
                raise BadArgument(f"{where}: with its question it has {n_tokens} tokens, but lengths has {length}")
            if shortest.start >= shortest.end:
                raise BadArgument(f"{where}: its answer {brief(needle.answer)} has no tokens")


def _ask(lm: LM, text: str, question: str, template: bool) -> str:
    words = f"{text}\n\nBased on the text above, answer the question.\nQuestion: {question}"
    return chat_text(lm, words) if chats(lm, template) else f"{words}\nAnswer:"


def _encode(lm: LM, template: bool, prompt: str) -> list[int]:
    if chats(lm, template):  # the template has written the special tokens
        ids: list[int] = lm.tokenizer(prompt, add_special_tokens=False)["input_ids"]
        return ids
    return without_end(lm.tokenizer, prompt)


def _span(lm: LM, template: bool, prompt: str, ids: Sequence[int], first: int, last: int) -> tuple[int, int]:
    """Return start and end of the tokens of prompt[first:last], those across its borders included."""
    if not lm.tokenizer.is_fast:  # no character offsets
        before, until = (_encode(lm, template, prompt[:n]) for n in (first, last))
        return _common_prefix_length(before, ids), max(
            _common_prefix_length(until, ids), _common_prefix_length(before, ids) + 1
        )
    offsets = lm.tokenizer(prompt, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    shift = len(ids) - len(offsets)  # special tokens before the text
    inside = [i + shift for i, (begin, end) in enumerate(offsets) if begin < last and end > first]
    return (inside[0], inside[-1] + 1) if inside else (0, 0)


def _common_prefix_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Return the length of the common prefix of two lists of tokens."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _find_answer(needle: Needle) -> int:
    """Return the position of the answer in the needle, ignoring case; −1 if it is not there."""
    return needle.text.lower().find(needle.answer.lower())


def _load(needles: Any, where: str) -> tuple[str, tuple[Needle, ...]]:
    """Return the name of a set of needles, and its needles."""
    if needles is None:
        return BUILT_IN, _check(_lines(BUILT_IN, (FOLDER / f"{BUILT_IN}.jsonl").read_text(encoding="utf-8")), BUILT_IN)
    if isinstance(needles, str | Path):
        content = _read(needles, where)
        rows = (
            _parse_csv(str(needles), content)
            if str(needles).lower().endswith(".csv")
            else _lines(str(needles), content)
        )
        return Path(needles).stem, _check(rows, str(needles))
    if isinstance(needles, Mapping) or not isinstance(needles, Iterable):
        raise BadArgument(f"{where} is {brief(needles)}, expected {EXPECTED}")
    return "needles", _check(needles, where, BadArgument)


def _read(path: str | Path, argument: str) -> str:
    check_exists(argument, path, "file")
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        raise BadFile(f"cannot read {path}: {one_line(e)}") from e


def _lines(where: str, content: str) -> list[Any]:
    rows = []
    for number, line in enumerate(content.split("\n"), 1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except (ValueError, RecursionError) as e:
                raise BadFile(f"{where}, line {number} is not JSON: {one_line(e)}") from e
    return rows


def _parse_csv(where: str, content: str) -> list[Any]:
    reader = csv.DictReader(io.StringIO(content, newline=""))
    check_columns(where, reader.fieldnames, FIELDS[:2])
    try:
        return list(reader)
    except csv.Error as e:
        raise BadFile(f"{where}, line {reader.line_num} is not CSV: {one_line(e)}") from e


def _check(rows: Iterable[Any], where: str, error: type[HeadAtlasError] = BadFile) -> tuple[Needle, ...]:
    needles: dict[Needle, None] = {}
    for i, row in enumerate(rows):
        place = f"{where}, needle {i + 1}"
        if isinstance(row, Needle):
            row = {"needle": row.text, "question": row.question, "answer": row.answer}
        if not isinstance(row, Mapping) or not all(isinstance(row.get(f), str) and row[f].strip() for f in FIELDS[:2]):
            raise error(f'{place} is {brief(row)}, expected {{"needle": "…", "question": "…", "answer": "…"}}')
        answer = row.get("answer") or row["needle"]
        if not isinstance(answer, str) or answer.strip().lower() not in row["needle"].lower():
            raise error(f"{place} has answer {brief(answer)}, which is not a part of the needle {brief(row['needle'])}")
        needles[Needle(row["needle"].strip(), row["question"].strip(), answer.strip())] = None
    if not needles:
        raise error(f"{where} has no needles, expected {EXPECTED}")
    return tuple(needles)
