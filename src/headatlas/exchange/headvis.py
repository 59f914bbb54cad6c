"""headvis: a folder with config.json, scatter_data.json and a file per head, as Neuronpedia's pipeline writes it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from headatlas.errors import BadArgument, BadFile, brief
from headatlas.exchange.format import Format, Source

if TYPE_CHECKING:
    import xarray as xr

    from headatlas.exchange.checked_tables import ImportOptions, Tables
    from headatlas.exchange.export_request import ExportRequest, Files

CONFIG_FILE = "config.json"
SCATTER_FILE = "scatter_data.json"


def recognises(source: Source) -> bool:
    return source.holds(SCATTER_FILE)


def read(path: Path, options: ImportOptions) -> Tables:
    """Read the metrics of heads, each as a table. A head whose metric is null has no score."""
    from headatlas.exchange.checked_tables import Entry, Tables, pad_tables, place_scores, read_json

    folder = path if path.is_dir() else path.parent
    file = folder / SCATTER_FILE
    rows = read_json(file)
    config = read_json(folder / CONFIG_FILE) if (folder / CONFIG_FILE).is_file() else {}
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise BadFile(f"{file} holds {brief(rows)}, expected a list of objects, one for each head")
    if not isinstance(config, dict):
        raise BadFile(f"{folder / CONFIG_FILE} holds {brief(config)}, expected an object")
    metrics = config.get("metrics")
    names = metrics if isinstance(metrics, list) else [name for name in rows[0] if name not in ("layer", "head")]
    layers = options.layers or config.get("n_layers")
    heads = options.heads or config.get("n_heads")
    scores = {}
    for name in map(str, names):
        entries = [
            Entry(row.get("layer"), row.get("head"), row.get(name), f"{file}: row {i + 1}, {brief(name)}")
            for i, row in enumerate(rows)
        ]
        # Metrics without any score are left out.
        if any(entry.values is not None for entry in entries):
            scores[name] = place_scores(entries, file, layers, heads)[0]
    if not scores:
        raise BadFile(f"{file} has no metrics")
    about = {"model_name": config["model_name"]} if isinstance(config.get("model_name"), str) else {}
    return Tables(pad_tables(scores), about=about)


def write(request: ExportRequest) -> Files:
    """Write charts as metrics for a viewer of heads; without example texts, which an atlas does not have."""
    from headatlas.exchange.export_request import MAP, Files, finite_or_none, json_bytes

    charts = request.charts
    layers, heads = charts.sizes["layer"], charts.sizes["head"]
    places = [(layer, head) for layer in range(layers) for head in range(heads)]
    labels = charts.chart.values.tolist()
    names = [re.sub(r"\W+", "_", label).strip("_").lower() for label in labels]
    if duplicate := next((n for n in names if names.count(n) > 1), None):
        both = " and ".join(repr(label) for label, n in zip(labels, names, strict=True) if n == duplicate)
        raise BadArgument(f"charts {both} would both be the metric {duplicate!r}: choose one with chart")
    # The same head order as in `places`.
    scores = charts.score.transpose(*MAP, "chart").values.reshape(len(places), len(names)).tolist()
    metrics = [dict(zip(names, map(finite_or_none, values), strict=True)) for values in scores]
    sampled = {"dataset_name": "none", "n_sequences": 0, "seq_len": 0, "attn_implementation": "none"}
    config = {
        "model_name": request.model,
        "heads": [list(place) for place in places],
        "n_layers": layers,
        "n_heads": heads,
        "n_intervals": 1,
        "metrics": names,
        "metric_descriptions": {n: _meaning(charts.isel(chart=i)) for i, n in enumerate(names)},
        "head_data_pattern": "L{layer}H{head}.json",
        "has_umap": False,
        "umap_heads": [],
        "custom_plots": [],
        "custom_tables": [],
        "statistics_display": {
            n: {"label": label, "format": "default"} for n, label in zip(names, labels, strict=True)
        },
        **sampled,
        "dtype": request.dtype,
        "pipeline_config": {"model_name": request.model, "dtype": request.dtype, **sampled},
    }
    rows = [{"layer": layer, "head": head, **metric} for (layer, head), metric in zip(places, metrics, strict=True)]
    content = {CONFIG_FILE: json_bytes(config, indent=2), SCATTER_FILE: json_bytes(rows)}
    content |= {"server_config.json": json_bytes({}), "attributions/manifest.json": json_bytes({})}
    for (layer, head), metric in zip(places, metrics, strict=True):
        content[f"heads/L{layer}H{head}.json"] = json_bytes({"sequences": [], "statistics": metric})
    return Files(content, f"{len(names)} metrics of {layers} layers × {heads} heads")


def _meaning(chart: xr.Dataset) -> str:
    from headatlas.methods import measures_of

    measures = {m.name: m for m in measures_of(chart.method.item())}
    return f"{chart.chart.item()}. {measures[chart.measure.item()].meaning}".strip()


FORMAT = Format("headvis", read=read, recognises=recognises, result_name="headvis", write=write, is_folder=True)
