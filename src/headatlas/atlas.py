"""The whole flow: load a model, describe it, run the methods one after another, keep what they found in a folder."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headatlas.errors import BadArgument, BadFile
from headatlas.headmap.files import read_json, write_json
from headatlas.headmap.provenance import describe_model, describe_run
from headatlas.models.default import DEFAULT_MODEL
from headatlas.models.lm import LM
from headatlas.models.loading import load

INDEX = "atlas.json"


@dataclass(frozen=True)
class Atlas:
    """A folder of head maps for one model."""

    folder: Path
    info: dict[str, Any]

    def __repr__(self) -> str:
        model = self.info["model"]
        methods = ", ".join(self.info["methods"]) or "none yet"
        return f"Atlas({str(self.folder)!r}: {model['name']}, {model['n_layers']} × {model['n_heads']} heads; methods: {methods})"


def run(
    model: LM | str | Path = DEFAULT_MODEL,
    out: str | Path = "atlas",
    *,
    device: str = "auto",
    dtype: str = "auto",
    command: str = "",
) -> Atlas:
    """Map a model into the folder `out`: everything that exists so far, which is the model's own description."""
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise BadArgument(f"out is {str(out)!r}, which is a file: give a folder")
    started = time.perf_counter()
    lm = model if isinstance(model, LM) else load(model, device, dtype)
    info = {
        "model": describe_model(lm),
        "run": describe_run() | {"command": command, "seconds": {"load": round(time.perf_counter() - started, 2)}},
        "methods": {},
    }
    write_json(folder / INDEX, info)
    return open(folder)


def open(folder: str | Path) -> Atlas:
    """An atlas made earlier."""
    path = Path(folder)
    if not (path / INDEX).is_file():
        raise BadFile(f"{path} is not an atlas: it has no {INDEX} (make one with `headatlas run --out {path}`)")
    info = read_json(path / INDEX)
    missing = {"model", "run", "methods"} - set(info)
    if missing:
        raise BadFile(f"{path / INDEX} lacks {', '.join(sorted(missing))}: not an atlas of this version")
    return Atlas(path, info)
