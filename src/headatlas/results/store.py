"""Store labelled arrays on disk: results as netCDF-4 files, and the finished parts of work that may be interrupted."""

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

# Registers the accessor, so that every result that is read or written has `.heads`.
from headatlas.results import accessor as accessor

# Version of the names of variables and attributes in files.
SCHEMA = 3
# Releases of HeadAtlas that wrote files of earlier schemas.
RELEASES = {"1": "0.1", "2": "0.2"}
# Starts texts that are stored with Python's escapes.
ESCAPE_PREFIX = "escaped:"
# HDF5 text holds neither NUL nor lone surrogates, and tokens of a vocabulary may contain both.
UNSTORABLE = re.compile(f"[\x00\ud800-\udfff]|^{ESCAPE_PREFIX}")


def save(dataset: xr.Dataset, path: Path) -> None:
    """Write a result; the file exists only once it is complete. Texts may contain any character."""
    storable = _change_texts(dataset.assign_attrs(schema=SCHEMA), _escape)
    with atomic_file(path) as temporary:
        storable.to_netcdf(temporary, engine="h5netcdf", mode="w")


def load(path: Path) -> xr.Dataset:
    """Read a result.

    Raises:
        BadFile: the file is damaged, or was written by a HeadAtlas with another schema.
    """
    try:
        dataset = xr.load_dataset(path, engine="h5netcdf")
    except (OSError, ValueError, KeyError, RuntimeError, TypeError, AttributeError) as e:
        raise BadFile(f"cannot read {path} as a head map: {one_line(e)}") from e
    schema = str(dataset.attrs.get("schema", 1))
    if schema != str(SCHEMA):
        raise BadFile(f"{path} {_schema_in_words(schema)}")
    dataset = _change_texts(dataset, _unescape)
    return dataset.set_xindex("category_name") if "category_name" in dataset.coords else dataset


def _schema_in_words(schema: str) -> str:
    """Say who wrote a file of another schema, and how to read it: the end of an error."""
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
    """Read the attributes of a file without its arrays; empty if the file is missing or damaged."""
    return _change_attributes(_open_lazily(path).attrs, _unescape)


def load_dimensions(path: Path) -> set[str]:
    """Read the names of the dimensions of a file without its arrays; empty if the file is missing or damaged."""
    return set(map(str, _open_lazily(path).dims))


def _open_lazily(path: Path) -> xr.Dataset:
    try:
        with xr.open_dataset(path, engine="h5netcdf") as dataset:
            return dataset
    except (OSError, ValueError, KeyError, RuntimeError, TypeError, AttributeError):
        return xr.Dataset()


def _escape(text: str) -> str:
    return ESCAPE_PREFIX + text.encode("unicode_escape").decode() if UNSTORABLE.search(text) else text


def _unescape(text: str) -> str:
    if not text.startswith(ESCAPE_PREFIX):
        return text
    return text.removeprefix(ESCAPE_PREFIX).encode().decode("unicode_escape")


def _change_texts(dataset: xr.Dataset, change: Callable[[str], str]) -> xr.Dataset:
    """Apply a change to each text of a dataset: in variables, coordinates and attributes."""
    changed = dataset.copy()
    for name, variable in dataset.variables.items():
        before = variable.values.ravel().tolist() if variable.dtype.kind in "OU" else []
        after = [change(value) if isinstance(value, str) else value for value in before]
        if after != before:
            # NumPy's own type for text drops NUL at the end.
            has_final_nul = any(isinstance(value, str) and value.endswith("\0") for value in after)
            values = np.array(after, dtype=object if has_final_nul else None).reshape(variable.shape)
            changed[name] = variable.dims, values, variable.attrs
    for variable in changed.variables.values():
        variable.attrs = _change_attributes(variable.attrs, change)
    return changed.assign_attrs(_change_attributes(changed.attrs, change))


def _change_attributes(attributes: Mapping[Any, Any], change: Callable[[str], str]) -> dict[str, Any]:
    def changed(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [changed(item) for item in value]
        return change(value) if isinstance(value, str) else value

    return {name: changed(value) for name, value in attributes.items()}


class PartFolder(MutableMapping[str, tuple[np.ndarray, ...]]):
    """A folder of the finished parts of one work, by name.

    It belongs to one `key` (model, data, settings): opening it with another key empties it.
    """

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
        """Return whether the folder belongs to this key."""
        return (folder / _name(key)).is_file()

    def _path(self, part: str) -> Path:
        name = quote(part, safe=" ")
        # File systems limit the length of names.
        short = name if len(name) < 100 else hashlib.sha256(part.encode()).hexdigest()[:32]
        return self.folder / f"{short}.npz"

    def __getitem__(self, part: str) -> tuple[np.ndarray, ...]:
        """Read a part; a damaged one counts as not finished."""
        try:
            with self._path(part).open("rb") as f, np.load(f, allow_pickle=False) as arrays:
                return tuple(arrays[name] for name in sorted(arrays.files))
        except (OSError, ValueError, EOFError, BadZipFile) as e:
            raise KeyError(part) from e

    def __setitem__(self, part: str, arrays: tuple[np.ndarray, ...]) -> None:
        with atomic_file(self._path(part)) as temporary, temporary.open("wb") as f:
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
    """Name the empty file that marks a folder as belonging to a key."""
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
