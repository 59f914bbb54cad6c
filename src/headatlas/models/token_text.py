"""Decode tokens from inside a longer text."""

from collections.abc import Sequence
from typing import Any

WORD_START = "▁"  # SentencePiece's space


def text_inside(tokenizer: Any, tokens: Sequence[int], **options: Any) -> str:
    """Decode tokens that follow others, and keep a space before the first word.

    Decoders of SentencePiece models such as Llama 2 drop one space at the start of whatever they decode, so that
    " dog" and "dog" look alike. The first token's piece still has it.

    Args:
        tokenizer: a tokenizer of transformers.
        tokens: token ids.
        options: options of the tokenizer's `decode`.
    """
    text: str = tokenizer.decode(tokens, **options)
    first = tokenizer.convert_ids_to_tokens(tokens[0]) if len(tokens) else None
    if not isinstance(first, str) or not first.startswith(WORD_START):
        return text
    return first.replace(WORD_START, " ") + text[len(tokenizer.decode(tokens[:1], **options)) :]
