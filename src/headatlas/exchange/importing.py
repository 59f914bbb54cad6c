"""Published tables as datasets: which format reads them, how the dataset is named, and where it is kept."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from headatlas.errors import BadArgument, BadFile, HeadAtlasError, check_choice, check_count, check_exists, one_line
from headatlas.exchange import FORMATS, readable
from headatlas.exchange.checked_tables import MAX_INDEX, ImportOptions, Tables
from headatlas.exchange.format import Format, Source
from headatlas.exchange.method_results import read_result
from headatlas.files import check_folder
from headatlas.methods import TABLE, importing_methods, method_names
from headatlas.models.head_names import read_shape
from headatlas.results.about import unit_of
from headatlas.results.store import load, save


def import_scores(
    path: str | Path,
    format: str | None = None,
    *,
    kind: str | None = None,
    name: str | None = None,
    model: str | None = None,
    key: str | None = None,
    names: Sequence[str] | None = None,
    layers: int | None = None,
    heads: int | None = None,
    fill: float | None = None,
    out: str | Path | None = None,
) -> xr.Dataset:
    """Read a table of head scores that was published elsewhere. Nothing in it is run.

    Args:
        path: a file, or a folder for duo-attention, maps and headvis.
        format: retrieval-head, headkv, duo-attention, ranked, layers-by-heads, minference, maps, headvis, csv, json,
            parquet or npy; without it, what the file tells.
        kind: instead of a format, importance, categories or gate: the result is read as one of probe, maps or gate.
        name: what the result, and its file, is called; without it, as its format or file.
        model: what to call the model. If it is a model on this machine, it tells the number of layers and heads.
        key: where in a JSON file the table is: 'scores', or 'results.0.scores' through objects and lists.
        names: of the tables in a .npy file.
        layers: how many the model has.
        heads: how many query heads a layer has; scores of KV heads are spread to them.
        fill: the score of heads that the table does not have; without it, they are NaN.
        out: a folder to keep the result in.

    Returns:
        `score`(table, layer, head). If each is the mean of several, `scores`(table, repeat, layer, head). If the table
        has KV heads, `kv_score`(table, layer, kv_head); without `heads`, heads are then KV groups. With a kind, the
        variables of that method.

    Example:
        >>> ha.import_scores("Retrieval_Head/head_score/llama-2-7b-80k.json").score.sel(table="retrieval")
    """
    check_exists("scores", path)
    file = Path(path)
    kinds = importing_methods()
    if kind is not None and format is not None:
        raise BadArgument(f"format is {format!r} and kind is {kind!r}: give one of them")
    if format is not None:
        check_choice("format", format, readable())
    if kind is not None:
        check_choice("kind", kind, kinds)
        unused = {"name": name, "key": key, "layers": layers, "heads": heads, "fill": fill}
        _check_used(unused, (), f"kind {kind}")
    if fill is not None and not np.isfinite(fill):
        raise BadArgument(f"fill is {fill}, expected a finite number")
    check_folder(out)
    try:
        if kind is not None:
            result = read_result(file, kind, kinds[kind], names)
            origin = {"method": kinds[kind], "model": model or file.stem, "source": file.name, "imported": 1}
        else:
            options = _import_options(model, key, names, layers, heads)
            format = format or guess_format(file)
            reader = readable()[format]
            check_exists("scores", path, "file or folder" if reader.is_folder else "file")
            _check_used({"key": key, "names": names or None}, reader.import_options, f"format {format}")
            assert reader.read is not None
            tables = reader.read(file, options)
            result = _dataset(tables, options.heads, fill, file)
            origin = _origin(file, reader, name, model, tables)
    except (OSError, ValueError, TypeError, KeyError, EOFError, RecursionError, MemoryError, OverflowError) as e:
        if isinstance(e, HeadAtlasError):
            raise
        raise BadFile(f"cannot read {file} as {kind or format or 'a table of scores'}: {one_line(e)}") from e
    result = result.assign_attrs(result.attrs | origin)
    if out is not None:
        keep(result, Path(out))
    return result


def _check_used(given: dict[str, Any], used: Sequence[str], what: str) -> None:
    """That nothing was given that would be left out."""
    for argument, value in given.items():
        if value is not None and argument not in used:
            raise BadArgument(f"{argument} is {value!r}, which {what} does not take")


def guess_format(path: Path) -> str:
    """The format of a file or folder, where only one can be meant."""
    source = Source(path)
    name = next((format.name for format in FORMATS if format.recognises and format.recognises(source)), None)
    if name is None:
        names = ", ".join(readable())
        raise BadArgument(f"format is not given, and {path} does not show which it is: give one of {names}")
    return name


def _import_options(
    model: str | None, key: str | None, names: Sequence[str] | None, layers: int | None, heads: int | None
) -> ImportOptions:
    """What is known of the file; of a model on this machine, its layers and heads."""
    for argument, size in (("layers", layers), ("heads", heads)):
        if size is not None:
            check_count(argument, size, 1, MAX_INDEX + 1)
    sizes = (read_shape(model) if model else None) or (None, None)
    return ImportOptions(key, list(names) if names else None, layers or sizes[0], heads or sizes[1])


def _dataset(tables: Tables, heads: int | None, fill: float | None, file: Path) -> xr.Dataset:
    labels = [_printable(name) for name in tables.scores]
    if twice := sorted({label for label in labels if labels.count(label) > 1}):
        raise BadFile(f"{file}: two tables are called {twice[0]!r}")

    def stacked(parts: dict[str, np.ndarray]) -> np.ndarray:
        first = next(iter(parts.values()))
        return np.stack([parts.get(name, np.full(first.shape, np.nan)) for name in tables.scores])

    scores, dims = stacked(tables.scores), (TABLE.over, "layer", "head")
    variables: dict[str, Any] = {
        TABLE.name: (dims, scores if fill is None else np.where(np.isnan(scores), fill, scores))
    }
    variables |= {end: (dims, stacked(part)) for end, part in (("low", tables.low), ("high", tables.high)) if part}
    variables |= {name: (dims[1:], values) for name, values in tables.extra.items()}
    if tables.repeats:
        most = max(map(len, tables.repeats.values()))
        parts = {n: tables.repeats.get(n, tables.scores[n][None]) for n in tables.scores}
        each = {n: np.pad(v, [(0, most - len(v)), (0, 0), (0, 0)], constant_values=np.nan) for n, v in parts.items()}
        variables["scores"] = ((dims[0], "repeat", *dims[1:]), stacked(each))
    result = xr.Dataset(variables, coords={TABLE.over: labels})
    result = _of_kv_heads(result, heads, file) if tables.per_kv_head else result
    return result.assign_coords({dim: range(result.sizes[dim]) for dim in ("layer", "head")})


def _of_kv_heads(result: xr.Dataset, heads: int | None, file: Path) -> xr.Dataset:
    """The table as it is, and spread to query heads; where their number is not known, groups stand for heads."""
    groups = result.sizes["head"]
    own = {"kv_score": result[TABLE.name].rename(head="kv_head").assign_coords(kv_head=range(groups))}
    if heads is None:
        return result.assign(own).assign_attrs(unit="KV group", n_kv_heads=groups)
    if heads % groups:
        raise BadArgument(f"heads is {heads}, not a multiple of the {groups} KV heads in {file}")
    spread = result.isel(head=np.repeat(np.arange(groups), heads // groups))
    return spread.assign(own).assign_attrs(n_kv_heads=groups, per="KV group")


def _origin(file: Path, format: Format, name: str | None, model: str | None, tables: Tables) -> dict[str, Any]:
    stem = file.stem if file.is_file() else file.absolute().name
    if name is None:
        name = format.result_name or re.sub(r"[^\w.-]+", "-", stem).strip(".-")[:60] or "table"
        name = f"{name}-table" if name in method_names() else name
    elif not re.fullmatch(r"\w[\w.-]{0,99}", name) or name in method_names():
        taken = "which is a method" if name in method_names() else "expected letters, numbers, - and _"
        raise BadArgument(f"name is {name!r}, {taken}: give another")
    about = {k: v if isinstance(v, str) else float(v) for k, v in tables.about.items()}
    said = _printable(str(about.pop("model_name", ""))).rstrip("/").split("/")[-1]
    origin = {"method": name, "model": model or said or stem, "format": format.name, "source": file.name, "imported": 1}
    return {k: _printable(v) if isinstance(v, str) else v for k, v in (about | origin).items()}


def _printable(text: str, limit: int = 200) -> str:
    """Text that every file and terminal can hold: no line breaks, null bytes or halves of characters."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)[:limit]


def sentences(result: xr.Dataset) -> list[str]:
    """What must be known of an imported table before it is compared: which heads it lacks, and what its heads are."""
    if TABLE.name not in result or TABLE.over not in result.dims:
        return []
    missing, lines = result[TABLE.name].isnull().all(TABLE.over), []
    if lacks := int(missing.sum()):
        lines.append(f"{lacks} of {missing.size} heads have no score and are left out of comparisons (see --fill)")
    if unit_of(result) != "Head":
        lines.append("scores are of KV heads: with --heads, how many query heads there are, they are spread to those")
    return lines


def keep(result: xr.Dataset, folder: Path) -> Path:
    """Keep an imported dataset under the name of its method; never in place of another."""
    path = folder / f"{result.attrs['method']}.nc"
    if path.exists():
        raise BadArgument(f"out is {str(folder)!r}, where {path.name} is already: give another folder")
    for other in sorted(folder.glob("*.nc")):
        first, second = (_whose(dataset) for dataset in (load(other), result))
        if first != second:
            raise BadArgument(
                f"out is {str(folder)!r}, where {other.name} is {first}, not {second}: give another folder"
            )
    save(result, path)
    return path


def _whose(result: xr.Dataset) -> str:
    how = "imported scores" if "imported" in result.attrs else "a map"
    return f"{how} of {result.attrs.get('model')} with {result.sizes.get('layer')} × {result.sizes.get('head')} heads"
