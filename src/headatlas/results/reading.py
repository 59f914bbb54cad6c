"""Read results by method: from a folder, or from whatever else a user may give for them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from headatlas.errors import BadArgument, BadFile, brief, check_exists
from headatlas.methods import measures_of, methods
from headatlas.results.store import load, load_dimensions
from headatlas.results.stored_tests import TESTS

EXPECTED = "an atlas, its folder, a result such as atlas['maps'], or results by method such as {'maps': …}"


def complete_methods(folder: Path) -> list[str]:
    """List the methods that a folder has results of: registered ones in the order of a run, then other head maps."""
    names = {path.stem for path in folder.glob("*.nc") if path.is_file()} - {TESTS}
    others = sorted(n for n in names - set(methods()) if {"layer", "head"} <= load_dimensions(folder / f"{n}.nc"))
    return [*(name for name in methods() if name in names), *others]


def load_result(path: Path) -> xr.Dataset:
    """Read a result, and check that it has head maps and that no subject occurs twice."""
    result = load(path)
    if not {"layer", "head"} <= set(result.dims):
        raise BadFile(f"{path.name} has no head maps: its dimensions are {', '.join(map(str, result.dims)) or 'none'}")
    for dim in {m.over for m in measures_of(path.stem)}:
        if dim in result.coords and len(set(result[dim].values.tolist())) < result[dim].size:
            raise BadFile(f"{path.name} has the same {dim} twice: {', '.join(map(str, result[dim].values))}")
    return result


def results_of(argument: str, results: Any) -> dict[str, xr.Dataset]:
    """Return results by method.

    Args:
        argument: name of the argument, for errors.
        results: an atlas or a dict, which are returned unread; a folder or a file, which is read; or one dataset that
            records its method.
    """
    if isinstance(results, str | Path):
        check_exists(argument, results)
        path = Path(results)
        files = [path / f"{name}.nc" for name in complete_methods(path)] if path.is_dir() else [path]
        return {file.stem: load_result(file) for file in files}
    if isinstance(results, xr.Dataset):
        if not results.attrs.get("method"):
            raise BadArgument(f"{argument} is a dataset without the attribute method, expected {EXPECTED}")
        return {str(results.attrs["method"]): results}
    if not isinstance(results, Mapping):
        raise BadArgument(f"{argument} is {brief(results)}, expected {EXPECTED}")
    by_method = dict(results.items())
    for name, result in by_method.items():
        if not isinstance(result, xr.Dataset):
            raise BadArgument(f"{argument}[{name!r}] is {brief(result)}, expected an xarray.Dataset")
    return by_method
