"""Models with functions planted in known heads, and the benchmark on them (docs/evidence/benchmark.md).

`benchmark` is imported on first use, so that the commands can check their arguments before torch is imported.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headatlas_bench.benchmarking import benchmark

__version__ = "0.3.0.dev0"
__all__ = ["benchmark"]


def __getattr__(name: str) -> Any:
    if name != "benchmark":
        raise AttributeError(f"module 'headatlas_bench' has no attribute {name!r}")
    from headatlas_bench.benchmarking import benchmark

    return benchmark
