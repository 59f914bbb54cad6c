"""Texts whose end can only be known from far back: passkeys in filler, which are repeated at the end.

All words are ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headatlas.errors import BadArgument
from headatlas.models.lm import LM
from headatlas.models.tokens import without_end
from headatlas.tasks.bundles import held_out_bundles, held_out_rows
from headatlas.tasks.prompts import Task, load_tasks
from headatlas.tasks.used import Used, used_rows


def _words(text: str) -> list[str]:
    return text.split()


DIGITS = 5
COLOURS = _words("red blue green yellow white black brown grey purple orange pink golden silver")
DOORS = _words("door gate chest cabin tower garage office cellar")
PEOPLE = _words("baker teacher farmer doctor painter sailor gardener nurse driver clerk singer tailor")
ACTIONS = _words("watched cleaned moved bought carried found repaired described forgot wrapped sold counted")
THINGS = _words("lamp basket ladder carpet kettle blanket guitar mirror bicycle clock umbrella saddle")
CIRCUMSTANCES = (
    "near the river",
    "after lunch",
    "in the old market",
    "before the rain came",
    "on the way home",
    "while the others slept",
    "at the end of the street",
    "behind the station",
    "with great care",
    "for a friend",
)
RECENT_SHARE = 8  # an eighth of the longest text is recent by default
SINK_SHARE = 4  # and a quarter of that is sink; in 2,048 tokens: 256 and 64, as published


@dataclass(frozen=True)
class Window:
    """What a streaming head sees: the first `sink` tokens and the last `recent` ones."""

    sink: int
    recent: int


@dataclass(frozen=True)
class ScoredText:
    """Token ids, and the places of those whose log P counts. Each is predicted from all tokens before it."""

    ids: tuple[int, ...]
    scored: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Texts:
    """The texts that a map is measured on, and others that it is tested on."""

    name: str
    measured: tuple[ScoredText, ...]
    held_out: tuple[ScoredText, ...]

    @property
    def longest(self) -> int:
        return max(map(len, (*self.measured, *self.held_out)))


def load_texts(
    lm: LM, tasks: Any, *, length: int, keys: int, sink: int | None, recent: int | None, limit: int, held_out: int
) -> tuple[list[Texts], Window, Used]:
    """Return the texts of the user's tasks, or passkeys without any; what streaming heads see; and the rows used."""
    if tasks is None:
        length = min(length, lm.anatomy.context or length)
        window = make_window(length, sink, recent)
        return [passkey_texts(lm, length, keys, window, limit, held_out)], window, Used()
    loaded = load_tasks(lm, tasks)
    texts = [texts_of_task(lm, task, limit, held_out) for task in loaded]
    window = make_window(max(t.longest for t in texts), sink, recent)
    rows = [row for t in loaded for row in (*held_out_rows(_swap_splits(t), limit), *held_out_rows(t, held_out))]
    return texts, window, used_rows(loaded, rows)


def make_window(longest: int, sink: int | None, recent: int | None) -> Window:
    """Return what streaming heads see of texts of at most `longest` tokens."""
    recent = max(1, longest // RECENT_SHARE) if recent is None else recent
    sink = max(1, recent // SINK_SHARE) if sink is None else sink
    if sink + recent >= longest:
        raise BadArgument(
            f"sink is {sink} and recent is {recent}, expected together less than {longest}, the length of the longest"
            " text: else nothing would be out of sight"
        )
    return Window(sink, recent)


def texts_of_task(lm: LM, task: Task, limit: int, held_out: int) -> Texts:
    """Return the texts of a user's task: `limit` training examples, and held-out ones. Their targets are scored."""
    return Texts(task.name, _examples(lm, _swap_splits(task), limit), _examples(lm, task, held_out))


def _examples(lm: LM, task: Task, n: int) -> tuple[ScoredText, ...]:
    bundles = held_out_bundles(lm, task, n) if n else []
    examples = [example for bundle in bundles for example in bundle.examples]
    return tuple(ScoredText(e.prompt + e.target, tuple(range(len(e.prompt), len(e)))) for e in examples)


def _swap_splits(task: Task) -> Task:
    return replace(task, train=task.held_out, held_out=task.train)


# --- passkeys


def passkey_texts(lm: LM, length: int, keys: int, window: Window, limit: int, held_out: int) -> Texts:
    """Return texts of about `length` tokens, each with the keys of some doors, all repeated at its end.

    No key stands where a streaming head would see it when the first is repeated. Keys and repetitions take at most half
    of a text: there are fewer keys where it is short.
    """
    size = max(
        _count_tokens(lm, _key_sentence(f"{colour} {door}", "0" * DIGITS)) for colour in COLOURS for door in DOORS
    )
    keys = min(keys, length // (4 * size))
    if not keys:
        raise BadArgument(f"length is {length}, expected at least {4 * size}: the sentence of a key has {size} tokens")
    max_window = length // 2 - 2 * size  # the last sentences of what fills these tokens reach beyond them
    if window.sink + window.recent > max_window:
        raise BadArgument(
            f"sink is {window.sink} and recent is {window.recent}, expected together at most {max_window}:"
            f" else a key of a text of {length} tokens may be in sight"
        )
    measured, tested = (
        tuple(_passkey_text(lm, length, keys, window, np.random.default_rng([side, i])) for i in range(n))
        for side, n in enumerate((limit, held_out))
    )
    return Texts("passkeys", measured, tested)


def _passkey_text(lm: LM, length: int, keys: int, window: Window, generator: np.random.Generator) -> ScoredText:
    first_time = key_sentences(keys, generator)
    again = [first_time[i] for i in generator.permutation(keys)]
    beginning, end = (_filler(lm, tokens, generator) for tokens in (window.sink, window.recent))
    sentences = (*beginning, *first_time, *end, *again)
    middle = _filler(lm, length - sum(_count_tokens(lm, sentence) for sentence in sentences), generator)
    places = generator.random(keys)
    ids: list[int] = []
    while not ids or (len(ids) > length and middle):  # the filler's last sentence may be too much
        middle = middle[:-1]
        body = list(middle)
        for sentence, place in zip(first_time, places, strict=True):
            body.insert(int(place * (len(body) + 1)), sentence)
        before = " ".join([*beginning, *body, *end])
        ids = without_end(lm.tokenizer, " ".join([before, *again]))
    text = before
    spans = []
    for sentence in again:
        text = f"{text} {sentence}"
        spans.append((len(text) - 1 - DIGITS, len(text) - 1))
    scored = _tokens_in_spans(lm, ids, text, spans)
    if not scored:
        raise BadArgument(f"the tokenizer of {lm.name!r} has no separate tokens for numbers: give your own tasks")
    return ScoredText(tuple(ids), scored)


def key_sentences(n: int, generator: np.random.Generator) -> list[str]:
    """Return sentences about different doors, of different colours as far as there are enough."""
    colours, doors = generator.permutation(COLOURS), generator.permutation(DOORS)
    names = [
        f"{colours[i % len(colours)]} {doors[(i % len(colours) + i // len(colours)) % len(doors)]}" for i in range(n)
    ]
    return [_key_sentence(name, "".join(map(str, generator.integers(10, size=DIGITS)))) for name in names]


def _key_sentence(door: str, number: str) -> str:
    return f"The key of the {door} is {number}."


def _filler(lm: LM, tokens: int, generator: np.random.Generator) -> list[str]:
    """Return sentences of at least this many tokens."""
    sentences: list[str] = []
    size = 0
    while size < tokens:
        person, action, thing, circumstance = (
            words[generator.integers(len(words))] for words in (PEOPLE, ACTIONS, THINGS, CIRCUMSTANCES)
        )
        sentences.append(f"The {person} {action} the {thing} {circumstance}.")
        size += _count_tokens(lm, sentences[-1])
    return sentences


def _count_tokens(lm: LM, sentence: str) -> int:
    return len(lm.tokenizer(f" {sentence}", add_special_tokens=False)["input_ids"])


def _tokens_in_spans(lm: LM, ids: Sequence[int], text: str, spans: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Return the places of tokens in spans of characters, for any tokenizer: what comes before is tokenized alone."""
    ends = [[_common_beginning(without_end(lm.tokenizer, text[:end]), ids) for end in span] for span in spans]
    return tuple(place for start, end in ends for place in range(max(start, 1), end))


def _common_beginning(a: Sequence[int], b: Sequence[int]) -> int:
    """Count the tokens that two texts have in common at their beginning."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
