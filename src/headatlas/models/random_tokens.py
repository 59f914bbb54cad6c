"""Random tokens: texts without meaning, in which a head can only follow repetition."""

from typing import Any

import numpy as np

from headatlas.errors import BadArgument
from headatlas.models.lm import LM


def opening_token(lm: LM) -> int:
    """What the model's texts begin with; token 0 where it has none."""
    first = getattr(lm.model.config.get_text_config(), "bos_token_id", None)
    return first if isinstance(first, int) and first < _vocabulary(lm) else 0


def line_break(lm: LM) -> tuple[int, ...]:
    """The token that ends a line; none where the tokenizer has no such token, or the model no tokenizer."""
    tokenizer = tokenizer_of(lm)
    if tokenizer is None:
        return ()
    ids = tokenizer("\n", add_special_tokens=False)["input_ids"]
    return tuple(ids[-1:]) if ids[-1:] != [tokenizer.unk_token_id] else ()


def plain_tokens(lm: LM) -> np.ndarray:
    """Token ids that stand for text: none that is special, none past the tokenizer's last."""
    tokenizer, known = tokenizer_of(lm), _vocabulary(lm)
    special = {opening_token(lm)} | set(tokenizer.all_special_ids if tokenizer is not None else ())
    return np.setdiff1d(np.arange(known if tokenizer is None else min(known, len(tokenizer))), sorted(special))


def tokenizer_of(lm: LM) -> Any | None:
    """The tokenizer, or None."""
    try:
        return lm.tokenizer
    except BadArgument:
        return None


def _vocabulary(lm: LM) -> int:
    return int(lm.model.get_input_embeddings().num_embeddings)
