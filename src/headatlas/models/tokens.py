"""Texts as tokens: prompts with the target that should follow them, and random tokens.

Prompts that begin alike are bundled.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from headatlas.errors import BadArgument
from headatlas.models.lm import LM, Text, text_ids


@dataclass(frozen=True)
class TokenExample:
    """Token ids of a prompt, and of the target that should follow it."""

    prompt: tuple[int, ...]
    target: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.prompt) + len(self.target)


@dataclass(frozen=True)
class Bundle:
    """Prompts that begin alike, and how many tokens they share. At least the last token of each prompt is its own."""

    examples: tuple[TokenExample, ...]
    shared: int

    @property
    def rest(self) -> int:
        """Tokens of the longest one after the shared beginning; the last token of a target predicts nothing."""
        return max(map(len, self.examples)) - 1 - self.shared

    @property
    def size(self) -> int:
        """Tokens to be run."""
        return self.shared + sum(len(a) - 1 - self.shared for a in self.examples)


def encode_target(lm: LM, prompt: Text, target: Text, where: str) -> TokenExample:
    """Tokens of prompt and target as the model would see them: both are tokenized together, then split between them.

    A token that reaches across that border belongs to the target. `where` names the example in errors.
    """
    for name, text in (("prompt", prompt), ("target", target)):
        if len(text) == 0 or (isinstance(text, str) and not text.strip()):
            raise BadArgument(f"{where}: {name} is {text!r}, expected text")
    if isinstance(prompt, str) != isinstance(target, str):
        raise BadArgument(f"{where}: prompt and target must both be text or both be token ids")
    ids: list[Any]
    if isinstance(prompt, str) and isinstance(target, str):
        tokenizer = lm.tokenizer
        before, ids = (without_end(tokenizer, text) for text in (prompt, prompt + target))
        cut = next((i for i, (a, b) in enumerate(zip(before, ids, strict=False)) if a != b), min(len(before), len(ids)))
        if cut == 0:  # the first token reaches across the border: tokenize them one by one
            cut, ids = len(before), before + tokenizer(target, add_special_tokens=False)["input_ids"]
    else:
        cut, ids = len(prompt), [*prompt, *target]
        vocabulary = lm.model.get_input_embeddings().num_embeddings
        for i in ids:
            if not isinstance(i, Integral) or not 0 <= int(i) < vocabulary:
                raise BadArgument(
                    f"{where}: {i!r} is not a token id, expected whole numbers from 0 to {vocabulary - 1}"
                )
    if cut == len(ids):
        raise BadArgument(f"{where}: target is {target!r}, which has no tokens")
    limit = lm.anatomy.context
    if limit and len(ids) > limit:
        raise BadArgument(f"{where}: prompt and target are {len(ids)} tokens long, but the model's context is {limit}")
    return TokenExample(tuple(ids[:cut]), tuple(ids[cut:]))


def without_end(tokenizer: Any, text: str) -> list[int]:
    """Token ids with what the tokenizer puts before a text, such as BOS, but not what it puts after it, such as EOS."""
    ids, bare = text_ids(tokenizer, text), tokenizer(text, add_special_tokens=False)["input_ids"]
    start = next((i for i in range(len(ids) - len(bare) + 1) if ids[i : i + len(bare)] == bare), None)
    return ids if start is None else ids[: start + len(bare)]


def make_bundle(examples: Sequence[TokenExample]) -> Bundle:
    """A bundle of examples, sharing as much as they have in common."""
    prompts = [a.prompt for a in examples]
    longest = min(map(len, prompts)) - 1
    first, last = min(prompts), max(prompts)  # what these share, all share
    shared = next((i for i in range(longest) if first[i] != last[i]), longest)
    return Bundle(tuple(examples), shared if len(examples) > 1 else 0)


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
