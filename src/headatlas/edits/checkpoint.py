"""Write a new checkpoint from an old one: unchanged tensors are copied byte by byte, in pieces.

At most one tensor is in memory at a time. The folder appears when it is complete.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from headatlas.edits.fold import Rewrite, Source
from headatlas.errors import CannotDo
from headatlas.models.library_settings import quiet_transformers
from headatlas.progress import Progress

INDEX = "model.safetensors.index.json"
CARD = "README.md"
_BYTES_PER_COPY = 2**24
_NAMES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
# Bytes per number, by the end of a type's name; others have one byte.
_BYTES = {"64": 8, "32": 4, "16": 2}
_OTHER_WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx", ".ckpt"}
# The only folder that belongs to a tokenizer.
_TEMPLATES = "additional_chat_templates"


def write_checkpoint(source: Source, folder: Path, progress: Progress) -> None:
    """Write weights, configuration, tokenizer and the other files of the source folder, but no model card."""
    files = sorted(set(source.checkpoint.files.values()))
    places = {name: _file_of(source, name) for name in source.rewrites}
    plans = [_plan(file, {n: r for n, r in source.rewrites.items() if places[n] == file}) for file in files]
    total = sum(entry.size for plan in plans for entry in plan.entries)
    free = shutil.disk_usage(folder).free
    if total > free:
        raise CannotDo(f"no space left in {folder.parent}: the checkpoint has {_mb(total)} MB, {_mb(free)} MB are free")
    for plan in progress(plans, f"writing {len(files)} file{'s' * (len(files) > 1)} of weights"):
        _write(plan, folder / plan.file.name)
    if [file.name for file in files] != ["model.safetensors"]:
        index = {entry.name: plan.file.name for plan in plans for entry in plan.entries}
        content = {"metadata": {"total_size": total}, "weight_map": dict(sorted(index.items()))}
        (folder / INDEX).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    _copy_others(source, folder)


def _file_of(source: Source, name: str) -> Path:
    """Return the file of a tensor: its present one, or for a new bias that of its weight."""
    files = source.checkpoint.files
    return files[name] if name in files else files[f"{name.rpartition('.')[0]}.weight"]


def _mb(size: int) -> str:
    return f"{size / 1e6:,.0f}"


# --- safetensors files: length of the header (8 bytes), JSON header, tensors


@dataclass(frozen=True)
class _Entry:
    name: str
    kind: str
    shape: tuple[int, ...]
    size: int
    start: int  # offset in the old file
    make: Callable[[], Tensor] | None = None  # None: copied from the old file


@dataclass(frozen=True)
class _Plan:
    file: Path
    metadata: dict[str, Any]
    entries: list[_Entry]


def _plan(file: Path, rewrites: Mapping[str, Rewrite]) -> _Plan:
    with file.open("rb") as f:
        length = int.from_bytes(f.read(8), "little")
        header = json.loads(f.read(length))
    metadata = header.pop("__metadata__", {})
    entries = []
    for name, about in header.items():
        start, stop = about["data_offsets"]
        if name not in rewrites:
            entries.append(_Entry(name, about["dtype"], tuple(about["shape"]), stop - start, 8 + length + start))
    for name, new in rewrites.items():
        size = prod(new.shape) * new.dtype.itemsize
        entries.append(_Entry(name, _NAMES[new.dtype], new.shape, size, 0, new.make))
    # Large types first, as the safetensors library does: each tensor then begins at a multiple of its type's size.
    return _Plan(file, metadata, sorted(entries, key=lambda e: (-_BYTES.get(e.kind[-2:], 1), e.name)))


def _write(plan: _Plan, target: Path) -> None:
    header: dict[str, Any] = {"__metadata__": plan.metadata} if plan.metadata else {}
    end = 0
    for e in plan.entries:
        header[e.name] = {"dtype": e.kind, "shape": list(e.shape), "data_offsets": [end, end + e.size]}
        end += e.size
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with plan.file.open("rb") as old, target.open("wb") as new:
        new.write(len(text).to_bytes(8, "little") + text)
        for e in plan.entries:
            if e.make is None:
                _copy(old, new, e.start, e.size)
                continue
            tensor = e.make()
            assert (tuple(tensor.shape), _NAMES[tensor.dtype]) == (e.shape, e.kind), e.name
            new.write(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)


def _copy(old: BinaryIO, new: BinaryIO, start: int, size: int) -> None:
    old.seek(start)
    while size:
        piece = old.read(min(size, _BYTES_PER_COPY))
        if not piece:
            raise OSError(f"{old.name} ended while it was copied")
        new.write(piece)
        size -= len(piece)


def _copy_others(source: Source, folder: Path) -> None:
    """Copy tokenizer, generation config, licence: all small files of the source folder."""
    for path in sorted(source.folder.iterdir()):
        skipped = path.name.startswith(".") or path.name.endswith(".index.json") or path.name == CARD
        if path.is_file() and not skipped and path.suffix not in _OTHER_WEIGHTS:
            shutil.copyfile(path, folder / path.name)
    if (source.folder / _TEMPLATES).is_dir():
        shutil.copytree(source.folder / _TEMPLATES, folder / _TEMPLATES, copy_function=shutil.copyfile)
    if source.reconfigured:
        with quiet_transformers():
            source.config.save_pretrained(folder)
