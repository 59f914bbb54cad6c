"""Labelled arrays on disk: netCDF-4 files, and the finished parts of work that may be interrupted."""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote
from zipfile import BadZipFile

import numpy as np
import xarray as xr

from headatlas.errors import BadFile, CannotDo, brief, one_line
from headatlas.files import atomic_file
from headatlas.results import accessor as accessor  # so that every result read or written has `.heads`

SCHEMA = 3  # of the names of variables and attributes in files
RELEASES = {"1": "0.1", "2": "0.2"}  # of HeadAtlas that wrote files of earlier schemas
ESCAPED = "escaped:"  # begins texts that are stored with Python's escapes
UNSTORABLE = re.compile(f"[\x00\ud800-\udfff]|^{ESCAPED}")  # HDF5 text holds neither NUL nor lone surrogates


def save(dataset: xr.Dataset, path: Path) -> None:
    """Write a head map; the file exists only once it is complete. Its texts may hold any character."""
    storable = _with_texts(dataset.assign_attrs(schema=SCHEMA), _escape)
    with atomic_file(path) as aside:
        storable.to_netcdf(aside, engine="h5netcdf", mode="w")


def load(path: Path) -> xr.Dataset:
    """Read a head map."""
    try:
        dataset = xr.load_dataset(path, engine="h5netcdf")
    except (OSError, ValueError, KeyError, RuntimeError, TypeError, AttributeError) as e:
        raise BadFile(f"cannot read {path} as a head map: {one_line(e)}") from e
    schema = str(dataset.attrs.get("schema", 1))
    if schema != str(SCHEMA):
        raise BadFile(f"{path} {_of_other_schema(schema)}")
    dataset = _with_texts(dataset, _unescape)
    return dataset.set_xindex("category_name") if "category_name" in dataset.coords else dataset


def _of_other_schema(schema: str) -> str:
    if schema not in RELEASES:
        return (
            f"has schema {brief(schema)}, but this version reads schema {SCHEMA}: install the HeadAtlas that wrote it"
        )
    release = RELEASES[schema]
    return (
        f"was written by HeadAtlas {release} (schema {schema}; this version reads schema {SCHEMA}):"
        f" run the method again, or read the file with headatlas=={release}.*"
    )


def load_attributes(path: Path) -> dict[str, Any]:
    """The attributes of a file, without reading its arrays; empty if it is missing or damaged."""
    return _with_texts_in(_outline(path).attrs, _unescape)


def load_dimensions(path: Path) -> set[str]:
    """The dimensions of a file, without reading its arrays; empty if it is missing or damaged."""
    return set(map(str, _outline(path).dims))


def _outline(path: Path) -> xr.Dataset:
    try:
        with xr.open_dataset(path, engine="h5netcdf") as dataset:
            return dataset
    except (OSError, ValueError, KeyError, RuntimeError, TypeError, AttributeError):
        return xr.Dataset()


def _escape(text: str) -> str:
    return ESCAPED + text.encode("unicode_escape").decode() if UNSTORABLE.search(text) else text


def _unescape(text: str) -> str:
    return text.removeprefix(ESCAPED).encode().decode("unicode_escape") if text.startswith(ESCAPED) else text


def _with_texts(dataset: xr.Dataset, change: Callable[[str], str]) -> xr.Dataset:
    """The dataset with a change made to each text: in variables, coordinates and attributes."""
    changed = dataset.copy()
    for name, variable in dataset.variables.items():
        before = variable.values.ravel().tolist() if variable.dtype.kind in "OU" else []
        after = [change(value) if isinstance(value, str) else value for value in before]
        if after != before:
            # NumPy's own type for text drops NUL at the end
            ends = any(isinstance(value, str) and value.endswith("\0") for value in after)
            values = np.array(after, dtype=object if ends else None).reshape(variable.shape)
            changed[name] = variable.dims, values, variable.attrs
    for variable in changed.variables.values():
        variable.attrs = _with_texts_in(variable.attrs, change)
    return changed.assign_attrs(_with_texts_in(changed.attrs, change))


def _with_texts_in(attributes: Mapping[Any, Any], change: Callable[[str], str]) -> dict[str, Any]:
    def changed(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [changed(each) for each in value]
        return change(value) if isinstance(value, str) else value

    return {name: changed(value) for name, value in attributes.items()}


class PartFolder(MutableMapping[str, tuple[np.ndarray, ...]]):
    """A folder of finished parts, by name. It is for one `key` (model, data, settings); another key empties it."""

    def __init__(self, folder: Path, key: dict[str, Any]) -> None:
        self.folder = folder
        if not self.is_begun(folder, key):
            self.clear()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / _name(key)).touch()
        except OSError as e:
            raise CannotDo(f"cannot write to {folder}: {e.strerror}") from e

    @staticmethod
    def is_begun(folder: Path, key: dict[str, Any]) -> bool:
        """Whether work of this key was begun."""
        return (folder / _name(key)).is_file()

    def _path(self, part: str) -> Path:
        name = quote(part, safe=" ")
        short = name if len(name) < 100 else hashlib.sha256(part.encode()).hexdigest()[:32]
        return self.folder / f"{short}.npz"

    def __getitem__(self, part: str) -> tuple[np.ndarray, ...]:
        """A part that is damaged counts as not finished."""
        try:
            with self._path(part).open("rb") as f, np.load(f, allow_pickle=False) as arrays:
                return tuple(arrays[name] for name in sorted(arrays.files))
        except (OSError, ValueError, EOFError, BadZipFile) as e:
            raise KeyError(part) from e

    def __setitem__(self, part: str, arrays: tuple[np.ndarray, ...]) -> None:
        with atomic_file(self._path(part)) as aside, aside.open("wb") as f:
            np.savez(f, **{f"{i:02}": a for i, a in enumerate(arrays)})  # type: ignore[arg-type]

    def __delitem__(self, part: str) -> None:
        self._path(part).unlink()

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(unquote(p.stem) for p in self.folder.glob("*.npz")))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _name(key: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
