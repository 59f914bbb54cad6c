"""Exams on models with spare, shared, relay and harmful heads: which heads a map must rank first."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headatlas_bench.circuits import Circuit, Heads
from headatlas_bench.ground_truth import Truth


@dataclass(frozen=True)
class Exam:
    """The heads that a map of one subject must rank first.

    unsure: heads that count as neither right nor wrong. marks: number of top heads that count as marked (0: the number
    of `heads`). strength: the strength of each of `heads`, where they differ.
    """

    heads: Heads
    unsure: Sequence[tuple[int, int]] = ()
    marks: int = 0
    strength: Sequence[float] = ()


def list_exams(
    truth: Truth, measured: Mapping[str, Mapping[str, Any]], shape: tuple[int, int]
) -> dict[tuple[str, str], dict[str, Exam]]:
    """Return (kind of truth, name of the exam) → exams by function. measured: the result of `measure_functions`."""
    exams: dict[tuple[str, str], dict[str, Exam]] = {}
    for function, circuit in truth.circuits.items():
        for kind, name, exam in _circuit_exams(circuit, measured[function], shape):
            exams.setdefault((kind, name), {})[function] = exam
    return exams


def _circuit_exams(
    circuit: Circuit, measured: Mapping[str, Any], shape: tuple[int, int]
) -> Iterator[tuple[str, str, Exam]]:
    parts = circuit.parts
    all_heads = circuit.heads
    min_heads = min(len(circuit.heads_of(enough)) for enough in circuit.sufficient_sets)
    everywhere = [(layer, head) for layer in range(shape[0]) for head in range(shape[1])]
    if circuit.planting in ("redundant", "backup"):
        yield "functions", f"{circuit.planting}: both sets", Exam(all_heads)
    if circuit.planting == "backup":
        yield "functions", "backup: the second set", Exam(parts["second"], unsure=parts["first"])
    if circuit.planting == "shared":
        yield "functions", "shared: all it needs", Exam(all_heads)
        yield "functions", "shared: the shared", Exam(parts["shared"], unsure=parts["own"])
        others = [head for head in everywhere if head not in all_heads]
        yield "functions", "shared: its own before the shared", Exam(parts["own"], unsure=others)
    if circuit.planting == "relay":
        yield "functions", "relay: all it needs", Exam(all_heads)
        yield "functions", "relay: the relays", Exam(parts["relay"], unsure=parts["own"])
    if circuit.decoys:
        if circuit.planting == "decoy":
            yield "functions", "decoy: its own", Exam(all_heads)
        yield "functions", "decoy: the decoys", Exam(circuit.decoys, unsure=all_heads, marks=min_heads)
    if circuit.harmful:
        yield "functions", "harmful: its own", Exam(all_heads)
        yield "interference", "harmful: the harmful", Exam(circuit.harmful, strength=measured["harm"])
