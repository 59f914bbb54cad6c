"""Models whose heads' functions are known because they were planted: what every method is measured against (docs/benchmark.md)."""
