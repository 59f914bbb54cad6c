"""Texts as tokens: prompts with their targets, bundles of prompts that begin the same, and special tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from headatlas.errors import BadArgument
from headatlas.models.lm import LM, Text, text_ids


@dataclass(frozen=True)
class TokenExample:
    """Token ids of a prompt and of its target, whose probability after the prompt is measured."""

    prompt: tuple[int, ...]
    target: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.prompt) + len(self.target)


@dataclass(frozen=True)
class Bundle:
    """Examples whose prompts begin the same.

    Args:
        shared: number of tokens at the beginning that they share. The last token of a prompt is never shared.
    """

    examples: tuple[TokenExample, ...]
    shared: int

    @property
    def rest(self) -> int:
        """Number of tokens of the longest example after the shared beginning, without the target's last token.

        That token predicts nothing, so it is not run.
        """
        return max(map(len, self.examples)) - 1 - self.shared

    @property
    def size(self) -> int:
        """Number of tokens that are run if the shared beginning is run once."""
        return self.shared + sum(len(a) - 1 - self.shared for a in self.examples)


def encode_target(lm: LM, prompt: Text, target: Text, where: str) -> TokenExample:
    """Return the tokens of prompt and target as the model would see them: tokenized together, then split.

    A token with characters of both belongs to the target.

    Args:
        where: names the example in errors.
    """
    for name, text in (("prompt", prompt), ("target", target)):
        if len(text) == 0 or (isinstance(text, str) and not text.strip()):
            raise BadArgument(f"{where}: {name} is {text!r}, expected text")
    if isinstance(prompt, str) != isinstance(target, str):
        raise BadArgument(f"{where}: prompt and target must both be text or both be token ids")
    ids: list[Any]
    if isinstance(prompt, str) and isinstance(target, str):
        tokenizer = lm.tokenizer
        prompt_ids = without_end(tokenizer, prompt)
        ids = without_end(tokenizer, prompt + target)
        pairs = enumerate(zip(prompt_ids, ids, strict=False))
        cut = next((i for i, (a, b) in pairs if a != b), min(len(prompt_ids), len(ids)))
        if cut == 0:
            # even the first token has characters of both: tokenize them separately
            cut = len(prompt_ids)
            ids = prompt_ids + tokenizer(target, add_special_tokens=False)["input_ids"]
    else:
        cut = len(prompt)
        ids = [*prompt, *target]
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
    """Return token ids with the special tokens that a tokenizer adds before a text (BOS), not those after it (EOS)."""
    ids = text_ids(tokenizer, text)
    plain_ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    n = len(plain_ids)
    start = next((i for i in range(len(ids) - n + 1) if ids[i : i + n] == plain_ids), None)
    return ids if start is None else ids[: start + n]


def make_bundle(examples: Sequence[TokenExample]) -> Bundle:
    """Return a bundle of examples, which shares the longest beginning that their prompts have in common."""
    prompts = [a.prompt for a in examples]
    max_shared = min(map(len, prompts)) - 1
    # in sorted order, what the first and the last prompt share, all prompts share
    first = min(prompts)
    last = max(prompts)
    shared = next((i for i in range(max_shared) if first[i] != last[i]), max_shared)
    return Bundle(tuple(examples), shared if len(examples) > 1 else 0)


def opening_token(lm: LM) -> int:
    """Return the token with which the model's texts begin (BOS); 0 if it has none."""
    first = getattr(lm.model.config.get_text_config(), "bos_token_id", None)
    return first if isinstance(first, int) and first < _vocabulary(lm) else 0


def line_break(lm: LM) -> tuple[int, ...]:
    """Return the token that ends a line; empty if the model has no tokenizer, or its tokenizer no such token."""
    tokenizer = tokenizer_of(lm)
    if tokenizer is None:
        return ()
    ids = tokenizer("\n", add_special_tokens=False)["input_ids"]
    return tuple(ids[-1:]) if ids[-1:] != [tokenizer.unk_token_id] else ()


def plain_tokens(lm: LM) -> np.ndarray:
    """Return the token ids of text: without special tokens, and without ids that the tokenizer does not use."""
    tokenizer = tokenizer_of(lm)
    special = {opening_token(lm)} | set(tokenizer.all_special_ids if tokenizer is not None else ())
    size = _vocabulary(lm) if tokenizer is None else min(_vocabulary(lm), len(tokenizer))
    return np.setdiff1d(np.arange(size), sorted(special))


def tokenizer_of(lm: LM) -> Any | None:
    """Return the model's tokenizer; None if it has none."""
    try:
        return lm.tokenizer
    except BadArgument:
        return None


def _vocabulary(lm: LM) -> int:
    """Return the number of the model's token ids, which may be more than its tokenizer uses."""
    return int(lm.model.get_input_embeddings().num_embeddings)
