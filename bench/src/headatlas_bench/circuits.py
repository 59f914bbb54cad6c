"""Which heads a planted function has, and which of them suffice: three kinds of model.

plain: every function has heads of its own.
spare: functions with two sets of heads, each enough (redundant), or of which one works only where the other is gone
    (backup); and heads that carry a function's answer where nothing reads it (decoys).
joint: functions that need heads that others need too (shared), or heads that only bring other heads what they use
    (relay); and heads that push a wrong answer, at several strengths (harmful).
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, combinations
from typing import Any

from headatlas_bench.functions import FUNCTIONS

Heads = list[tuple[int, int]]
Parts = tuple[str, ...]


@dataclass(frozen=True)
class Circuit:
    """A function's heads, in named parts. It works while one of the sets in `works` is there, and not otherwise.

    planting: what is special about it. decoys: heads that carry its answer to no purpose. harmful: heads that push a
    wrong answer, the one that is meant to be weakest first.
    """

    parts: Mapping[str, Heads]
    works: tuple[Parts, ...] = (("own",),)
    planting: str = "plain"
    decoys: Heads = field(default_factory=list)
    harmful: Heads = field(default_factory=list)

    @property
    def heads(self) -> Heads:
        return sorted(h for heads in self.parts.values() for h in heads)

    def heads_of(self, parts: Parts) -> Heads:
        return sorted(h for part in parts for h in self.parts[part])

    def subsets(self) -> tuple[list[Parts], list[Parts]]:
        """The sets of parts with which it works, and those with which it does not."""
        every = list(chain.from_iterable(combinations(self.parts, n) for n in range(len(self.parts) + 1)))
        working = [s for s in every if any(set(enough) <= set(s) for enough in self.works)]
        return working, [s for s in every if s not in working]

    def quiet(self, on: Parts) -> Heads:
        """Heads that write nothing where an answer is asked, while these parts are there."""
        if self.planting == "backup" and set(on) == {"first", "second"}:
            return self.parts["second"]
        return self.parts["relay"] if "relay" in on else []

    def to_dict(self) -> dict[str, Any]:
        return {
            "planting": self.planting,
            "parts": {part: named(heads) for part, heads in self.parts.items()},
            "works": [list(parts) for parts in self.works],
            "decoys": named(self.decoys),
            "harmful": named(self.harmful),
        }


def named(heads: Heads) -> list[str]:
    return [f"L{layer}.H{head}" for layer, head in heads]


@dataclass(frozen=True)
class Piece:
    """A part to be placed: so many heads in consecutive layers, all of them after another part where one is named."""

    part: str
    sizes: tuple[int, ...]
    after: str = ""


@dataclass(frozen=True)
class Plan:
    """A circuit to be placed. Parts named 'shared' are the same heads in all circuits of a model."""

    planting: str
    pieces: tuple[Piece, ...]
    works: tuple[Parts, ...] = (("own",),)
    decoys: int = 0
    harmful: int = 0
    times: int = 1  # how many times as many sequences as usual it gets in a training step


@dataclass(frozen=True)
class Kind:
    """A kind of planted model: its plans by function, and its shape."""

    plans: Mapping[str, Plan]
    layers: int = 6
    heads: int = 8
    d_head: int = 24
    d_model: int = 160
    d_mlp: int = 240
    taught: float = 0.4  # of the steps, after which guessing is taught
    dropped: float = 0.25  # of the heads outside a circuit, where keys are shared: else functions come to mind them


def _either(planting: str, size: int, decoys: int = 0, times: int = 1) -> Plan:
    second = Piece("second", (size,), after="first" if planting == "backup" else "")
    return Plan(planting, (Piece("first", (size,)), second), (("first",), ("second",)), decoys, times=times)


def _both(planting: str, first: int, own: int) -> Plan:
    return Plan(planting, (Piece(planting, (first,)), Piece("own", (own,), after=planting)), ((planting, "own"),))


def _plain(function: str) -> Plan:
    return Plan("plain", (Piece("own", FUNCTIONS[function].heads),))


KINDS = {
    "plain": Kind({f: _plain(f) for f in FUNCTIONS}, d_head=32, d_model=256, d_mlp=640, taught=0.7, dropped=0.0),
    "spare": Kind(
        {
            "Knowledge Recall": _either("backup", 2, decoys=2, times=3),
            "Decision-making": Plan("decoy", (Piece("own", (3, 2)),), decoys=2),
            "Semantic Understanding": _either("redundant", 2, decoys=2, times=2),
            "Syntactic Understanding": _either("backup", 3),
            "Math Calculation": _either("redundant", 3),
        }
    ),
    "joint": Kind(
        {
            "Knowledge Recall": Plan("harmful", (Piece("own", (2,)),), harmful=3, times=3),
            "Retrieval": _both("relay", 3, 3),
            "Decision-making": _both("shared", 3, 3),
            "Semantic Understanding": Plan("harmful", (Piece("own", (2,)),), harmful=3, times=3),
            "Syntactic Understanding": _both("shared", 3, 3),
            "Inference": _both("relay", 3, 3),
            "Math Calculation": _both("shared", 3, 3),
        }
    ),
}


def place(kind: Kind, seed: int) -> tuple[dict[str, Circuit], Heads]:
    """Circuits of every function, their heads drawn by seed, and the heads that are left."""
    draw = random.Random(seed)
    while True:
        free = [draw.sample(range(kind.heads), kind.heads) for _ in range(kind.layers)]
        placed: dict[str, Circuit] = {}
        shared: dict[str, Heads] = {}
        for function, plan in sorted(kind.plans.items(), key=lambda item: -_layers(item[1])):
            circuit = _placed(plan, free, shared, draw)
            if circuit is None:
                break
            placed[function] = circuit
            shared |= {part: heads for part, heads in circuit.parts.items() if part == "shared"}
        else:
            break
    left = sorted((layer, head) for layer in range(kind.layers) for head in free[layer])
    return {f: placed[f] for f in kind.plans}, left


def _layers(plan: Plan) -> int:
    """How many layers it needs at least: those that need many are placed first."""
    return sum(len(p.sizes) for p in plan.pieces if p.after or p is plan.pieces[0]) + bool(plan.decoys + plan.harmful)


def _placed(plan: Plan, free: list[list[int]], shared: Mapping[str, Heads], draw: random.Random) -> Circuit | None:
    """Heads for a plan, taken from those that are free; None where they do not fit."""
    parts: dict[str, Heads] = {}
    for piece in plan.pieces:
        if piece.part in shared:
            parts[piece.part] = shared[piece.part]
            continue
        lowest = 1 + max((layer for layer, _ in parts.get(piece.after, [])), default=-1)
        starts = [
            first
            for first in range(lowest, len(free) - len(piece.sizes) + 1)
            if all(len(free[first + i]) >= size for i, size in enumerate(piece.sizes))
        ]
        if not starts:
            return None
        first = draw.choice(starts)
        parts[piece.part] = sorted(
            (first + i, free[first + i].pop()) for i, size in enumerate(piece.sizes) for _ in range(size)
        )
    last = max(layer for heads in parts.values() for layer, _ in heads)
    extra: Heads = []
    for _ in range(plan.decoys + plan.harmful):  # they read the answer, so they come after it
        layers = [layer for layer in range(last + 1, len(free)) if free[layer]]
        if not layers:
            return None
        layer = draw.choice(layers)
        extra.append((layer, free[layer].pop()))
    return Circuit(parts, plan.works, plan.planting, sorted(extra[: plan.decoys]), extra[plan.decoys :])
