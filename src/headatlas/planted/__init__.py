"""Models whose functions were planted in known heads, and the benchmark on them (docs/evidence/benchmark.md)."""
