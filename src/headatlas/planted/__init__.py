"""Models whose heads' functions are known because they were planted, and the benchmark on them (docs/benchmark.md)."""
