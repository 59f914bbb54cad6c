"""Export maps of an atlas to the file formats of other tools."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from headatlas.comparison.side_by_side import check_one_size, side_by_side
from headatlas.errors import BadArgument, CannotDo, brief, check_choice, check_count, did_you_mean
from headatlas.exchange import export_formats
from headatlas.exchange.export_request import ExportRequest, Files
from headatlas.exchange.format import Format
from headatlas.files import check_new, new_path
from headatlas.methods import measures_of, methods
from headatlas.results.about import unit_of
from headatlas.results.atlas import Atlas, open_atlas
from headatlas.results.charts import stack_maps

# Charts listed in an error message.
MAX_LISTED = 12


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
    """Write maps as a file or folder that another tool reads. `import_scores` reads every format back.

    Args:
        atlas: an atlas, its folder, a result of a method, or results by method.
        to: duo-attention, headkv, headvis, csv, json or parquet.
        out: a new file; for duo-attention and headvis, a new folder.
        chart: name of the map to write, such as 'streaming: passkeys'. duo-attention and headkv hold one map (default:
            that of a method made for the format, streaming or retrieval). Other formats hold all maps by default.
        method: instead of chart, write only maps of this method;
        measure: only maps of this measure;
        subject: only maps of this task, function, relation, …
        sink: duo-attention: first tokens that streaming heads keep (default: those of the map, or 128).
        recent: duo-attention: last tokens that streaming heads keep (default: those of the map, or 256).
        kv_heads: duo-attention: KV heads per layer, if the atlas does not record them.
        fill: duo-attention, headkv: the score for heads without one, such as those of layers without attention.

    Returns:
        Sentences: what was written, and what a reader of the files must know.

    Example:
        >>> ha.export("atlas", "duo-attention", "pattern", chart="streaming: passkeys")
    """
    check_choice("to", to, export_formats())
    format = export_formats()[to]
    target = check_new(out, _kind(format))
    if format.ending and target.suffix.lower() != format.ending:
        raise BadArgument(f"out is {str(out)!r}, expected a file that ends in {format.ending}")
    options = {"sink": sink, "recent": recent, "kv_heads": kv_heads, "fill": fill}
    _check_options(format, options)
    names = {"chart": chart, "method": method, "measure": measure, "subject": subject}
    if chart is not None and (other := next((n for n in list(names)[1:] if names[n] is not None), None)):
        raise BadArgument(f"chart is {chart!r} and {other} is {names[other]!r}: give one of them")
    maps, origin = side_by_side([atlas])
    if maps:
        check_one_size(maps, origin)
    charts = stack_maps(maps)
    if not charts.sizes["chart"]:
        raise CannotDo(f"atlas {brief(str(atlas))} has no maps to export" if _is_path(atlas) else "atlas has no maps")
    charts = _select(charts, names)
    if format.one_map:
        charts = _select_one(charts, to, maps)
    assert format.write is not None
    files = format.write(_request(atlas, maps, charts, options))
    _write(target, format, files)
    source = f", {charts.chart.item()}" if charts.sizes["chart"] == 1 else ""
    return [f"wrote {target}: {to}{source}, {files.shape}", *files.notes]


def _kind(format: Format) -> str:
    return "folder" if format.is_folder else "file"


def _is_path(atlas: Any) -> bool:
    return isinstance(atlas, str | Path)


def _check_options(format: Format, options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        if value is not None and name not in format.export_options:
            raise BadArgument(f"{name} is {value!r}, which {format.name} does not take")
    for name, minimum in (("sink", 0), ("recent", 1), ("kv_heads", 1)):
        if options[name] is not None:
            check_count(name, options[name], minimum)
    if options["fill"] is not None and not np.isfinite(options["fill"]):
        raise BadArgument(f"fill is {options['fill']}, expected a finite number")


def _select(charts: xr.Dataset, names: Mapping[str, str | None]) -> xr.Dataset:
    """Keep the charts with these names."""
    for coordinate, name in names.items():
        if name is None:
            continue
        values = charts[coordinate].values.tolist()
        if name not in values:
            choices = list(dict.fromkeys(values))
            listed = _list_names(choices)
            raise BadArgument(f"{coordinate} is {name!r}, expected one of {listed}.{did_you_mean(name, choices)}")
        charts = charts.isel(chart=[i for i, value in enumerate(values) if value == name])
    return charts


def _list_names(names: Sequence[str]) -> str:
    rest = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return f"{', '.join(map(repr, names[:MAX_LISTED]))}{rest}"


def _select_one(charts: xr.Dataset, to: str, in_atlas: Collection[str]) -> xr.Dataset:
    """Select one chart: of a method made for the format, if the atlas has one, and of its first measure."""
    preference = {name: record.exports.index(to) for name, record in methods().items() if to in record.exports}
    makers = sorted(preference, key=lambda name: preference[name])
    present = list(dict.fromkeys(charts.method.values.tolist()))
    suited = [name for name in makers if name in present]
    if len(present) > 1 and suited:
        present = suited[:1]
        charts = charts.isel(chart=np.flatnonzero(charts.method == suited[0]))
    if len(present) == 1:
        first = next(m.name for m in measures_of(present[0]) if m.name in charts.measure.values)
        charts = charts.isel(chart=np.flatnonzero(charts.measure == first))
    if charts.sizes["chart"] > 1:
        labels = _list_names(charts.chart.values.tolist())
        if not set(makers) & set(in_atlas):
            commands = " or ".join(f"`headatlas {name.replace('_', '-')}`" for name in makers)
            raise BadArgument(f"the atlas has no map made for {to}: make one with {commands}, or give chart: {labels}")
        raise BadArgument(f"chart is not given, and {to} holds one map: give one of {labels}")
    return charts


def _request(
    atlas: Any, maps: Mapping[str, xr.Dataset], charts: xr.Dataset, options: Mapping[str, Any]
) -> ExportRequest:
    """Collect what the writer needs: the charts, and what results and atlas record about their model."""
    names = list(dict.fromkeys(charts.method.values.tolist()))
    about = maps[names[0]].attrs
    info = open_atlas(atlas, "atlas").info if _is_path(atlas) and Path(atlas).is_dir() else {}
    model = (atlas.info if isinstance(atlas, Atlas) else info).get("model", {})
    groups = options["kv_heads"] or about.get("n_kv_heads")
    sizes = {name: about.get(name) if options[name] is None else options[name] for name in ("sink", "recent")}
    return ExportRequest(
        charts,
        per_group=all(unit_of(maps[name]) != "Head" for name in names),
        model=str(about.get("model") or model.get("name", "")),
        dtype=str(model.get("dtype") or about.get("dtype") or "unknown"),
        kv_heads=None if groups is None else int(groups),
        sink=None if sizes["sink"] is None else int(sizes["sink"]),
        recent=None if sizes["recent"] is None else int(sizes["recent"]),
        fill=options["fill"],
    )


def _write(target: Path, format: Format, files: Files) -> None:
    """Write all files, or none."""
    with new_path(target, _kind(format)) as place:
        for name, content in files.content.items():
            path = place / name if name else place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
