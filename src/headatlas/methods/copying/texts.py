"""Make clean texts, where something can be copied, and corrupted ones (steps 1 and 2 of `copying`)."""

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headatlas.errors import BadArgument, BadFile, brief, check_count, check_exists, one_line
from headatlas.models.lm import LM
from headatlas.models.tokens import TokenExample, line_break, opening_token, plain_tokens, tokenizer_of
from headatlas.tasks.words import long_words, word_ids

log = logging.getLogger(__name__)

AHEAD = {"token": 0, "concept": 1}  # index of the scored token in the unit
MIN_UNIT_TOKENS = 2
MAX_UNIT_TOKENS = 5
LIST_TOKENS = 30  # as published
MIN_WORDS = 8
UNUSED_TEXTS = 160  # texts for the test, which asks about at most 128

Unit = tuple[int, ...]


@dataclass(frozen=True)
class Text:
    """A text in its clean and its corrupted version.

    Args:
        first: opening token, list, unit and line break of the clean text.
        other: opening token, another list and line break, which replace `first` in the corrupted text.
        again: the repeated list.
        unit: the tokens to predict.
    """

    first: tuple[int, ...]
    other: tuple[int, ...]
    again: tuple[int, ...]
    unit: Unit

    def clean(self, ahead: int) -> TokenExample:
        return TokenExample((*self.first, *self.again, *self.unit[:ahead]), self.unit[ahead : ahead + 1])

    def corrupted(self, ahead: int) -> TokenExample:
        return TokenExample((*self.other, *self.again, *self.unit[:ahead]), self.unit[ahead : ahead + 1])

    @property
    def full(self) -> TokenExample:
        """Return the clean text with the whole unit as its target."""
        return TokenExample((*self.first, *self.again), self.unit)


@dataclass(frozen=True)
class Texts:
    """Texts that heads are scored on, and others, for the test of the map."""

    scored: Sequence[Text]
    unused: Sequence[Text]


def make_texts(lm: LM, words: Any, n: int, length: int | None, seed: int) -> dict[str, Texts]:
    """Make texts for 'token' and 'concept'; the latter is left out, with a warning, if too few built-in words fit."""
    longest = _longest_list(lm)
    shortest = MAX_UNIT_TOKENS + 1
    length = min(LIST_TOKENS, longest) if length is None else check_count("length", length, shortest, longest)
    if length < shortest:
        raise BadArgument(f"model {lm.name!r} has room for lists of {length} tokens, expected at least {shortest}")
    texts = {"token": _token_texts(lm, n, length, seed)}
    units = find_units(lm, words)
    if len(units) >= MIN_WORDS:
        texts["concept"] = _word_texts(lm, units, n, length, seed)
    elif words is not None:
        kind = f"words of {MIN_UNIT_TOKENS} to {MAX_UNIT_TOKENS} tokens in this model"
        raise BadArgument(f"words has {len(units)} {kind}, expected at least {MIN_WORDS}")
    else:
        log.warning("%s: concept is left out: %s", lm.name, _why_too_few(lm, len(units)))
    return texts


def find_units(lm: LM, words: Any) -> list[Unit]:
    """Return the distinct token tuples of the words that have 2 to 5 tokens."""
    listed = _list_words(words)
    texts = [w for w in listed if isinstance(w, str)]
    tokenizer = tokenizer_of(lm)
    if tokenizer is None and words is None:
        return []
    encoded = dict(zip(texts, word_ids(lm.tokenizer, texts), strict=True)) if texts else {}
    units = [tuple(encoded[w]) if isinstance(w, str) else tuple(w) for w in listed]
    last = lm.model.get_input_embeddings().num_embeddings - 1
    if unknown := [i for unit in units for i in unit if i > last]:
        raise BadArgument(f"words: token {unknown[0]} is not in the vocabulary, expected 0 to {last}")
    return list(dict.fromkeys(u for u in units if MIN_UNIT_TOKENS <= len(u) <= MAX_UNIT_TOKENS))


def hash_texts(texts: Mapping[str, Texts]) -> str:
    return hashlib.sha256(repr(texts).encode()).hexdigest()[:16]


def _longest_list(lm: LM) -> int:
    """Return the largest length of a list.

    The context must hold the list twice, and the vocabulary two lists without a common token.
    """
    n_other = 1 + len(line_break(lm))  # the opening token and the line break
    context_limit = ((lm.anatomy.context or 10**9) - n_other) // 2
    vocabulary_limit = (len(plain_tokens(lm)) - MAX_UNIT_TOKENS) // 2
    return min(context_limit, vocabulary_limit)


def _token_texts(lm: LM, n: int, length: int, seed: int) -> Texts:
    generator = np.random.default_rng([seed, 0])
    n_sizes = MAX_UNIT_TOKENS - MIN_UNIT_TOKENS + 1
    vocabulary = plain_tokens(lm)

    def make(n_texts: int) -> list[Text]:
        sizes = [MIN_UNIT_TOKENS + i % n_sizes for i in range(n_texts)]
        units = [tuple(generator.choice(vocabulary, size, replace=False).tolist()) for size in sizes]
        return [_make_text(lm, vocabulary, unit, length, generator) for unit in units]

    return Texts(make(n), make(UNUSED_TEXTS))


def _word_texts(lm: LM, units: Sequence[Unit], n: int, length: int, seed: int) -> Texts:
    """Make texts with half of the words for scores, and with the other half for the test."""
    generator = np.random.default_rng([seed, 1])
    shuffled = [units[i] for i in generator.permutation(len(units))]
    score_units = shuffled[0::2]
    test_units = shuffled[1::2]
    vocabulary = plain_tokens(lm)

    def make(choices: Sequence[Unit], n_texts: int) -> list[Text]:
        return [_make_text(lm, vocabulary, choices[i % len(choices)], length, generator) for i in range(n_texts)]

    return Texts(make(score_units, n), make(test_units, min(len(test_units), UNUSED_TEXTS)))


def _make_text(lm: LM, vocabulary: np.ndarray, unit: Unit, length: int, generator: np.random.Generator) -> Text:
    """Make a text with a list that ends in this unit. vocabulary: tokens to draw from."""
    # no token occurs twice in a list, so that the next token is never ambiguous
    tokens = generator.choice(vocabulary, 2 * length + len(unit), replace=False).tolist()
    tokens = [t for t in tokens if t not in unit]
    again = tuple(tokens[: length - len(unit)])
    other = tuple(tokens[length : 2 * length])
    start = opening_token(lm)
    end = line_break(lm)
    return Text((start, *again, *unit, *end), (start, *other, *end), again, unit)


def _list_words(words: Any) -> list[Any]:
    if words is None:
        return long_words()
    if isinstance(words, str | Path):
        check_exists("words", words, "file")
        try:
            return [line.strip() for line in Path(words).read_text(encoding="utf-8").splitlines() if line.strip()]
        except (OSError, UnicodeDecodeError) as e:
            raise BadFile(f"words: {words} cannot be read as text: {one_line(e)}") from e
    listed = list(words) if isinstance(words, Iterable) else []
    if not listed or not all(isinstance(w, str) or _is_token_ids(w) for w in listed):
        raise BadArgument(f"words is {brief(words)}, expected a file with one word per line, or a list of words")
    return listed


def _is_token_ids(word: Any) -> bool:
    return isinstance(word, list | tuple) and all(isinstance(i, int) and i >= 0 for i in word)


def _why_too_few(lm: LM, n: int) -> str:
    if tokenizer_of(lm) is None:
        return "the model has no tokenizer"
    lengths = f"{MIN_UNIT_TOKENS} to {MAX_UNIT_TOKENS} tokens"
    return f"{n} built-in words have {lengths} in this tokenizer, expected at least {MIN_WORDS}"
