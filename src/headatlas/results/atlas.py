"""An atlas: a folder of results for one model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import xarray as xr

from headatlas.errors import BadArgument, BadFile, brief, check_count, check_exists, did_you_mean
from headatlas.files import read_json
from headatlas.methods import measures_of
from headatlas.results import tables
from headatlas.results.about import by_kv_group
from headatlas.results.accessor import show_atlas
from headatlas.results.reading import complete_methods, load_result
from headatlas.results.store import load_attributes
from headatlas.results.stored_tests import load_tests, with_outcomes

if TYPE_CHECKING:
    from headatlas.models.weights import Weights

INDEX = "atlas.json"


class MissingMethod(BadArgument, KeyError):
    """An atlas has no result of a method; also a KeyError, as a mapping raises."""

    # KeyError would print the message in quotes.

    __str__ = Exception.__str__


@dataclass(frozen=True)
class Atlas(Mapping[str, xr.Dataset]):
    """A folder of head maps of one model: a mapping from methods to their results, which are read when needed.

    Attributes:
        folder: the folder.
        info: content of its atlas.json: the model, the run, and each method.
    """

    folder: Path
    info: dict[str, Any]

    def __getitem__(self, method: str) -> xr.Dataset:
        """Read the head maps of a method: atlas["maps"]."""
        if method not in self:
            raise MissingMethod(
                f"method {brief(method)} is not in this atlas, which has {', '.join(self) or 'none yet'}."
                f"{did_you_mean(str(method), self)}"
            )
        result = load_result(self.folder / f"{method}.nc")
        return with_outcomes({method: result}, self.tests)[method]

    def __iter__(self) -> Iterator[str]:
        return iter(self.complete)

    def __len__(self) -> int:
        return len(self.complete)

    def __contains__(self, method: object) -> bool:
        return method in self.complete

    @property
    def complete(self) -> list[str]:
        """Names of the methods that this atlas has results of."""
        return complete_methods(self.folder)

    @property
    def results(self) -> dict[str, xr.Dataset]:
        """All results by method."""
        results = {name: load_result(self.folder / f"{name}.nc") for name in self.complete}
        return with_outcomes(results, self.tests)

    @property
    def tests(self) -> xr.Dataset | None:
        """The tests of its maps, over `test`; None where nothing was tested."""
        return load_tests(self.folder)

    def heads(
        self, function: str | None = None, top: int = 10, *, method: str | None = None, by: str | None = None
    ) -> pd.DataFrame:
        """Rank the top heads of a subject by every method that has a map of it: a row per head.

        Args:
            function: the subject: a function, relation, task or pattern.
            top: heads per map.
            method: only the maps of this method (default: all).
            by: 'kv-group' to rank groups of heads that share keys and values.
        """
        if function is not None and not isinstance(function, str):
            raise BadArgument(f"function is {brief(function)}, expected the name of a function, relation or task")
        check_count("top", top, 1)
        return pd.DataFrame(tables.heads(self.results_by(by), function or "", top, method))

    def results_by(self, unit: str | None) -> dict[str, xr.Dataset]:
        """Return all results; with unit 'kv-group', summed per key-value group, without those that cannot be."""
        return by_unit(self.results, unit, self.info["model"].get("n_kv_heads"))

    @property
    def completed_at(self) -> dict[str, str]:
        """The time at which each method was completed, in ISO format."""
        return {name: m["time"] for name, m in self.info["methods"].items() if "time" in m}

    def check_model(self, weights: Weights, name: str) -> dict[str, str]:
        """Check that the atlas was made from this model.

        Returns:
            The atlas's fingerprint and values_hash, and which of the two was checked. The fingerprint depends on the
            file format and the precision that the model was read in, the values_hash does not.
        """
        fingerprint = self.info["model"].get("fingerprint", "")
        values_hash = ""
        checked = "fingerprint"
        for method in self.complete:
            stored = load_attributes(self.folder / f"{method}.nc")
            values_hash = str(stored.get("values_hash", ""))
            if weights.fingerprint() == stored.get("fingerprint"):
                continue
            checked = "values_hash"
            if weights.values_hash() != values_hash:
                raise BadArgument(
                    f"atlas is {str(self.folder)!r}, whose {method}.nc is of {stored.get('model')}, not of this {name}"
                )
        return {"fingerprint": fingerprint, "values_hash": values_hash, "checked": checked}

    def __repr__(self) -> str:
        model = self.info["model"]
        names = ", ".join(self.complete) or "none yet"
        heads = f"{model['n_layers']} × {model['n_heads']} heads"
        return f"Atlas({str(self.folder)!r}: {model['name']}, {heads}; methods: {names})"

    def _repr_html_(self) -> str:
        return show_atlas(self.results, self.info, str(self.folder))


def by_unit(results: dict[str, xr.Dataset], unit: str | None, n_kv_heads: int | None = None) -> dict[str, xr.Dataset]:
    """Return results by method; with unit 'kv-group', summed per key-value group, without those that cannot be.

    n_kv_heads: groups per layer (default: what the results record).
    """
    if unit is None:
        return results
    if unit != "kv-group":
        raise BadArgument(f"by is {unit!r}, expected kv-group")
    measured = {name: r for name, r in results.items() if any(m.name in r for m in measures_of(name))}
    counts = [n_kv_heads, *(r.attrs.get("n_kv_heads") for r in measured.values())]
    groups = next((n for n in counts if n is not None), None)
    return {name: by_kv_group(r.assign_attrs(method=name), groups) for name, r in measured.items()}


def open(path: str | Path) -> Atlas | xr.Dataset:
    """Open an atlas, or any folder of head maps; a file such as atlas/maps.nc is read as a dataset."""
    if not isinstance(path, str | Path):
        raise BadArgument(f"path is {brief(path)}, expected the folder of an atlas, or one of its .nc files")
    return load_result(Path(path)) if Path(path).is_file() else open_atlas(path)


def open_atlas(folder: str | Path, argument: str = "path") -> Atlas:
    """Open an atlas, or any folder of head maps. argument: name of the argument, for errors."""
    path = Path(folder)
    check_exists(argument, path, "folder")
    if (path / INDEX).is_file():
        return Atlas(path, _read_index(path / INDEX))
    files = [path / f"{name}.nc" for name in complete_methods(path)]
    if not files:
        raise BadFile(
            f"{path} is not an atlas: it has no {INDEX} and no head map (make one with `headatlas run --out {path}`)"
        )
    first = load_result(files[0])
    model = {"name": str(first.attrs.get("model", path.name)), "fingerprint": first.attrs.get("fingerprint", "")}
    shape = {"n_layers": first.sizes["layer"], "n_heads": first.sizes["head"]}
    return Atlas(path, {"model": model | shape, "run": {}, "methods": {}})


def _read_index(path: Path) -> dict[str, Any]:
    """Read atlas.json, and check the parts that others rely on."""
    info = read_json(path)
    for part in ("model", "run", "methods"):
        if not isinstance(info.get(part), dict):
            raise BadFile(f"{path} lacks {part}: it is not an atlas of this version of HeadAtlas")
    types = {"name": str, "n_layers": int, "n_heads": int}
    model_complete = all(isinstance(info["model"].get(key), kind) for key, kind in types.items())
    methods_complete = all(isinstance(m, dict) and "complete" in m for m in info["methods"].values())
    if not model_complete or not methods_complete:
        raise BadFile(f"{path} is not an atlas of this version of HeadAtlas: run it again")
    return info
