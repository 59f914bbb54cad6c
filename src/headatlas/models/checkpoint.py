"""Tensors straight from safetensors files, by name, one at a time. Nothing is loaded that is not asked for."""

import hashlib
import json
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from headatlas.errors import BadFile, one_line
from headatlas.models.cache import sampled_hash

_OTHER_TOWERS = ("vision", "visual", "image", "audio", "speech")


class Checkpoint:
    """A folder with model.safetensors, or with shards and model.safetensors.index.json."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
        if index.is_file():
            try:
                shards: dict[str, str] = json.loads(index.read_text())["weight_map"]
            except (ValueError, KeyError, TypeError) as e:
                raise BadFile(f"{index} is not a safetensors index: {one_line(e)}") from e
            missing = sorted({s for s in shards.values() if not (folder / s).is_file()})
            if missing:
                raise BadFile(f"{folder} lacks {len(missing)} of its shards, the first is {missing[0]}")
            self.files = {name: folder / shard for name, shard in shards.items()}
        elif single.is_file():
            with _open(single) as f:
                self.files = dict.fromkeys(f.keys(), single)
        else:
            raise BadFile(
                f"{folder} has no model.safetensors and no model.safetensors.index.json: reading from disk needs safetensors files"
            )

    def names_by_tail(self, blocks: str) -> dict[str, str]:
        """What follows the block list ('3.self_attn.v_proj.weight') → the name on disk.

        Files may lack the model's outer prefix or carry an older one, so a tensor is known by its place in the blocks alone.
        """
        marker = f".{blocks.rpartition('.')[2]}."
        tails: dict[str, str] = {}
        for name in self.files:
            prefix, found, tail = f".{name}".partition(marker)
            if found and not any(tower in prefix for tower in _OTHER_TOWERS):
                tails[tail] = name
        return tails

    def fingerprint(self) -> str:
        """A short hash of samples of every file: cheap for a checkpoint of any size."""
        parts = sorted({(file.name, sampled_hash(file)) for file in self.files.values()})
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    def read(self, name: str) -> Tensor:
        with _open(self.files[name]) as f:
            try:
                tensor: Tensor = f.get_tensor(name)
            except SafetensorError as e:
                raise BadFile(f"{self.files[name]} cannot give {name}: {one_line(e)}") from e
        if not tensor.is_floating_point() or tensor.element_size() == 1:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise BadFile(
                f"{name} in {self.files[name]} is quantised ({kind}): convert the checkpoint to float, or load the model"
            )
        return tensor


def _open(path: Path):  # type: ignore[no-untyped-def]  # safetensors has no type for it
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as e:
        raise BadFile(f"{path} is not a whole safetensors file: {one_line(e)}") from e
