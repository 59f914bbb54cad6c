"""The whole flow: load a model, describe it, run the methods one after another, keep what they found in a folder."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import xarray as xr

from headatlas.errors import BadArgument, BadFile, HeadAtlasError
from headatlas.headmap.files import read_json, write_json
from headatlas.headmap.provenance import describe_model, describe_run, flat
from headatlas.headmap.store import LayerStore, save
from headatlas.headmap.store import load as load_map
from headatlas.methods.maps import BASELINES, score_relations
from headatlas.methods.maps_dynamic import check_dynamic
from headatlas.models.default import DEFAULT_MODEL
from headatlas.models.lm import LM
from headatlas.models.loading import check_device, load, open_weights
from headatlas.progress import Progress, silent
from headatlas.tasks.relations import Relation, hash_relations, load_relations
from headatlas.validation.relations import check_causal

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
    if folder.exists() and not folder.is_dir():
        raise BadArgument(f"out is {str(out)!r}, which is a file: give a folder")
    clock = [time.perf_counter()]
    lm = model if isinstance(model, LM) else load(model, device, dtype)
    clock.append(time.perf_counter())
    info: dict[str, Any] = {
        "model": describe_model(lm),
        "run": describe_run() | {"command": command, "seed": 0},
        "methods": {},
    }
    write_json(folder / INDEX, info)
    for name, method in {"maps": maps}.items():
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


def maps(
    model: LM | str | Path = DEFAULT_MODEL,
    relations: str | Path | Iterable[Relation | dict[str, Any]] | None = None,
    *,
    k: int | Literal["auto"] = "auto",
    threshold: float = 0.15,
    min_pairs: int = 30,
    first_mlp: bool = True,
    baselines: bool = True,
    dynamic: int = 0,
    causal: int = 0,
    device: str = "auto",
    seed: int = 0,
    out: str | Path | None = None,
    progress: Progress = silent,
) -> xr.Dataset:
    """Which relations every head implements, from its parameters alone (docs/maps.md).

    model: an LM, or anything `load` takes; then only the tensors needed are read from disk, layer by layer.
    relations: the 20 built-in ones, or a folder, a JSON or CSV file, or a list of your own.
    k: how many of the largest outputs count as a hit; 'auto' is the published rule.
    baselines: score shuffled and random weights beside it, to see what chance gives.
    dynamic, causal: check the scores in real runs, and by removing heads, on up to so many pairs a relation (0: not at all).
    out: a folder for maps.nc; interrupted work goes on there at the layer it had reached.
    """
    chosen = load_relations(relations)
    weights, tokenizer, name = open_weights(model)
    settings: dict[str, Any] = {"k": k, "min_pairs": min_pairs, "first_mlp": first_mlp, "seed": seed}
    stamp = {"model": name, "fingerprint": weights.fingerprint(), "data": hash_relations(chosen)}
    done = LayerStore(Path(out) / ".maps", stamp | settings) if out is not None else None
    found = score_relations(
        weights,
        tokenizer,
        chosen,
        **settings,
        threshold=threshold,
        baselines=tuple(BASELINES) if baselines else (),
        device=model.device if isinstance(model, LM) else check_device(device),
        done=done,
        progress=progress,
    )
    if dynamic or causal:
        lm = model if isinstance(model, LM) else load(model, device)
        if dynamic:
            found = found.merge(check_dynamic(lm, chosen, dynamic, **settings, progress=progress))
        if causal:
            found = found.merge(check_causal(lm, chosen, found, causal, seed=seed, progress=progress))
    found = found.set_xindex("category_name").assign_attrs(stamp | flat(describe_run()))
    if out is not None and done is not None:
        save(found, Path(out) / "maps.nc")
        done.clear()
    return found


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
