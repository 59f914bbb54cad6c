"""What a question from a page may contain, checked. Who may ask is checked in `server.py`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headatlas.errors import BadArgument, brief, check_count
from headatlas.models.lm import LM

MOST_TEXT = 100_000  # characters of a prompt
MOST_TARGET = 200  # characters or tokens of an answer
MOST_SCALE = 2.0
MOST_DRAWS = 200
MOST_NEW = 200  # tokens of a continuation

Target = str | tuple[int, ...]
"""An answer as text, or as token ids."""


@dataclass(frozen=True)
class Question:
    """heads: (layer, head, scale) of every head that is switched. target, other: the answer, and one against it."""

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
        """[layer, head]."""
        gate = torch.ones(lm.n_layers, lm.n_heads)
        for layer, head, scale in self.heads:
            gate[layer, head] = scale
        return gate


def read_question(lm: LM, values: Mapping[str, Any]) -> Question:
    """A question from JSON; what is wrong with it is said in one line."""
    known = set(Question.__dataclass_fields__)
    if unknown := sorted(set(values) - known):
        raise BadArgument(f"{brief(unknown[0])} is no part of a question, expected some of {', '.join(sorted(known))}")
    prompt = values.get("prompt")
    if not isinstance(prompt, str) or not prompt:
        raise BadArgument(f"prompt is {brief(prompt)}, expected text")
    if len(prompt) > MOST_TEXT:
        raise BadArgument(f"prompt has {len(prompt):,} characters, expected at most {MOST_TEXT:,}")
    limits = {
        "layer": (0, lm.n_layers - 1),
        "head": (0, lm.n_heads - 1),
        "token": (-1, MOST_TEXT),
        "draws": (1, MOST_DRAWS),
        "seed": (0, 2**31),
        "new": (1, MOST_NEW),
    }
    numbers = {name: check_count(name, values[name], *limits[name]) for name in limits if name in values}
    targets = {name: _target(lm, name, values[name]) for name in ("target", "other") if name in values}
    checked: dict[str, Any] = {"heads": _heads(lm, values.get("heads", ())), **targets, **numbers}
    return Question(prompt, **checked)


def _heads(lm: LM, heads: Any) -> tuple[tuple[int, int, float], ...]:
    if not isinstance(heads, (list, tuple)) or len(heads) > lm.n_layers * lm.n_heads:
        raise BadArgument(f"heads is {brief(heads)}, expected a list of [layer, head, scale]")
    switched: dict[tuple[int, int], float] = {}
    for one in heads:
        if not isinstance(one, (list, tuple)) or len(one) != 3:
            raise BadArgument(f"heads has {brief(one)}, expected [layer, head, scale]")
        layer = check_count("layer of heads", one[0], 0, lm.n_layers - 1)
        head = check_count("head of heads", one[1], 0, lm.n_heads - 1)
        if lm.anatomy.sites[layer] is None:
            raise BadArgument(f"heads has L{layer}.H{head}, but layer {layer} has no attention heads")
        number = isinstance(one[2], (int, float)) and not isinstance(one[2], bool)
        if not number or not 0 <= one[2] <= MOST_SCALE:  # NaN is not, either
            raise BadArgument(f"scale of L{layer}.H{head} is {brief(one[2])}, expected a number from 0 to {MOST_SCALE}")
        switched[layer, head] = abs(float(one[2]))  # -0.0 is 0
    return tuple((layer, head, scale) for (layer, head), scale in sorted(switched.items()) if scale != 1)


def _target(lm: LM, name: str, target: Any) -> Target:
    if isinstance(target, str) and len(target) <= MOST_TARGET:
        return target
    if isinstance(target, (list, tuple)) and 0 < len(target) <= MOST_TARGET:
        vocabulary = lm.model.get_input_embeddings().num_embeddings
        return tuple(check_count(f"token of {name}", i, 0, vocabulary - 1) for i in target)
    raise BadArgument(f"{name} is {brief(target)}, expected text or token ids, at most {MOST_TARGET}")
