"""Questions from a page, checked. Access is checked in `server.py`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headatlas.errors import BadArgument, brief, check_count
from headatlas.models.lm import LM

MAX_PROMPT = 100_000  # characters
MAX_TARGET = 200  # characters or tokens of an answer
MAX_SCALE = 2.0
MAX_DRAWS = 200
MAX_NEW = 200  # tokens of a continuation

Target = str | tuple[int, ...]
"""An answer as text, or as token ids."""


@dataclass(frozen=True)
class Question:
    """A question about a prompt.

    heads: (layer, head, scale) of every switched head. target, other: the answer, and the answer to compare it with.
    """

    prompt: str
    heads: tuple[tuple[int, int, float], ...] = ()
    target: Target = ""
    other: Target = ""
    layer: int = 0
    head: int = 0
    token: int = -1
    draws: int = 20
    seed: int = 0
    new: int = 24

    def gate(self, lm: LM) -> Tensor:
        """Return the factor of every head: [layer, head]."""
        gate = torch.ones(lm.n_layers, lm.n_heads)
        for layer, head, scale in self.heads:
            gate[layer, head] = scale
        return gate


def read_question(lm: LM, values: Mapping[str, Any]) -> Question:
    """Read a question from JSON. Raises BadArgument if a part is unknown, missing or out of range."""
    fields = set(Question.__dataclass_fields__)
    if unknown := sorted(set(values) - fields):
        choices = ", ".join(sorted(fields))
        raise BadArgument(f"{brief(unknown[0])} is not a part of a question, expected some of {choices}")
    prompt = values.get("prompt")
    if not isinstance(prompt, str) or not prompt:
        raise BadArgument(f"prompt is {brief(prompt)}, expected text")
    if len(prompt) > MAX_PROMPT:
        raise BadArgument(f"prompt has {len(prompt):,} characters, expected at most {MAX_PROMPT:,}")
    limits = {
        "layer": (0, lm.n_layers - 1),
        "head": (0, lm.n_heads - 1),
        "token": (-1, MAX_PROMPT),
        "draws": (1, MAX_DRAWS),
        "seed": (0, 2**31),
        "new": (1, MAX_NEW),
    }
    numbers = {name: check_count(name, values[name], *limits[name]) for name in limits if name in values}
    targets = {name: _target(lm, name, values[name]) for name in ("target", "other") if name in values}
    checked: dict[str, Any] = {"heads": _heads(lm, values.get("heads", ())), **targets, **numbers}
    return Question(prompt, **checked)


def _heads(lm: LM, heads: Any) -> tuple[tuple[int, int, float], ...]:
    if not isinstance(heads, (list, tuple)) or len(heads) > lm.n_layers * lm.n_heads:
        raise BadArgument(f"heads is {brief(heads)}, expected a list of [layer, head, scale]")
    switched: dict[tuple[int, int], float] = {}
    for entry in heads:
        if not isinstance(entry, (list, tuple)) or len(entry) != 3:
            raise BadArgument(f"heads has {brief(entry)}, expected [layer, head, scale]")
        layer = check_count("layer of heads", entry[0], 0, lm.n_layers - 1)
        head = check_count("head of heads", entry[1], 0, lm.n_heads - 1)
        scale = entry[2]
        if lm.anatomy.sites[layer] is None:
            raise BadArgument(f"heads has L{layer}.H{head}, but layer {layer} has no attention heads")
        is_number = isinstance(scale, (int, float)) and not isinstance(scale, bool)
        # The comparison is false for NaN, too.
        if not is_number or not 0 <= scale <= MAX_SCALE:
            raise BadArgument(f"scale of L{layer}.H{head} is {brief(scale)}, expected a number from 0 to {MAX_SCALE}")
        # Without the sign of -0.0.
        switched[layer, head] = abs(float(scale))
    return tuple((layer, head, scale) for (layer, head), scale in sorted(switched.items()) if scale != 1)


def _target(lm: LM, name: str, target: Any) -> Target:
    if isinstance(target, str) and len(target) <= MAX_TARGET:
        return target
    if isinstance(target, (list, tuple)) and 0 < len(target) <= MAX_TARGET:
        vocabulary = lm.model.get_input_embeddings().num_embeddings
        return tuple(check_count(f"token of {name}", i, 0, vocabulary - 1) for i in target)
    raise BadArgument(f"{name} is {brief(target)}, expected text or token ids, at most {MAX_TARGET}")
