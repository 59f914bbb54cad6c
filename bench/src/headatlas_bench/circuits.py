"""Circuits of planted functions: their heads, and which of them suffice. There are three kinds of model.

plain: every function has separate heads.
spare: functions with two sets of heads, each of which suffices (redundant), or of which one works only when the other
    is removed (backup); and heads whose output holds a function's answer but is not used (decoys).
joint: functions that share needed heads with others (shared), or need heads that only pass information to other heads
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
    """A function's heads, in named parts. It works if and only if one of `sufficient_sets` is present.

    planting: what is special about it. decoys: heads whose output holds its answer but is not used. harmful: heads that
    push a wrong answer, in order of increasing strength.
    """

    parts: Mapping[str, Heads]
    sufficient_sets: tuple[Parts, ...] = (("own",),)
    planting: str = "plain"
    decoys: Heads = field(default_factory=list)
    harmful: Heads = field(default_factory=list)

    @property
    def heads(self) -> Heads:
        return sorted(h for heads in self.parts.values() for h in heads)

    def heads_of(self, parts: Parts) -> Heads:
        return sorted(h for part in parts for h in self.parts[part])

    def subsets(self) -> tuple[list[Parts], list[Parts]]:
        """Return the sets of parts with which it works, and those with which it does not."""
        all_sets = list(chain.from_iterable(combinations(self.parts, n) for n in range(len(self.parts) + 1)))
        working = [s for s in all_sets if any(set(sufficient) <= set(s) for sufficient in self.sufficient_sets)]
        return working, [s for s in all_sets if s not in working]

    def quiet_heads(self, present: Parts) -> Heads:
        """Return the heads that must write nothing at answers while these parts are present."""
        if self.planting == "backup" and set(present) == {"first", "second"}:
            return self.parts["second"]
        return self.parts["relay"] if "relay" in present else []

    def to_dict(self) -> dict[str, Any]:
        return {
            "planting": self.planting,
            "parts": {part: head_names(heads) for part, heads in self.parts.items()},
            "works": [list(parts) for parts in self.sufficient_sets],
            "decoys": head_names(self.decoys),
            "harmful": head_names(self.harmful),
        }


def head_names(heads: Heads) -> list[str]:
    return [f"L{layer}.H{head}" for layer, head in heads]


@dataclass(frozen=True)
class PlannedPart:
    """A part to place: the number of heads in each of some consecutive layers, after another part if one is named."""

    part: str
    sizes: tuple[int, ...]
    after: str = ""


@dataclass(frozen=True)
class CircuitPlan:
    """A circuit to place. Parts named 'shared' are the same heads in all circuits of a model.

    sequence_factor: factor on the number of its sequences in a training step.
    """

    planting: str
    parts: tuple[PlannedPart, ...]
    sufficient_sets: tuple[Parts, ...] = (("own",),)
    decoys: int = 0
    harmful: int = 0
    sequence_factor: int = 1


@dataclass(frozen=True)
class ModelDesign:
    """A kind of planted model: the plan of every function, and the model's shape.

    guessing_from: share of the training steps after which guessing is taught. outside_dropout: share of the heads
    outside a circuit that are shut at random where keys are shared; otherwise functions learn to depend on them.
    """

    plans: Mapping[str, CircuitPlan]
    layers: int = 6
    heads: int = 8
    d_head: int = 24
    d_model: int = 160
    d_mlp: int = 240
    guessing_from: float = 0.4
    outside_dropout: float = 0.25


def _plan_alternatives(planting: str, size: int, decoys: int = 0, sequence_factor: int = 1) -> CircuitPlan:
    second = PlannedPart("second", (size,), after="first" if planting == "backup" else "")
    return CircuitPlan(
        planting,
        (PlannedPart("first", (size,)), second),
        (("first",), ("second",)),
        decoys,
        sequence_factor=sequence_factor,
    )


def _plan_joint(planting: str, first: int, own: int) -> CircuitPlan:
    return CircuitPlan(
        planting, (PlannedPart(planting, (first,)), PlannedPart("own", (own,), after=planting)), ((planting, "own"),)
    )


def _plan_plain(function: str) -> CircuitPlan:
    return CircuitPlan("plain", (PlannedPart("own", FUNCTIONS[function].heads),))


DESIGNS = {
    "plain": ModelDesign(
        {f: _plan_plain(f) for f in FUNCTIONS},
        d_head=32,
        d_model=256,
        d_mlp=640,
        guessing_from=0.7,
        outside_dropout=0.0,
    ),
    "spare": ModelDesign(
        {
            "Knowledge Recall": _plan_alternatives("backup", 2, decoys=2, sequence_factor=3),
            "Decision-making": CircuitPlan("decoy", (PlannedPart("own", (3, 2)),), decoys=2),
            "Semantic Understanding": _plan_alternatives("redundant", 2, decoys=2, sequence_factor=2),
            "Syntactic Understanding": _plan_alternatives("backup", 3),
            "Math Calculation": _plan_alternatives("redundant", 3),
        }
    ),
    "joint": ModelDesign(
        {
            "Knowledge Recall": CircuitPlan("harmful", (PlannedPart("own", (2,)),), harmful=3, sequence_factor=3),
            "Retrieval": _plan_joint("relay", 3, 3),
            "Decision-making": _plan_joint("shared", 3, 3),
            "Semantic Understanding": CircuitPlan("harmful", (PlannedPart("own", (2,)),), harmful=3, sequence_factor=3),
            "Syntactic Understanding": _plan_joint("shared", 3, 3),
            "Inference": _plan_joint("relay", 3, 3),
            "Math Calculation": _plan_joint("shared", 3, 3),
        }
    ),
}


def place_circuits(design: ModelDesign, seed: int) -> tuple[dict[str, Circuit], Heads]:
    """Draw the heads of every circuit by seed. Returns the circuits and the heads that are left."""
    generator = random.Random(seed)
    # Random placement can run out of layers; then it starts again.
    while True:
        free_heads = [generator.sample(range(design.heads), design.heads) for _ in range(design.layers)]
        placed: dict[str, Circuit] = {}
        shared: dict[str, Heads] = {}
        for function, plan in sorted(design.plans.items(), key=lambda item: -_min_layers(item[1])):
            circuit = _place_circuit(plan, free_heads, shared, generator)
            if circuit is None:
                break
            placed[function] = circuit
            shared |= {part: heads for part, heads in circuit.parts.items() if part == "shared"}
        else:
            break
    background = sorted((layer, head) for layer in range(design.layers) for head in free_heads[layer])
    return {f: placed[f] for f in design.plans}, background


def _min_layers(plan: CircuitPlan) -> int:
    """Return the minimum number of layers that a plan needs; plans that need most are placed first."""
    return sum(len(p.sizes) for p in plan.parts if p.after or p is plan.parts[0]) + bool(plan.decoys + plan.harmful)


def _place_circuit(
    plan: CircuitPlan, free_heads: list[list[int]], shared: Mapping[str, Heads], generator: random.Random
) -> Circuit | None:
    """Take heads for a plan from the free ones; None if they do not fit."""
    placed_parts: dict[str, Heads] = {}
    for planned in plan.parts:
        if planned.part in shared:
            placed_parts[planned.part] = shared[planned.part]
            continue
        min_layer = 1 + max((layer for layer, _ in placed_parts.get(planned.after, [])), default=-1)
        starts = [
            start
            for start in range(min_layer, len(free_heads) - len(planned.sizes) + 1)
            if all(len(free_heads[start + i]) >= size for i, size in enumerate(planned.sizes))
        ]
        if not starts:
            return None
        start = generator.choice(starts)
        placed_parts[planned.part] = sorted(
            (start + i, free_heads[start + i].pop()) for i, size in enumerate(planned.sizes) for _ in range(size)
        )
    last_layer = max(layer for heads in placed_parts.values() for layer, _ in heads)
    extra_heads: Heads = []
    # Decoys and harmful heads read the answer, so they come after the circuit.
    for _ in range(plan.decoys + plan.harmful):
        layers = [layer for layer in range(last_layer + 1, len(free_heads)) if free_heads[layer]]
        if not layers:
            return None
        layer = generator.choice(layers)
        extra_heads.append((layer, free_heads[layer].pop()))
    return Circuit(
        placed_parts,
        plan.sufficient_sets,
        plan.planting,
        sorted(extra_heads[: plan.decoys]),
        extra_heads[plan.decoys :],
    )
