"""The whole flow: load a model, describe it, run the methods one after another, keep what they found in a folder."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import xarray as xr

from headatlas.errors import BadArgument, BadFile, HeadAtlasError
from headatlas.headmap.files import check_folder, read_json, write_json
from headatlas.headmap.provenance import describe_model, describe_run
from headatlas.headmap.store import load as load_map
from headatlas.models.default import DEFAULT_MODEL
from headatlas.models.lm import LM
from headatlas.models.loading import load
from headatlas.progress import Progress, silent
from headatlas.public.gate import gate
from headatlas.public.maps import maps
from headatlas.public.probe import probe

INDEX = "atlas.json"


@dataclass(frozen=True)
class Atlas:
    """A folder of head maps for one model."""

    folder: Path
    info: dict[str, Any]

    def __getitem__(self, method: str) -> xr.Dataset:
        """A method's head maps: atlas["maps"]."""
        if method not in self.complete:
            raise BadArgument(
                f"method {method!r} is not in this atlas; here are: {', '.join(self.complete) or 'none yet'}"
            )
        return load_map(self.folder / self.info["methods"][method]["file"])

    @property
    def complete(self) -> list[str]:
        """The methods this atlas has results of."""
        return [name for name, method in self.info["methods"].items() if method["complete"]]

    def __repr__(self) -> str:
        model = self.info["model"]
        methods = ", ".join(self.complete) or "none yet"
        return f"Atlas({str(self.folder)!r}: {model['name']}, {model['n_layers']} × {model['n_heads']} heads; methods: {methods})"


def run(
    model: LM | str | Path = DEFAULT_MODEL,
    out: str | Path = "atlas",
    *,
    device: str = "auto",
    dtype: str = "auto",
    command: str = "",
    progress: Progress = silent,
) -> Atlas:
    """Map a model into the folder `out` with every method there is. One that cannot be done is noted, with the reason."""
    folder = Path(out)
    check_folder(folder)
    clock = [time.perf_counter()]
    lm = model if isinstance(model, LM) else load(model, device, dtype)
    clock.append(time.perf_counter())
    info: dict[str, Any] = {
        "model": describe_model(lm),
        "run": describe_run() | {"command": command, "seed": 0},
        "methods": {},
    }
    write_json(folder / INDEX, info)
    methods: dict[str, Callable[..., xr.Dataset]] = {"maps": maps, "gate": gate, "probe": probe}
    for name, method in methods.items():
        try:
            method(lm, out=folder, progress=progress)
            info["methods"][name] = {"complete": True, "file": f"{name}.nc"}
        except HeadAtlasError as e:
            info["methods"][name] = {"complete": False, "why": str(e)}
        clock.append(time.perf_counter())
    info["run"]["seconds"] = {
        part: round(stop - start, 2)
        for part, (start, stop) in zip(["load", *info["methods"]], pairwise(clock), strict=True)
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
