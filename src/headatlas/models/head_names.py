"""Parse the names of heads, and check them against a model's config.json before the model is loaded."""

import json
import re
from collections.abc import Iterator
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headatlas.errors import BadArgument
from headatlas.models.cache import cache_folder, converted_folder
from headatlas.models.default_model import DEFAULT_MODEL, gguf_path

if TYPE_CHECKING:
    from headatlas.models.families import Anatomy


# names that configurations use for the number of layers, and of heads
LAYER_KEYS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEAD_KEYS = ("num_attention_heads", "n_head", "n_heads", "num_heads")

Head = str | tuple[int, int]


def head_numbers(name: str) -> tuple[int, int]:
    """Return (layer, head) of a name such as 'L12.H5'."""
    match = re.fullmatch(r"L(\d+)\.H(\d+)", name.strip(), re.IGNORECASE)
    if not match:
        raise BadArgument(f"head {name!r} is not a head: write it as L12.H5 (layer 12, head 5)")
    return int(match[1]), int(match[2])


def check_head(layer: int, head: int, n_layers: int, n_heads: int) -> None:
    """Check that a head is within a model's layers and heads."""
    if not (0 <= layer < n_layers and 0 <= head < n_heads):
        raise BadArgument(
            f"head L{layer}.H{head} is out of range: this model has L0 to L{n_layers - 1}, H0 to H{n_heads - 1}"
        )


def read_shape(model: str) -> tuple[int, int] | None:
    """Return a model's (number of layers, number of heads) from its config.json.

    None if the model is not on this machine as a folder, or if its configuration uses other names.
    """
    try:
        folders = [folder for folder in _folders(model) if (folder / "config.json").is_file()]
        config = json.loads((folders[0] / "config.json").read_text(encoding="utf-8")) if folders else {}
    except (OSError, ValueError, RuntimeError):
        # loading the model will raise a better error
        return None
    if not isinstance(config, dict):
        return None
    # multimodal models have a configuration inside
    nested: Any = config.get("text_config")
    text = nested if isinstance(nested, dict) else config
    sizes: list[Any] = [next((text[key] for key in keys if key in text), None) for keys in (LAYER_KEYS, HEAD_KEYS)]
    return (sizes[0], sizes[1]) if all(isinstance(n, int) for n in sizes) else None


def _folders(model: str) -> Iterator[Path]:
    """Yield the folders in which `loading` would look for a model."""
    path = gguf_path() if model == DEFAULT_MODEL else Path(model).expanduser()
    if path.suffix == ".gguf":
        if path.is_file():
            yield converted_folder(path)
        return
    yield path
    if not path.exists():
        yield cache_folder() / "models" / model


def parse_head(head: Head, anatomy: "Anatomy") -> tuple[int, int]:
    """Return (layer, head) of 'L12.H5' or (12, 5), after checking that the model has that head."""
    if isinstance(head, str):
        layer, index = head_numbers(head)
    elif is_pair(head):
        layer, index = (int(i) for i in head)
    else:
        raise BadArgument(f"head {head!r} is not a head: write it as L12.H5, or (12, 5)")
    check_head(layer, index, anatomy.n_layers, anatomy.n_heads)
    if anatomy.sites[layer] is None:
        raise BadArgument(f"head L{layer}.H{index} does not exist: layer {layer} has no attention heads")
    return layer, index


def is_pair(heads: object) -> bool:
    """Return whether a value is a pair of whole numbers, such as (12, 5)."""
    return isinstance(heads, tuple) and len(heads) == 2 and all(isinstance(i, Integral) for i in heads)
