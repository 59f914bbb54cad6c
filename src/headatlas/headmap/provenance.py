"""What a result was made from: enough to repeat it, and to tell whether it is still about the same model."""

import platform
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from headatlas import __version__
from headatlas.models.lm import LM

_LIBRARIES = ("torch", "transformers", "numpy", "xarray")


def describe_model(lm: LM) -> dict[str, Any]:
    return {
        "name": lm.name,
        "family": lm.anatomy.family,
        "family_tested": lm.anatomy.tested,
        "fingerprint": lm.fingerprint(),
        "dtype": str(lm.model.dtype).removeprefix("torch."),
        "device": str(lm.device),
        "n_layers": lm.n_layers,
        "n_heads": lm.n_heads,
        "n_kv_heads": lm.n_kv_heads,
        "d_head": lm.d_head,
        "d_model": lm.d_model,
        "layers_without_heads": lm.layers_without_heads,
    }


def describe_run() -> dict[str, Any]:
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "versions": {"headatlas": __version__} | {name: version(name) for name in _LIBRARIES},
    }


def flat(description: dict[str, Any]) -> dict[str, Any]:
    """A nested description as attributes a netCDF file can hold."""
    return {
        k: v
        for key, value in description.items()
        for k, v in (flat(value).items() if isinstance(value, dict) else [(key, value)])
    }
