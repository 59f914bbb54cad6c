"""HeadAtlas tells what every attention head of a language model does. The public surface is what stands here.

Names are imported when first used: torch takes seconds, and `headatlas --help` should not.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headatlas import figures
    from headatlas.atlas import Atlas, compare, open, run
    from headatlas.benchmarking.run import benchmark
    from headatlas.errors import HeadAtlasError
    from headatlas.models.lm import LM
    from headatlas.models.loading import load
    from headatlas.models.weights import Weights
    from headatlas.public.compare_maps import compare_maps
    from headatlas.public.dissociate import dissociate
    from headatlas.public.gate import gate
    from headatlas.public.maps import maps
    from headatlas.public.probe import probe
    from headatlas.public.salient import salient
    from headatlas.public.yardsticks import ablate, ig, pattern, taylor
    from headatlas.validation.agreement import agreement, stability

__version__ = "0.1.0"
__all__ = [
    "LM",
    "Atlas",
    "HeadAtlasError",
    "Weights",
    "ablate",
    "agreement",
    "benchmark",
    "compare",
    "compare_maps",
    "dissociate",
    "figures",
    "gate",
    "ig",
    "load",
    "maps",
    "open",
    "pattern",
    "probe",
    "run",
    "salient",
    "stability",
    "taylor",
]

_HOME = {
    "LM": "models.lm",
    "Atlas": "atlas",
    "HeadAtlasError": "errors",
    "Weights": "models.weights",
    "ablate": "public.yardsticks",
    "agreement": "validation.agreement",
    "benchmark": "benchmarking.run",
    "compare": "atlas",
    "compare_maps": "public.compare_maps",
    "dissociate": "public.dissociate",
    "gate": "public.gate",
    "ig": "public.yardsticks",
    "load": "models.loading",
    "maps": "public.maps",
    "open": "atlas",
    "pattern": "public.yardsticks",
    "probe": "public.probe",
    "run": "atlas",
    "salient": "public.salient",
    "stability": "validation.agreement",
    "taylor": "public.yardsticks",
}


def __getattr__(name: str) -> Any:
    if name == "figures":
        return import_module("headatlas.figures")
    if name not in _HOME:
        raise AttributeError(f"module 'headatlas' has no attribute {name!r}")
    return getattr(import_module(f"headatlas.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
