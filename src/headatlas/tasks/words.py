"""Encode words as a tokenizer does in the middle of a text."""

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

ANCHOR = "the"
OPENING = "The word is"


def word_ids(tokenizer: Any, words: Sequence[str]) -> list[list[int]]:
    """Return the token ids of each word after a space; none for words that the tokenizer does not know.

    Words are encoded after another word, because tokenizers differ in how they treat a space at the start of a text.
    """
    anchor = tokenizer(ANCHOR, add_special_tokens=False)["input_ids"]
    encoded = tokenizer([f"{ANCHOR} {w}" for w in words], add_special_tokens=False)["input_ids"] if words else []
    cut = [ids[len(anchor) :] if ids[: len(anchor)] == anchor else ids for ids in encoded]
    unknown = getattr(tokenizer, "unk_token_id", None)
    return [[] if unknown in ids else ids for ids in cut]


def long_words() -> list[str]:
    """Return English words that most tokenizers split into pieces: plants, animals and things."""
    return (files("headatlas.tasks") / "data" / "words.txt").read_text(encoding="utf-8").split()


def find_opening(tokenizer: Any, opening: str | None = None) -> tuple[int, ...]:
    """Encode a text to put before a word, with the BOS token if the tokenizer adds one.

    The default is a few neutral words (docs/methods/maps.md compares openings).
    """
    text = OPENING if opening is None else opening
    full = tokenizer(text)["input_ids"]
    bare = tokenizer(text, add_special_tokens=False)["input_ids"]
    bos = [i for i in full[:1] if i == tokenizer.bos_token_id and i not in bare[:1]]
    return (*bos, *bare)
