"""Record what a result was made from: enough to repeat it, and to see whether a model is still the same."""

import platform
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from headatlas import __version__
from headatlas.models.lm import LM
from headatlas.models.weights import Weights
from headatlas.results.store import SCHEMA

_LIBRARIES = ("torch", "transformers", "numpy", "xarray")


def describe_model(lm: LM) -> dict[str, Any]:
    """Describe a loaded model."""
    description = describe_weights(lm.weights, lm.name, str(lm.device))
    return description | {"dtype": str(lm.model.dtype).removeprefix("torch.")}


def describe_weights(weights: Weights, name: str, device: str) -> dict[str, Any]:
    """Describe the weights of a model.

    The fingerprint is empty for a model that was opened without weights, to plan a run.
    """
    anatomy = weights.anatomy
    embedding = weights.embedding()
    return {
        "name": name,
        "family": anatomy.family,
        "family_tested": anatomy.tested,
        "fingerprint": "" if embedding.is_meta else weights.fingerprint(),
        "dtype": str(embedding.dtype).removeprefix("torch."),
        "device": device,
        "n_layers": anatomy.n_layers,
        "n_heads": anatomy.n_heads,
        "n_kv_heads": anatomy.n_kv_heads,
        "d_head": anatomy.d_head,
        "d_model": anatomy.d_model,
        "layers_without_heads": anatomy.layers_without_heads,
    }


def describe_run() -> dict[str, Any]:
    """Describe a run: its time and the versions of the libraries."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "schema": SCHEMA,
        "versions": {"headatlas": __version__} | {name: version(name) for name in _LIBRARIES},
    }


def flat(description: dict[str, Any]) -> dict[str, Any]:
    """Flatten a nested description to attributes, as netCDF files hold no nested ones."""
    return {
        k: v
        for key, value in description.items()
        for k, v in (flat(value).items() if isinstance(value, dict) else [(key, value)])
    }
