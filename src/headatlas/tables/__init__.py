"""Results as rows of plain values, for the terminal and for JSON."""

from headatlas.tables.atlas import (
    compared,
    estimate,
    estimate_in_words,
    evidence,
    evidence_in_words,
    heads,
    plan,
    removals,
    standings,
    warnings,
)
from headatlas.tables.benchmark import benchmark, real
from headatlas.tables.methods import (
    categories,
    checks,
    contrast,
    dissociations,
    effects,
    gates,
    maps_compared,
    operations,
    patterns,
    probes,
    relations,
)

__all__ = [
    "benchmark",
    "categories",
    "checks",
    "compared",
    "contrast",
    "dissociations",
    "effects",
    "estimate",
    "estimate_in_words",
    "evidence",
    "evidence_in_words",
    "gates",
    "heads",
    "maps_compared",
    "operations",
    "patterns",
    "plan",
    "probes",
    "real",
    "relations",
    "removals",
    "standings",
    "warnings",
]
