"""Texts in which something can be copied, and the same without it (steps 1 and 2 of `copying`)."""

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headatlas.errors import BadArgument, BadFile, brief, check_count, check_there, one_line
from headatlas.models.lm import LM
from headatlas.models.tokens import TokenExample, line_break, opening_token, plain_tokens, tokenizer_of
from headatlas.tasks.words import long_words, word_ids

log = logging.getLogger(__name__)

AHEAD = {"token": 0, "concept": 1}  # which token of the unit is scored
PIECES = (2, 5)  # tokens of a unit, fewest and most
LENGTH = 30  # tokens of a list, as published
MIN_WORDS = 8
MAX_PROOF = 16  # texts that heads are removed on, at most

Unit = tuple[int, ...]


@dataclass(frozen=True)
class Text:
    """A list with its unit and another list, both with the tokens around them; the list again; the unit."""

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
        """The text whose target is all of the unit."""
        return TokenExample((*self.first, *self.again), self.unit)


@dataclass(frozen=True)
class Texts:
    """Texts that heads are scored on, and others that they are then removed on."""

    scored: Sequence[Text]
    proof: Sequence[Text]


def make_texts(lm: LM, words: Any, n: int, length: int | None, seed: int) -> dict[str, Texts]:
    """Make texts by what is copied; without `concept`, and with a warning, where there are too few words."""
    longest = _longest(lm)
    length = min(LENGTH, longest) if length is None else check_count("length", length, PIECES[1] + 1, longest)
    if length <= PIECES[1]:
        raise BadArgument(f"model {lm.name!r} has room for lists of {length} tokens, expected at least {PIECES[1] + 1}")
    made = {"token": _token_texts(lm, n, length, seed)}
    units = find_units(lm, words)
    if len(units) >= MIN_WORDS:
        made["concept"] = _word_texts(lm, units, n, length, seed)
    elif words is not None:
        kind = f"words of {PIECES[0]} to {PIECES[1]} tokens in this model"
        raise BadArgument(f"words has {len(units)} {kind}, expected at least {MIN_WORDS}")
    else:
        log.warning("%s: concept is left out: %s", lm.name, _too_few(lm, len(units)))
    return made


def find_units(lm: LM, words: Any) -> list[Unit]:
    """Return the tokens of words that have 2 to 5 of them, without repetition."""
    listed = _listed(words)
    texts = [w for w in listed if isinstance(w, str)]
    tokenizer = tokenizer_of(lm)
    if tokenizer is None and words is None:
        return []
    encoded = dict(zip(texts, word_ids(lm.tokenizer, texts), strict=True)) if texts else {}
    units = [tuple(encoded[w]) if isinstance(w, str) else tuple(w) for w in listed]
    last = lm.model.get_input_embeddings().num_embeddings - 1
    if unknown := [i for unit in units for i in unit if i > last]:
        raise BadArgument(f"words: token {unknown[0]} is not in the vocabulary, expected 0 to {last}")
    return list(dict.fromkeys(u for u in units if PIECES[0] <= len(u) <= PIECES[1]))


def hash_texts(texts: Mapping[str, Texts]) -> str:
    return hashlib.sha256(repr(texts).encode()).hexdigest()[:16]


def _longest(lm: LM) -> int:
    """The longest list that fits: twice into the context, and two without a common token into the vocabulary."""
    around = 1 + len(line_break(lm))  # the opening token; the line break
    context = ((lm.anatomy.context or 10**9) - around) // 2
    return int(min(context, (len(plain_tokens(lm)) - PIECES[1]) // 2))


def _token_texts(lm: LM, n: int, length: int, seed: int) -> Texts:
    generator = np.random.default_rng([seed, 0])
    few, many = PIECES
    sizes = [few + i % (many - few + 1) for i in range(n + min(n, MAX_PROOF))]
    plain = plain_tokens(lm)
    units = [tuple(generator.choice(plain, size, replace=False).tolist()) for size in sizes]
    texts = [_text(lm, plain, unit, length, generator) for unit in units]
    return Texts(texts[:n], texts[n:])


def _word_texts(lm: LM, units: Sequence[Unit], n: int, length: int, seed: int) -> Texts:
    """Use half of the words for scores, the others for removals."""
    generator = np.random.default_rng([seed, 1])
    mixed = [units[i] for i in generator.permutation(len(units))]
    scored, proof, plain = mixed[0::2], mixed[1::2], plain_tokens(lm)
    return Texts(
        [_text(lm, plain, scored[i % len(scored)], length, generator) for i in range(n)],
        [_text(lm, plain, proof[i % len(proof)], length, generator) for i in range(min(n, MAX_PROOF))],
    )


def _text(lm: LM, plain: np.ndarray, unit: Unit, length: int, generator: np.random.Generator) -> Text:
    """plain: tokens to draw from. No token occurs twice, so that what comes next is never in doubt."""
    tokens = generator.choice(plain, 2 * length + len(unit), replace=False).tolist()
    tokens = [t for t in tokens if t not in unit]
    again, other = tuple(tokens[: length - len(unit)]), tuple(tokens[length : 2 * length])
    start, end = (opening_token(lm),), line_break(lm)
    return Text((*start, *again, *unit, *end), (*start, *other, *end), again, unit)


def _listed(words: Any) -> list[Any]:
    if words is None:
        return long_words()
    if isinstance(words, str | Path):
        check_there("words", words, "file")
        try:
            return [line.strip() for line in Path(words).read_text(encoding="utf-8").splitlines() if line.strip()]
        except (OSError, UnicodeDecodeError) as e:
            raise BadFile(f"words: {words} cannot be read as text: {one_line(e)}") from e
    listed = list(words) if isinstance(words, Iterable) else []
    if not listed or not all(isinstance(w, str) or _are_ids(w) for w in listed):
        raise BadArgument(f"words is {brief(words)}, expected a file with one word per line, or a list of words")
    return listed


def _are_ids(word: Any) -> bool:
    return isinstance(word, list | tuple) and all(isinstance(i, int) and i >= 0 for i in word)


def _too_few(lm: LM, n: int) -> str:
    if tokenizer_of(lm) is None:
        return "there is no tokenizer to cut words with"
    return f"only {n} of our words have {PIECES[0]} to {PIECES[1]} tokens in this tokenizer, {MIN_WORDS} are needed"
