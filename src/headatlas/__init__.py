"""Maps of what every attention head of a language model does: the public names of HeadAtlas.

Every method is also a function of this module. Names are imported on first use, because torch takes seconds to import
and `headatlas --help` should not.
"""

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headatlas import figures
    from headatlas.comparison.compare import compare
    from headatlas.edits.edit import edit
    from headatlas.edits.measure import evaluate
    from headatlas.errors import HeadAtlasError
    from headatlas.evidence.transfer import transfer
    from headatlas.exchange.exporting import export
    from headatlas.exchange.importing import import_scores
    from headatlas.live.view import view
    from headatlas.methods.method import Measure, Part, Truth, Work, method
    from headatlas.models.lm import LM
    from headatlas.models.loading import load
    from headatlas.models.weights import Weights
    from headatlas.results.atlas import Atlas, open
    from headatlas.runs.one_test import test
    from headatlas.runs.run import run

__version__ = "0.3.0.dev0"
__all__ = [
    "LM",
    "Atlas",
    "HeadAtlasError",
    "Measure",
    "Part",
    "Truth",
    "Weights",
    "Work",
    "compare",
    "edit",
    "evaluate",
    "export",
    "figures",
    "import_scores",
    "load",
    "method",
    "open",
    "run",
    "test",
    "transfer",
    "view",
]

_MODULE_OF = {
    "LM": "models.lm",
    "Atlas": "results.atlas",
    "HeadAtlasError": "errors",
    "Measure": "methods.method",
    "Part": "methods.method",
    "Truth": "methods.method",
    "Weights": "models.weights",
    "Work": "methods.method",
    "compare": "comparison.compare",
    "edit": "edits.edit",
    "evaluate": "edits.measure",
    "export": "exchange.exporting",
    "import_scores": "exchange.importing",
    "load": "models.loading",
    "method": "methods.method",
    "open": "results.atlas",
    "run": "runs.run",
    "test": "runs.one_test",
    "transfer": "evidence.transfer",
    "view": "live.view",
}


def __getattr__(name: str) -> Any:
    if name == "figures":
        return import_module("headatlas.figures")
    if name in _MODULE_OF:
        return getattr(import_module(f"headatlas.{_MODULE_OF[name]}"), name)
    if name == "benchmark":
        raise AttributeError("headatlas.benchmark is now headatlas_bench.benchmark, in the package headatlas-bench")
    if name.startswith("_") or name not in import_module("headatlas.methods").method_names():
        raise AttributeError(f"module 'headatlas' has no attribute {name!r}")
    return _method_function(name)


@cache
def _method_function(name: str) -> Any:
    """Make the public function of a method."""
    method = import_module("headatlas.methods").get_method(name)
    return import_module("headatlas.runs.public_call").public_call(method)


def __dir__() -> list[str]:
    return sorted([*__all__, *import_module("headatlas.methods").method_names(), "__version__"])
