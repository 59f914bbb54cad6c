"""Texts whose end can only be known from far back: passkeys in filler, asked for at the end. All words are ours."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from headatlas.errors import BadArgument
from headatlas.models.lm import LM
from headatlas.models.tokens import without_end
from headatlas.tasks.bundles import held_out_bundles, held_out_rows
from headatlas.tasks.prompts import Example, Task


def _words(text: str) -> list[str]:
    return text.split()


DIGITS = 5
MOST_KEYS = 104  # so many different doors
COLOURS = _words("red blue green yellow white black brown grey purple orange pink golden silver")
DOORS = _words("door gate chest cabin tower garage office cellar")
WHO = _words("baker teacher farmer doctor painter sailor gardener nurse driver clerk singer tailor")
DID = _words("watched cleaned moved bought carried found repaired described forgot wrapped sold counted")
WHAT = _words("lamp basket ladder carpet kettle blanket guitar mirror bicycle clock umbrella saddle")
WHERE = (
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
    """What a map is about: texts that it is measured on, and others that it is tested on."""

    name: str
    measured: tuple[ScoredText, ...]
    held_out: tuple[ScoredText, ...]

    @property
    def longest(self) -> int:
        return max(map(len, (*self.measured, *self.held_out)))


def texts_of_task(lm: LM, task: Task, limit: int, held_out: int) -> Texts:
    """The user's own: targets are scored. Measured on training examples, tested on held-out ones."""
    sides = [
        tuple(
            ScoredText(e.prompt + e.target, tuple(range(len(e.prompt), len(e))))
            for bundle in held_out_bundles(lm, side, n)
            for e in bundle.examples
        )
        if n
        else ()
        for side, n in ((_swapped(task), limit), (task, held_out))
    ]
    return Texts(task.name, *sides)


def rows_of_task(task: Task, limit: int, held_out: int) -> list[Example]:
    """The rows that `texts_of_task` reads."""
    return held_out_rows(_swapped(task), limit) + held_out_rows(task, held_out)


def _swapped(task: Task) -> Task:
    return replace(task, train=task.held_out, held_out=task.train)


def passkey_texts(lm: LM, length: int, keys: int, window: Window, limit: int, held_out: int) -> Texts:
    """Texts of about `length` tokens. Each tells the keys of some doors, and asks for them all at its end.

    No key is told where a streaming head would see it when the first is asked for. Telling and asking take at most
    half of a text: there are fewer keys where it is short.
    """
    size = max(_size(lm, _sentence(f"{colour} {door}", "0" * DIGITS)) for colour in COLOURS for door in DOORS)
    keys = min(keys, length // (4 * size))
    if not keys:
        raise BadArgument(f"length is {length}, expected at least {4 * size}: a key takes {size} tokens to tell")
    most = length // 2 - 2 * size  # the last sentences of what fills these tokens reach beyond them
    if window.sink + window.recent > most:
        raise BadArgument(
            f"sink is {window.sink} and recent is {window.recent}, expected together at most {most}:"
            f" else a key of a text of {length} tokens may be in sight"
        )
    sides = [
        tuple(_passkey_text(lm, length, keys, window, np.random.default_rng([side, i])) for i in range(n))
        for side, n in enumerate((limit, held_out))
    ]
    return Texts("passkeys", *sides)


def _passkey_text(lm: LM, length: int, keys: int, window: Window, generator: np.random.Generator) -> ScoredText:
    told = _keys(keys, generator)
    asked = [told[i] for i in generator.permutation(keys)]
    first, last = (_fill(lm, tokens, generator) for tokens in (window.sink, window.recent))
    middle = _fill(lm, length - sum(_size(lm, s) for s in (*first, *told, *last, *asked)), generator)
    places = generator.random(keys)
    ids: list[int] = []
    while not ids or (len(ids) > length and middle):  # the filler's last sentence may be too much
        middle = middle[:-1]
        body = list(middle)
        for sentence, place in zip(told, places, strict=True):
            body.insert(int(place * (len(body) + 1)), sentence)
        before = " ".join([*first, *body, *last])
        ids = without_end(lm.tokenizer, " ".join([before, *asked]))
    text, spans = before, []
    for sentence in asked:
        text = f"{text} {sentence}"
        spans.append((len(text) - 1 - DIGITS, len(text) - 1))
    scored = _places(lm, ids, text, spans)
    if not scored:
        raise BadArgument(f"the tokenizer of {lm.name!r} has no tokens of its own for numbers: give tasks of your own")
    return ScoredText(tuple(ids), scored)


def _keys(n: int, generator: np.random.Generator) -> list[str]:
    """Different doors, of different colours as far as there are enough."""
    colours, doors = generator.permutation(COLOURS), generator.permutation(DOORS)
    chosen = [
        f"{colours[i % len(colours)]} {doors[(i % len(colours) + i // len(colours)) % len(doors)]}" for i in range(n)
    ]
    return [_sentence(door, "".join(map(str, generator.integers(10, size=DIGITS)))) for door in chosen]


def _sentence(door: str, number: str) -> str:
    return f"The key of the {door} is {number}."


def _fill(lm: LM, tokens: int, generator: np.random.Generator) -> list[str]:
    """Sentences of at least so many tokens."""
    sentences: list[str] = []
    size = 0
    while size < tokens:
        who, did, what, where = (words[generator.integers(len(words))] for words in (WHO, DID, WHAT, WHERE))
        sentences.append(f"The {who} {did} the {what} {where}.")
        size += _size(lm, sentences[-1])
    return sentences


def _size(lm: LM, sentence: str) -> int:
    return len(lm.tokenizer(f" {sentence}", add_special_tokens=False)["input_ids"])


def _places(lm: LM, ids: Sequence[int], text: str, spans: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """The tokens that lie in spans of characters, for any tokenizer: what comes before is tokenized alone."""
    ends = [[_shared(without_end(lm.tokenizer, text[:end]), ids) for end in span] for span in spans]
    return tuple(place for start, end in ends for place in range(max(start, 1), end))


def _shared(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two texts have in common at their beginning."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
