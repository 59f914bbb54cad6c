"""What methods are asked on models with spare, shared, relaying and harmful heads: which heads must come first."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headatlas_bench.circuits import Circuit, Heads
from headatlas_bench.known import Truth


@dataclass(frozen=True)
class Exam:
    """Of one subject: the heads that must come first. `unsure` heads are neither right nor wrong.

    marks: how many of a map's highest heads count as marked; 0: as many as must come first. strength: of each head, how
    strong it is, where they differ.
    """

    heads: Heads
    unsure: Sequence[tuple[int, int]] = ()
    marks: int = 0
    strength: Sequence[float] = ()


def exams_of(
    truth: Truth, measured: Mapping[str, Mapping[str, Any]], shape: tuple[int, int]
) -> dict[tuple[str, str], dict[str, Exam]]:
    """(kind of truth, name of the exam) → exams by function. measured: what `measure_functions` says."""
    exams: dict[tuple[str, str], dict[str, Exam]] = {}
    for function, circuit in truth.circuits.items():
        for kind, name, exam in _of_circuit(circuit, measured[function], shape):
            exams.setdefault((kind, name), {})[function] = exam
    return exams


def _of_circuit(
    circuit: Circuit, measured: Mapping[str, Any], shape: tuple[int, int]
) -> Iterator[tuple[str, str, Exam]]:
    parts, every = circuit.parts, circuit.heads
    least = min(len(circuit.heads_of(enough)) for enough in circuit.works)
    everywhere = [(layer, head) for layer in range(shape[0]) for head in range(shape[1])]
    if circuit.planting in ("redundant", "backup"):
        yield "functions", f"{circuit.planting}: both sets", Exam(every)
    if circuit.planting == "backup":
        yield "functions", "backup: the second set", Exam(parts["second"], unsure=parts["first"])
    if circuit.planting == "shared":
        yield "functions", "shared: all it needs", Exam(every)
        yield "functions", "shared: the shared", Exam(parts["shared"], unsure=parts["own"])
        others = [head for head in everywhere if head not in every]
        yield "functions", "shared: its own before the shared", Exam(parts["own"], unsure=others)
    if circuit.planting == "relay":
        yield "functions", "relay: all it needs", Exam(every)
        yield "functions", "relay: the relays", Exam(parts["relay"], unsure=parts["own"])
    if circuit.decoys:
        if circuit.planting == "decoy":
            yield "functions", "decoy: its own", Exam(every)
        yield "functions", "decoy: the decoys", Exam(circuit.decoys, unsure=every, marks=least)
    if circuit.harmful:
        yield "functions", "harmful: its own", Exam(every)
        yield "interference", "harmful: the harmful", Exam(circuit.harmful, strength=measured["harm"])
