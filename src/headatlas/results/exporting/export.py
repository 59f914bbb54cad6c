"""Which maps of an atlas to write, in which format, and where."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from headatlas.errors import BadArgument, CannotDo, brief, check_choice, check_count, did_you_mean
from headatlas.files import check_new, new_path
from headatlas.methods import measures_of, methods
from headatlas.results.about import unit
from headatlas.results.agree import side_by_side
from headatlas.results.atlas import Atlas, open_atlas
from headatlas.results.charts import overview
from headatlas.results.exporting import FOLDERS, FORMATS, ONE_MAP, TABLES
from headatlas.results.exporting.formats import WRITERS, Asked, Files

USES = {"duo-attention": ("sink", "recent", "kv_heads", "fill"), "headkv": ("fill",)}  # options of some formats
LISTED = 12  # charts that an error names, at most


def export(
    atlas: Mapping[str, xr.Dataset] | xr.Dataset | str | Path,
    to: str,
    out: str | Path,
    *,
    chart: str | None = None,
    method: str | None = None,
    measure: str | None = None,
    subject: str | None = None,
    sink: int | None = None,
    recent: int | None = None,
    kv_heads: int | None = None,
    fill: float | None = None,
) -> list[str]:
    """Write maps as a file or folder that another tool reads. `import_scores` reads each of them back.

    Args:
        atlas: an atlas, its folder, a result of a method, or results by method.
        to: duo-attention, headkv, headvis, csv, json or parquet.
        out: a new file; for duo-attention and headvis, a new folder.
        chart: the map by its name, such as 'streaming: passkeys'. duo-attention and headkv hold one; without it, that
            of a method that is made for the format (streaming, retrieval). Others hold all, or the one.
        method: instead of chart, only maps of this method;
        measure: only of this measure;
        subject: only of this task, function, relation, …
        sink: duo-attention: first tokens that streaming heads keep; without it, as the map was made with, or 128.
        recent: duo-attention: last tokens that they keep; without it, as the map was made with, or 256.
        kv_heads: duo-attention: KV heads of a layer, if the atlas does not say it.
        fill: duo-attention, headkv: the score of heads that have none, such as those of layers without attention.

    Returns:
        What was written, and what a reader of it must know, a sentence each.

    Example:
        >>> ha.export("atlas", "duo-attention", "pattern", chart="streaming: passkeys")
    """
    check_choice("to", to, FORMATS)
    target = check_new(out, _kind(to))
    if to in TABLES and target.suffix.lower() != f".{to}":
        raise BadArgument(f"out is {str(out)!r}, expected a file that ends in .{to}")
    options = {"sink": sink, "recent": recent, "kv_heads": kv_heads, "fill": fill}
    _check_options(to, options)
    named = {"chart": chart, "method": method, "measure": measure, "subject": subject}
    if chart is not None and (other := next((n for n in list(named)[1:] if named[n] is not None), None)):
        raise BadArgument(f"chart is {chart!r} and {other} is {named[other]!r}: give one of them")
    maps, _ = side_by_side([atlas])
    charts = overview(maps)
    if not charts.sizes["chart"]:
        raise CannotDo(f"atlas {brief(str(atlas))} has no maps to export" if _is_path(atlas) else "atlas has no maps")
    charts = _narrowed(charts, named)
    if to in ONE_MAP:
        charts = _only_one(charts, to, maps)
    files = WRITERS[to](_asked(atlas, maps, charts, options))
    _write(target, to, files)
    source = f", {charts.chart.item()}" if charts.sizes["chart"] == 1 else ""
    return [f"wrote {target}: {to}{source}, {files.shape}", *files.notes]


def _kind(to: str) -> str:
    return "folder" if to in FOLDERS else "file"


def _is_path(atlas: Any) -> bool:
    return isinstance(atlas, str | Path)


def _check_options(to: str, options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        if value is not None and name not in USES.get(to, ()):
            raise BadArgument(f"{name} is {value!r}, which {to} does not take")
    for name, least in (("sink", 0), ("recent", 1), ("kv_heads", 1)):
        if options[name] is not None:
            check_count(name, options[name], least)
    if options["fill"] is not None and not np.isfinite(options["fill"]):
        raise BadArgument(f"fill is {options['fill']}, expected a finite number")


def _narrowed(charts: xr.Dataset, named: Mapping[str, str | None]) -> xr.Dataset:
    """The charts with these names."""
    for coordinate, name in named.items():
        if name is None:
            continue
        values = charts[coordinate].values.tolist()
        if name not in values:
            known = list(dict.fromkeys(values))
            raise BadArgument(f"{coordinate} is {name!r}, expected one of {_some(known)}.{did_you_mean(name, known)}")
        charts = charts.isel(chart=[i for i, value in enumerate(values) if value == name])
    return charts


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"{', '.join(map(repr, names[:LISTED]))}{more}"


def _only_one(charts: xr.Dataset, to: str, maps: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """One chart: of a method that is made for the format, where there is one; by its first measure.

    maps: all of the atlas, for the error to name the method that is missing.
    """
    present = list(dict.fromkeys(charts.method.values.tolist()))
    if len(present) > 1:
        fits = [(methods()[name].exports.index(to), name) for name in present if _fits(name, to)]
        present = [min(fits)[1]] if fits else present
        charts = charts.isel(chart=np.flatnonzero(np.isin(charts.method, present)))
    if len(present) == 1:
        first = next(m.name for m in measures_of(present[0]) if m.name in charts.measure.values)
        charts = charts.isel(chart=np.flatnonzero(charts.measure == first))
    if charts.sizes["chart"] > 1:
        known = _some(charts.chart.values.tolist())
        if not any(_fits(name, to) for name in maps):
            makers = sorted(
                (method.exports.index(to), name) for name, method in methods().items() if to in method.exports
            )
            commands = " or ".join(f"`headatlas {name}`" for _, name in makers)
            raise BadArgument(f"the atlas has no map made for {to}: make one with {commands}, or give chart: {known}")
        raise BadArgument(f"chart is not given, and {to} holds one: give one of {known}")
    return charts


def _fits(method: str, to: str) -> bool:
    return method in methods() and to in methods()[method].exports


def _asked(atlas: Any, maps: Mapping[str, xr.Dataset], charts: xr.Dataset, options: Mapping[str, Any]) -> Asked:
    names = list(dict.fromkeys(charts.method.values.tolist()))
    about = maps[names[0]].attrs
    info = open_atlas(atlas, "atlas").info if _is_path(atlas) and Path(atlas).is_dir() else {}
    model = (atlas.info if isinstance(atlas, Atlas) else info).get("model", {})
    groups = options["kv_heads"] or about.get("n_kv_heads")
    kept = {name: about.get(name) if options[name] is None else options[name] for name in ("sink", "recent")}
    return Asked(
        charts,
        per_group=all(unit(maps[name]) != "Head" for name in names),
        model=str(about.get("model") or model.get("name", "")),
        dtype=str(model.get("dtype") or about.get("dtype") or "unknown"),
        kv_heads=None if groups is None else int(groups),
        sink=None if kept["sink"] is None else int(kept["sink"]),
        recent=None if kept["recent"] is None else int(kept["recent"]),
        fill=options["fill"],
    )


def _write(target: Path, to: str, files: Files) -> None:
    """All of it, or nothing."""
    with new_path(target, _kind(to)) as place:
        for name, content in files.content.items():
            path = place / name if name else place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
