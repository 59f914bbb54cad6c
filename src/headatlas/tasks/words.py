"""Words as a tokenizer sees them in the middle of a text."""

from collections.abc import Sequence
from typing import Any

ANCHOR = "the"


def word_ids(tokenizer: Any, words: Sequence[str]) -> list[list[int]]:
    """Token ids of each word behind a space; none for a word the tokenizer does not know.

    Encoded after another word and cut off, because tokenizers differ in what they do with a space at the start of a text.
    """
    anchor = tokenizer(ANCHOR, add_special_tokens=False)["input_ids"]
    encoded = tokenizer([f"{ANCHOR} {w}" for w in words], add_special_tokens=False)["input_ids"] if words else []
    cut = [ids[len(anchor) :] if ids[: len(anchor)] == anchor else ids for ids in encoded]
    unknown = getattr(tokenizer, "unk_token_id", None)
    return [[] if unknown in ids else ids for ids in cut]
