"""Read single tensors from safetensors files, by name, without loading anything else."""

import hashlib
import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from headatlas.errors import BadFile, one_line

_FLOATS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class Checkpoint:
    """A folder with model.safetensors, or with shards and model.safetensors.index.json."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not folder.is_dir():
            raise BadFile(f"{folder}: no such folder")
        index = folder / "model.safetensors.index.json"
        single = folder / "model.safetensors"
        # the single file first, as in transformers if both exist
        if single.is_file():
            with _open(single) as f:
                self.files = dict.fromkeys(f.keys(), single)
        elif index.is_file():
            try:
                shards: dict[str, str] = json.loads(index.read_text())["weight_map"]
            except (ValueError, KeyError, TypeError) as e:
                raise BadFile(f"{index} is not a safetensors index: {one_line(e)}") from e
            missing = sorted({s for s in shards.values() if not (folder / s).is_file()})
            if missing:
                raise BadFile(f"{folder} lacks {len(missing)} of its shards, the first is {missing[0]}")
            self.files = {name: folder / shard for name, shard in shards.items()}
        else:
            raise BadFile(
                f"{folder} has no model.safetensors and no model.safetensors.index.json:"
                " reading from disk needs safetensors files"
            )

    def find(self, name: str, prefix: str, blocks: str) -> str | None:
        """Return the name that a tensor of the model has in the checkpoint; None if it is missing.

        This is its own name, or its name without or with the base model's prefix, or the only name that ends the same
        from the list of blocks on (older layouts of multimodal models).

        Args:
            name: the tensor's name in the model.
            prefix: that of the base model.
            blocks: the path of the list of blocks.
        """
        tail = f"{blocks.rpartition('.')[2]}{name.removeprefix(blocks)}"
        for candidate in (name, name.removeprefix(f"{prefix}."), f"{prefix}.{name}"):
            if candidate in self.files:
                return candidate
        matches = [n for n in self.files if n.endswith(f".{tail}")]
        # a vision tower may have blocks of the same name
        text = [n for n in matches if "language_model" in n or "text_model" in n] if len(matches) > 1 else matches
        if len(matches) > 1 and len(text) != 1:
            examples = ", ".join(sorted(matches)[:3])
            raise BadFile(f"{self.folder} has {len(matches)} tensors that could be {name}: {examples}")
        return text[0] if text else None

    def fingerprint(self) -> str:
        """Return a short hash of every tensor's name, shape, type and 16 evenly spaced pieces: cheap for any size."""
        digest = hashlib.sha256()
        for path in sorted(set(self.files.values())):
            with path.open("rb") as f:
                length = int.from_bytes(f.read(8), "little")
                header = json.loads(f.read(length))
                for name, entry in sorted(header.items()):
                    if name == "__metadata__":
                        continue
                    start, stop = entry["data_offsets"]
                    digest.update(f"{name} {entry['shape']} {entry['dtype']}".encode())
                    for i in range(16):
                        f.seek(8 + length + start + max(stop - start - 1024, 0) * i // 15)
                        digest.update(f.read(min(1024, stop - start)))
        return digest.hexdigest()[:16]

    def dtype(self, name: str) -> torch.dtype | None:
        """Return the type in which a tensor is stored; None if it is no float of two bytes or more."""
        with _open(self.files[name]) as f:
            return _FLOATS.get(f.get_slice(name).get_dtype())

    def read(self, name: str) -> Tensor:
        """Read a tensor, and check that it is finite and not quantised."""
        with _open(self.files[name]) as f:
            try:
                tensor: Tensor = f.get_tensor(name)
            except SafetensorError as e:
                raise BadFile(f"{self.files[name]} cannot give {name}: {one_line(e)}") from e
        if not tensor.is_floating_point() or tensor.element_size() == 1:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise BadFile(
                f"{name} in {self.files[name]} is quantised ({kind}):"
                " convert the checkpoint to float, or load the model"
            )
        check_finite(name, tensor, self.files[name])
        return tensor


def check_finite(name: str, tensor: Tensor, source: object) -> None:
    """Raise `BadFile` if a tensor holds NaN or infinity. Quantised tensors, of one byte, are not checked."""
    if not tensor.is_floating_point() or tensor.element_size() == 1 or tensor.is_meta or not tensor.numel():
        return
    # minimum and maximum take one pass, and no copy as large as the tensor
    if not torch.stack(torch.aminmax(tensor)).isfinite().all():
        raise BadFile(f"{source}: tensor {name} holds NaN or infinity: the model is damaged")


def _open(path: Path):  # type: ignore[no-untyped-def]  # safetensors has no type for it
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as e:
        raise BadFile(f"{path} is not a complete safetensors file: {one_line(e)}") from e
