"""Results by method: those in a folder, or whatever else a user may hand over for them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from headatlas.errors import BadArgument, BadFile, brief, check_there
from headatlas.results.charts import MEASURES
from headatlas.results.store import load

KNOWN = (*MEASURES, "salient", "contrast", "compare_maps")
EXPECTED = "an atlas, its folder, a result such as atlas['maps'], or results by method such as {'maps': …}"


def complete(folder: Path) -> list[str]:
    """The methods a folder has results of."""
    return [name for name in KNOWN if (folder / f"{name}.nc").is_file()]


def load_result(path: Path) -> xr.Dataset:
    """A result, once it is known to be of heads."""
    found = load(path)
    if not {"layer", "head"} <= set(found.dims):
        raise BadFile(f"{path.name} has no head maps: its dimensions are {', '.join(map(str, found.dims)) or 'none'}")
    for _, dim in MEASURES.get(path.stem, ()):
        if dim in found.coords and len(set(found[dim].values.tolist())) < found.sizes[dim]:
            raise BadFile(f"{path.name} has a {dim} twice: {', '.join(map(str, found[dim].values))}")
    return found


def results_of(argument: str, given: Any) -> dict[str, xr.Dataset]:
    """Datasets by method: an atlas or a dict as it is, a folder or a file read, one dataset by the method it names."""
    if isinstance(given, str | Path):
        check_there(argument, given)
        path = Path(given)
        files = [path / f"{name}.nc" for name in complete(path)] if path.is_dir() else [path]
        return {file.stem: load_result(file) for file in files}
    if isinstance(given, xr.Dataset):
        if given.attrs.get("method") not in KNOWN:
            raise BadArgument(f"{argument} is a dataset that does not say its method, expected {EXPECTED}")
        return {str(given.attrs["method"]): given}
    if not isinstance(given, Mapping):
        raise BadArgument(f"{argument} is {brief(given)}, expected {EXPECTED}")
    found = dict(given.items())
    for name, one in found.items():
        if not isinstance(one, xr.Dataset):
            raise BadArgument(f"{argument}[{name!r}] is {brief(one)}, expected an xarray.Dataset")
    return found


def check_result(argument: str, given: Any, method: str) -> None:
    """That it is a dataset, such as a method gives."""
    if not isinstance(given, xr.Dataset):
        raise BadArgument(f"{argument} is {brief(given)}, expected an xarray.Dataset such as `{method}` gives")
