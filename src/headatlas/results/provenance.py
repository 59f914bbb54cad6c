"""What a result was made from: enough to repeat it, and to tell whether it is still about the same model."""

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
    described = describe_weights(lm.weights, lm.name, str(lm.device))
    return described | {"dtype": str(lm.model.dtype).removeprefix("torch.")}


def describe_weights(weights: Weights, name: str, device: str) -> dict[str, Any]:
    """A model without weights, which was only planned for, has no fingerprint."""
    anatomy, embedding = weights.anatomy, weights.embedding()
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
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "schema": SCHEMA,
        "versions": {"headatlas": __version__} | {name: version(name) for name in _LIBRARIES},
    }


def flat(description: dict[str, Any]) -> dict[str, Any]:
    """A nested description as attributes a netCDF file can hold."""
    return {
        k: v
        for key, value in description.items()
        for k, v in (flat(value).items() if isinstance(value, dict) else [(key, value)])
    }
