"""Import published tables of head scores as datasets."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from headatlas.errors import BadArgument, BadFile, HeadAtlasError, check_choice, check_count, check_exists, one_line
from headatlas.exchange import FORMATS, import_formats
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
    """Read a table of head scores that was published elsewhere. No code in it is run.

    Args:
        path: a file, or a folder for duo-attention, maps and headvis.
        format: retrieval-head, headkv, duo-attention, ranked, layers-by-heads, minference, maps, headvis, csv, json,
            parquet or npy (default: detected from the file).
        kind: instead of a format, importance, categories or gate: read the file as a result of probe, maps or gate.
        name: name of the result and of its file (default: that of the format, or of the file read).
        model: name of the model. If a model of this name is on this machine, layers and heads are read from it.
        key: where in a JSON file the table is: 'scores', or a path through objects and lists, 'results.0.scores'.
        names: names of the tables in a .npy file.
        layers: number of layers of the model.
        heads: number of query heads per layer; scores of KV heads are repeated for each of their query heads.
        fill: the score for heads that the table does not have (default: NaN).
        out: a folder to save the result in.

    Returns:
        `score`(table, layer, head). If scores are means, also `scores`(table, repeat, layer, head). If the table has
        KV heads, also `kv_score`(table, layer, kv_head); without `heads`, heads are then KV groups. With a kind, the
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
        check_choice("format", format, import_formats())
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
            reader = import_formats()[format]
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
        save_new(result, Path(out))
    return result


def _check_used(options: dict[str, Any], used: Sequence[str], what: str) -> None:
    """Check that no option is given that would be ignored."""
    for argument, value in options.items():
        if value is not None and argument not in used:
            raise BadArgument(f"{argument} is {value!r}, which {what} does not take")


def guess_format(path: Path) -> str:
    """Return the name of the first format that recognises a file or folder."""
    source = Source(path)
    name = next((format.name for format in FORMATS if format.recognises and format.recognises(source)), None)
    if name is None:
        names = ", ".join(import_formats())
        raise BadArgument(f"format is not given and cannot be detected from {path}: give one of {names}")
    return name


def _import_options(
    model: str | None, key: str | None, names: Sequence[str] | None, layers: int | None, heads: int | None
) -> ImportOptions:
    """Collect what the caller knows about the file; the sizes of a model on this machine are read from it."""
    for argument, size in (("layers", layers), ("heads", heads)):
        if size is not None:
            check_count(argument, size, 1, MAX_INDEX + 1)
    sizes = (read_shape(model) if model else None) or (None, None)
    return ImportOptions(key, list(names) if names else None, layers or sizes[0], heads or sizes[1])


def _dataset(tables: Tables, heads: int | None, fill: float | None, file: Path) -> xr.Dataset:
    labels = [_printable(name) for name in tables.scores]
    if duplicates := sorted({label for label in labels if labels.count(label) > 1}):
        raise BadFile(f"{file}: two tables are called {duplicates[0]!r}")

    def stack_by_name(parts: dict[str, np.ndarray]) -> np.ndarray:
        first = next(iter(parts.values()))
        return np.stack([parts.get(name, np.full(first.shape, np.nan)) for name in tables.scores])

    scores = stack_by_name(tables.scores)
    dims = (TABLE.over, "layer", "head")
    variables: dict[str, Any] = {
        TABLE.name: (dims, scores if fill is None else np.where(np.isnan(scores), fill, scores))
    }
    variables |= {
        end: (dims, stack_by_name(part)) for end, part in (("low", tables.low), ("high", tables.high)) if part
    }
    variables |= {name: (dims[1:], values) for name, values in tables.extra.items()}
    if tables.repeats:
        n_repeats = max(map(len, tables.repeats.values()))
        parts = {n: tables.repeats.get(n, tables.scores[n][None]) for n in tables.scores}
        padded = {n: _pad_repeats(part, n_repeats) for n, part in parts.items()}
        variables["scores"] = ((dims[0], "repeat", *dims[1:]), stack_by_name(padded))
    result = xr.Dataset(variables, coords={TABLE.over: labels})
    result = _spread_kv_heads(result, heads, file) if tables.per_kv_head else result
    return result.assign_coords({dim: range(result.sizes[dim]) for dim in ("layer", "head")})


def _pad_repeats(scores: np.ndarray, n_repeats: int) -> np.ndarray:
    return np.pad(scores, [(0, n_repeats - len(scores)), (0, 0), (0, 0)], constant_values=np.nan)


def _spread_kv_heads(result: xr.Dataset, heads: int | None, file: Path) -> xr.Dataset:
    """Repeat scores of KV heads for their query heads; if the number of these is not known, heads stay KV groups."""
    groups = result.sizes["head"]
    kv_scores = {"kv_score": result[TABLE.name].rename(head="kv_head").assign_coords(kv_head=range(groups))}
    if heads is None:
        return result.assign(kv_scores).assign_attrs(unit="KV group", n_kv_heads=groups)
    if heads % groups:
        raise BadArgument(f"heads is {heads}, not a multiple of the {groups} KV heads in {file}")
    spread = result.isel(head=np.repeat(np.arange(groups), heads // groups))
    return spread.assign(kv_scores).assign_attrs(n_kv_heads=groups, per="KV group")


def _origin(file: Path, format: Format, name: str | None, model: str | None, tables: Tables) -> dict[str, Any]:
    stem = file.stem if file.is_file() else file.absolute().name
    if name is None:
        name = format.result_name or re.sub(r"[^\w.-]+", "-", stem).strip(".-")[:60] or "table"
        name = f"{name}-table" if name in method_names() else name
    elif not re.fullmatch(r"\w[\w.-]{0,99}", name) or name in method_names():
        taken = "which is a method" if name in method_names() else "expected letters, numbers, - and _"
        raise BadArgument(f"name is {name!r}, {taken}: give another")
    about = {k: v if isinstance(v, str) else float(v) for k, v in tables.about.items()}
    stated = _printable(str(about.pop("model_name", ""))).rstrip("/").split("/")[-1]
    model = model or stated or stem
    origin = {"method": name, "model": model, "format": format.name, "source": file.name, "imported": 1}
    return {k: _printable(v) if isinstance(v, str) else v for k, v in (about | origin).items()}


def _printable(text: str, limit: int = 200) -> str:
    """Replace what not every file and terminal can hold: line breaks, null bytes, halves of characters."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)[:limit]


def import_notes(result: xr.Dataset) -> list[str]:
    """Describe in sentences what limits comparisons of an imported table: missing heads, and KV heads."""
    if TABLE.name not in result or TABLE.over not in result.dims:
        return []
    missing = result[TABLE.name].isnull().all(TABLE.over)
    lines = []
    if n_missing := int(missing.sum()):
        lines.append(f"{n_missing} of {missing.size} heads have no score and are left out of comparisons (see --fill)")
    if unit_of(result) != "Head":
        lines.append(
            "scores are of KV heads: with --heads, the query heads per layer, they are repeated for query heads"
        )
    return lines


def save_new(result: xr.Dataset, folder: Path) -> Path:
    """Save an imported dataset under the name of its method; never overwrite another, nor mix models in a folder."""
    path = folder / f"{result.attrs['method']}.nc"
    if path.exists():
        raise BadArgument(f"out is {str(folder)!r}, which already has {path.name}: give another folder")
    for other in sorted(folder.glob("*.nc")):
        first, second = (_description(dataset) for dataset in (load(other), result))
        if first != second:
            raise BadArgument(
                f"out is {str(folder)!r}, whose {other.name} holds {first}, not {second}: give another folder"
            )
    save(result, path)
    return path


def _description(result: xr.Dataset) -> str:
    what = "imported scores" if "imported" in result.attrs else "a map"
    return f"{what} of {result.attrs.get('model')} with {result.sizes.get('layer')} × {result.sizes.get('head')} heads"
