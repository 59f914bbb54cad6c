"""Texts whose end can only be predicted from far back: passkeys in filler text, repeated at the end.

All words were written for HeadAtlas.
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
# default window: an eighth of the longest text, and a quarter of that; for 2,048 tokens 256 and 64, as published
RECENT_DIVISOR = 8
SINK_DIVISOR = 4


@dataclass(frozen=True)
class Window:
    """The tokens that a streaming head sees: the first `sink` and the last `recent` ones."""

    sink: int
    recent: int


@dataclass(frozen=True)
class ScoredText:
    """Token ids, and the positions of the scored ones. Each is predicted from all tokens before it."""

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
    """Return the texts of the user's tasks (default: passkeys), what streaming heads see, and the rows used."""
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
    recent = max(1, longest // RECENT_DIVISOR) if recent is None else recent
    sink = max(1, recent // SINK_DIVISOR) if sink is None else sink
    if sink + recent >= longest:
        raise BadArgument(
            f"sink is {sink} and recent is {recent}, expected a sum below {longest}, the length of the longest text:"
            " otherwise streaming heads see everything"
        )
    return Window(sink, recent)


def texts_of_task(lm: LM, task: Task, limit: int, held_out: int) -> Texts:
    """Return a user's task as texts: `limit` training examples, and held-out ones. Their targets are scored."""
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

    When the first key is repeated, a streaming head sees no earlier key. Keys and their repetitions take at most half
    of a text, so a short text has fewer.
    """
    size = max(
        _count_tokens(lm, _key_sentence(f"{colour} {door}", "0" * DIGITS)) for colour in COLOURS for door in DOORS
    )
    keys = min(keys, length // (4 * size))
    if not keys:
        raise BadArgument(f"length is {length}, expected at least {4 * size}: the sentence of a key has {size} tokens")
    # two sentences less than half of the text, because filler ends with a whole sentence
    max_window = length // 2 - 2 * size
    if window.sink + window.recent > max_window:
        raise BadArgument(
            f"sink is {window.sink} and recent is {window.recent}, expected a sum of at most {max_window}:"
            f" otherwise a streaming head may see a key of a text of {length} tokens"
        )
    measured = tuple(_passkey_text(lm, length, keys, window, np.random.default_rng([0, i])) for i in range(limit))
    tested = tuple(_passkey_text(lm, length, keys, window, np.random.default_rng([1, i])) for i in range(held_out))
    return Texts("passkeys", measured, tested)


def _passkey_text(lm: LM, length: int, keys: int, window: Window, generator: np.random.Generator) -> ScoredText:
    """Make one text: filler, the keys among more filler, filler, and the keys again in another order."""
    key_list = key_sentences(keys, generator)
    repeated = [key_list[i] for i in generator.permutation(keys)]
    # filler that a streaming head sees when the first key is repeated
    beginning = _filler(lm, window.sink, generator)
    end = _filler(lm, window.recent, generator)
    sentences = (*beginning, *key_list, *end, *repeated)
    middle = _filler(lm, length - sum(_count_tokens(lm, sentence) for sentence in sentences), generator)
    depths = generator.random(keys)
    ids: list[int] = []
    # filler may be a sentence too long
    while not ids or (len(ids) > length and middle):
        middle = middle[:-1]
        body = list(middle)
        for sentence, depth in zip(key_list, depths, strict=True):
            body.insert(int(depth * (len(body) + 1)), sentence)
        before = " ".join([*beginning, *body, *end])
        ids = without_end(lm.tokenizer, " ".join([before, *repeated]))
    text = before
    spans = []
    for sentence in repeated:
        text = f"{text} {sentence}"
        spans.append((len(text) - 1 - DIGITS, len(text) - 1))
    scored = _tokens_in_spans(lm, ids, text, spans)
    if not scored:
        raise BadArgument(f"the tokenizer of {lm.name!r} has no separate tokens for numbers, use your tasks instead")
    return ScoredText(tuple(ids), scored)


def key_sentences(n: int, generator: np.random.Generator) -> list[str]:
    """Return n sentences about different doors, of different colours while there are enough."""
    colours = generator.permutation(COLOURS)
    doors = generator.permutation(DOORS)
    # the second index moves on after each round of colours, so that no combination occurs twice
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
    """Return the positions of tokens in spans of characters.

    The text before each end is tokenized alone, which works for any tokenizer.
    """
    ends = [[_common_beginning(without_end(lm.tokenizer, text[:end]), ids) for end in span] for span in spans]
    return tuple(position for start, end in ends for position in range(max(start, 1), end))


def _common_beginning(a: Sequence[int], b: Sequence[int]) -> int:
    """Count the tokens that two texts share at their beginning."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
