"""The formats that other tools read head maps in: one small function each, from maps to the content of files.

name              is
duo-attention     full_attention_heads.tsv, layers × KV heads from 0 to 1, and config.json: DuoAttention, kvpress
headkv            one line of JSON, {"layer-head": [score], …}, layer by layer, none below 0: HeadKV
headvis           config.json, scatter_data.json and a file for each head: HeadVis, as Neuronpedia's pipeline writes it
csv json parquet  a row for every chart, layer and head

Numbers are written with as many digits as it takes to read the same number back.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from headatlas.errors import BadArgument, CannotDo, MissingExtra
from headatlas.methods import measures_of
from headatlas.results.charts import MAP, ranks

HEADS_FILE, CONFIG, SCATTER = "full_attention_heads.tsv", "config.json", "scatter_data.json"
SINK, RECENT = 128, 256  # tokens that DuoAttention's own streaming heads keep
COLUMNS = ("method", "measure", "subject", "layer", "head", "score", "low", "high", "rank")


@dataclass(frozen=True)
class Asked:
    """What is to be written.

    charts: one, or for tables several (`charts.overview`). per_group: whether their heads are KV groups.
    model: its name. dtype: of its numbers. kv_heads: how many a layer has, if that is known.
    sink, recent: tokens that streaming heads keep, if a map says it or the caller. fill: the score of missing heads.
    """

    charts: xr.Dataset
    per_group: bool
    model: str
    dtype: str
    kv_heads: int | None
    sink: int | None
    recent: int | None
    fill: float | None


@dataclass(frozen=True)
class Files:
    """What to write: by path inside a folder, or one file under ''. shape: what it holds; notes: what a reader of it
    must know, a sentence each."""

    content: dict[str, bytes]
    shape: str
    notes: list[str] = field(default_factory=list)


def duo_attention(asked: Asked) -> Files:
    """How much each KV head needs to see everything: the maximum over the heads of its group."""
    score, notes = _every_head(asked, "duo-attention")
    layers, heads = score.shape
    groups = heads if asked.per_group else asked.kv_heads
    if groups is None:
        raise BadArgument("kv_heads is not known of these maps: give it")
    if heads % groups:
        raise BadArgument(f"kv_heads is {groups}, which does not divide the {heads} heads")
    score = score.reshape(layers, groups, heads // groups).max(-1)
    label = asked.charts.chart.item()
    config: dict[str, Any] = {"model_name": asked.model, "source": f"headatlas, {label}"}
    for name, given, default in (("sink_size", asked.sink, SINK), ("recent_size", asked.recent, RECENT)):
        config[name] = default if given is None else given
        if given is None:
            notes.append(f"{name} is {default}, as DuoAttention's own: {label} does not tell it")
    low, high = float(score.min()), float(score.max())
    if low < 0 or high > 1:
        if low == high:
            raise CannotDo(f"{label} is {low:g} for all KV heads: there is nothing to choose by")
        score = (score - low) / (high - low)
        config["scale"] = [low, high]
        notes.append(f"scores from {low:.4g} to {high:.4g} are rescaled to 0 to 1: choose heads by rank, not by 0.5")
    lines = "".join("\t".join(map(repr, row)) + "\n" for row in score.tolist())
    return Files({HEADS_FILE: lines.encode(), CONFIG: _json(config, 2)}, f"{layers} layers × {groups} KV heads", notes)


def headkv(asked: Asked) -> Files:
    """A score for each query head; HeadKV gives heads their share of the cache by it."""
    score, notes = _every_head(asked, "headkv")
    label, below = asked.charts.chart.item(), int((score < 0).sum())
    if asked.per_group:
        raise BadArgument(
            f"chart is {label!r}, which has KV heads only: import it with heads, for headkv has all heads"
        )
    if not (score > 0).any():
        raise CannotDo(f"{label} has no score above 0, which headkv needs")
    if below:
        notes.append(f"{below} scores below 0 are written as 0: headkv has none")
    content = {f"{layer}-{head}": [max(value, 0.0)] for (layer, head), value in np.ndenumerate(score.astype(object))}
    return Files({"": _json(content)}, f"{score.shape[0]} layers × {score.shape[1]} heads", notes)


def headvis(asked: Asked) -> Files:
    """A tree for a viewer of heads, with charts as metrics. It has no example texts, for an atlas has none."""
    charts = asked.charts
    layers, heads = charts.sizes["layer"], charts.sizes["head"]
    places = [(layer, head) for layer in range(layers) for head in range(heads)]
    labels = charts.chart.values.tolist()
    names = [re.sub(r"\W+", "_", label).strip("_").lower() for label in labels]
    if twice := next((n for n in names if names.count(n) > 1), None):
        both = " and ".join(repr(label) for label, n in zip(labels, names, strict=True) if n == twice)
        raise BadArgument(f"charts {both} would both be the metric {twice!r}: choose one with chart")
    score = charts.score.transpose("chart", *MAP).values
    told = [_number(v) for v in score.ravel().tolist()]  # [chart, layer, head], None where there is no score
    size = len(places)
    metrics = [{n: told[i * size + at] for i, n in enumerate(names)} for at in range(size)]
    sampled = {"dataset_name": "none", "n_sequences": 0, "seq_len": 0, "attn_implementation": "none"}
    config = {
        "model_name": asked.model,
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
        "dtype": asked.dtype,
        "pipeline_config": {"model_name": asked.model, "dtype": asked.dtype, **sampled},
    }
    rows = [{"layer": layer, "head": head, **of} for (layer, head), of in zip(places, metrics, strict=True)]
    content = {CONFIG: _json(config, 2), SCATTER: _json(rows)}
    content |= {"server_config.json": _json({}), "attributions/manifest.json": _json({})}
    for (layer, head), of in zip(places, metrics, strict=True):
        content[f"heads/L{layer}H{head}.json"] = _json({"sequences": [], "statistics": of})
    return Files(content, f"{len(names)} metrics of {layers} layers × {heads} heads")


def long_rows(charts: xr.Dataset) -> list[dict[str, Any]]:
    """A row for every chart, layer and head; None where there is no number."""
    names = ("score", "low", "high")
    values = {name: charts[name].transpose("chart", *MAP).values for name in names}
    rank = ranks(charts).transpose("chart", *MAP).values
    rows = []
    for i, (method, measure, subject) in enumerate(
        zip(*(charts[name].values.tolist() for name in COLUMNS[:3]), strict=True)
    ):
        for layer, head in np.ndindex(rank.shape[1:]):
            at = (i, layer, head)
            row = {"method": method, "measure": measure, "subject": subject, "layer": layer, "head": head}
            row |= {name: _number(values[name][at]) for name in names}
            rows.append(row | {"rank": None if np.isnan(rank[at]) else int(rank[at])})
    return rows


def as_csv(asked: Asked) -> Files:
    """Missing numbers are empty cells."""
    rows, text = _rows(asked), io.StringIO()
    table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return Files({"": _utf8(text.getvalue())}, _shape(asked))


def as_json(asked: Asked) -> Files:
    """A list of objects, one in a line; missing numbers are null."""
    lines = ",\n".join(json.dumps(row, ensure_ascii=False, allow_nan=False) for row in _rows(asked))
    return Files({"": _utf8(f"[\n{lines}\n]\n")}, _shape(asked))


def as_parquet(asked: Asked) -> Files:
    """Missing numbers are null."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as e:
        raise MissingExtra("parquet files need pyarrow: pip install 'headatlas[parquet]'") from e
    rows, kinds = _rows(asked), [pyarrow.string()] * 3 + [pyarrow.int64()] * 2 + [pyarrow.float64()] * 3
    schema = pyarrow.schema(list(zip(rows[0], [*kinds, pyarrow.int64()], strict=True)))
    buffer = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), buffer)
    return Files({"": buffer.getvalue().to_pybytes()}, _shape(asked))


WRITERS: Mapping[str, Callable[[Asked], Files]] = {
    "duo-attention": duo_attention,
    "headkv": headkv,
    "headvis": headvis,
    "csv": as_csv,
    "json": as_json,
    "parquet": as_parquet,
}


def _every_head(asked: Asked, to: str) -> tuple[np.ndarray, list[str]]:
    """The scores [layer, head] of one chart, with what was filled in; and what must be said of them."""
    one = asked.charts.squeeze("chart")
    score, notes = one.score.transpose(*MAP).values.astype(float), []
    if np.isinf(score).any():
        raise CannotDo(f"{one.chart.item()} has infinite scores, which {to} cannot hold")
    missing = np.isnan(score)
    if missing.any():
        where = [str(i) for i in np.flatnonzero(missing.any(1))]
        lacks = f"{missing.sum()} of {missing.size} heads (layer{'s' * (len(where) > 1)} {', '.join(where)})"
        if asked.fill is None:
            raise BadArgument(f"fill is not given, but {one.chart.item()} has no score for {lacks}: {to} has all heads")
        score = np.where(missing, asked.fill, score)
        notes.append(f"{lacks} have no score: {asked.fill:g} is written")
    if bool(one.none_above):
        notes.append(f"no head of {one.chart.item()} is above chance")
    return score, notes


def _rows(asked: Asked) -> list[dict[str, Any]]:
    rows = long_rows(asked.charts)
    if asked.per_group:
        rows = [{"kv_head" if name == "head" else name: value for name, value in row.items()} for row in rows]
    return rows


def _shape(asked: Asked) -> str:
    charts = asked.charts
    units = "KV heads" if asked.per_group else "heads"
    return f"{charts.sizes['chart']} charts of {charts.sizes['layer']} layers × {charts.sizes['head']} {units}"


def _meaning(chart: xr.Dataset) -> str:
    measures = {m.name: m for m in measures_of(chart.method.item())}
    return f"{chart.chart.item()}. {measures[chart.measure.item()].meaning}".strip()


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _json(content: Any, indent: int | None = None) -> bytes:
    return _utf8(json.dumps(content, indent=indent, ensure_ascii=False, allow_nan=False) + "\n")


def _utf8(text: str) -> bytes:
    """Lone surrogates, which UTF-8 cannot hold, are written as JSON escapes them."""
    return text.encode(errors="backslashreplace")
