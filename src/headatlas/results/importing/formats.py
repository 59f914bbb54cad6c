"""The formats that head tables are published in: one small function each, and how a file's format is told.

name              looks like
retrieval-head    JSON {"layer-head": [score, …], …}; headkv is the same
duo-attention     a folder with full_attention_heads.tsv, layers × KV heads, and config.json
ranked            JSON list of [layer, head, score], of {"layer", "head" or "head_idx", "score"}, or of objects with one
                  entry that is such a triple; or an object of such lists
layers-by-heads   JSON list of layers, each a list of scores; or an object of such lists; or either below `key`
minference        JSON list over layers of {"head": [pattern, a, b, score], …}
maps              scores.csv of the MAPS repository, a row for each template, layer and head; or a folder of relations
headvis           a folder with scatter_data.json, an object for each head with its metrics, and config.json
csv json parquet  rows with layer, head (or kv_head) and score; method, subject, measure, … name the table
npy               [layer, head] or [table, layer, head]
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from headatlas.errors import BadArgument, BadFile, brief, check_unique
from headatlas.results.importing import FORMATS
from headatlas.results.importing.numbers import (
    Asked,
    Entry,
    Tables,
    check_size,
    number,
    padded,
    place,
    read_json,
    read_text,
    same_shape,
    square,
    under,
)
from headatlas.results.importing.rows import as_number, long_table, ranked, read_csv

HEADS_FILE, SCATTER = "full_attention_heads.tsv", "scatter_data.json"
DYNAMIC = {  # columns of MAPS' scores.csv, and what they are called here
    "w_context_dynamic_relation_scores": "with context",
    "w_context_suppression_dynamic_relation_scores": "with context, suppression",
    "wo_context_dynamic_relation_scores": "without context",
    "wo_context_suppression_dynamic_relation_scores": "without context, suppression",
}


def retrieval_head(path: Path, asked: Asked) -> Tables:
    """Scores of every head, one for each needle; their mean is the head's."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise BadFile(f'{path} holds {brief(content)}, expected an object such as {{"12-5": [0.1, 0.2]}}')
    entries = []
    for name, values in content.items():
        match = re.fullmatch(r"(\d{1,9})-(\d{1,9})", name)
        if not match:
            raise BadFile(f"{path}: the key {brief(name)} is not a head, such as '12-5' for layer 12, head 5")
        entries.append(Entry(int(match[1]), int(match[2]), values, f"{path}: {name}"))
    return _repeated({"retrieval": place(entries, path, asked.layers, asked.heads, several=True)})


def duo_attention(path: Path, asked: Asked) -> Tables:
    """How much each KV head needs all of the text (1), or gets by with its first and last tokens (0)."""
    folder = path if path.is_dir() else path.parent
    file, settings = folder / HEADS_FILE, folder / "config.json"
    if not file.is_file():
        raise BadFile(f"{folder} lacks {HEADS_FILE}")
    lines = [line.split() for line in read_text(file).splitlines() if line.strip()]
    scores = square([[as_number(cell) for cell in line] for line in lines], str(file))
    same_shape({"": scores}, file, asked.layers, None)
    config = read_json(settings) if settings.is_file() else {}
    if not isinstance(config, dict):
        raise BadFile(f"{settings} holds {brief(config)}, expected an object")
    known = ("model_name", "sink_size", "recent_size")
    about = {name: config[name] for name in known if type(config.get(name)) in (str, int)}
    return Tables({"full attention": scores}, per_kv_head=True, about=about)


def layers_by_heads(path: Path, asked: Asked) -> Tables:
    """A list of layers, each a list of scores; or several such by name."""
    content = under(read_json(path), asked.key, path)
    if isinstance(content, dict) and not (content and all(_is_square(value) for value in content.values())):
        keys = ", ".join(brief(name, 30) for name in list(content)[:8]) or "none"
        raise BadFile(f"{path} has the keys {keys}: give key, for where the list of layers is")
    tables = content if isinstance(content, dict) else {asked.label: content}
    scores = {
        name: square(v, f"{path}: {brief(name)}" if tables is content else str(path)) for name, v in tables.items()
    }
    same_shape(scores, path, asked.layers, asked.heads)
    return Tables(scores)


def minference(path: Path, asked: Asked) -> Tables:
    """The sparse pattern that suits each head best, its two sizes, and a score: how much attention it keeps."""
    content = read_json(path)
    if not isinstance(content, list) or not all(isinstance(layer, dict) for layer in content):
        raise BadFile(f"{path} holds {brief(content)}, expected a list of layers, each an object of heads")
    entries, patterns = [], []
    for i, (head, best) in ((i, item) for i, layer in enumerate(content) for item in layer.items()):
        where = f"{path}: layer {i}, head {brief(head, 20)}"
        if not re.fullmatch(r"\d{1,9}", head):
            raise BadFile(f"{where}: the key is not the number of a head")
        if not isinstance(best, list) or len(best) != 4 or not isinstance(best[0], str):
            raise BadFile(f"{where} holds {brief(best)}, expected [pattern, a, b, score]")
        entries.append(Entry(i, int(head), best[3], where))
        patterns.append((best[0], number(best[1], where, "a"), number(best[2], where, "b")))
    scores = place(entries, path, asked.layers, asked.heads)[0]
    at = tuple(np.array([(e.layer, e.head) for e in entries]).T)
    extra = {"pattern": np.full(scores.shape, "", object)}
    extra |= {name: np.full(scores.shape, np.nan) for name in ("size_a", "size_b")}
    for array, values in zip(extra.values(), zip(*patterns, strict=True), strict=True):
        array[at] = values
    return Tables({"best pattern": scores}, extra=extra | {"pattern": extra["pattern"].astype(str)})


def maps(path: Path, asked: Asked) -> Tables:
    """Scores that MAPS measured in texts: rows without numbers, template by template, layer by layer."""
    if asked.layers is None or asked.heads is None:
        raise BadArgument(f"layers and heads must be given: the rows of {path} do not tell them")
    names = ("scores.csv", "results.csv")
    files = sorted(f for name in names for f in path.glob(f"*/{name}")) if path.is_dir() else [path]
    if not files:
        raise BadFile(f"{path} has no folders with {' or '.join(names)}")
    tables: dict[str, np.ndarray] = {}
    for file in files:
        header, *lines = read_csv(file)
        if not set(header) <= set(DYNAMIC):
            raise BadFile(f"{file} has the columns {brief(', '.join(header))}, expected some of {', '.join(DYNAMIC)}")
        repeats, left = divmod(len(lines), asked.layers * asked.heads)
        if left or not repeats:
            multiple = f"{asked.layers} layers × {asked.heads} heads = {asked.layers * asked.heads}"
            raise BadFile(f"{file} has {len(lines)} rows, expected a multiple of {multiple}")
        check_size(file, repeats * len(header), asked.layers, asked.heads)
        for i, column in enumerate(header):
            cells = [number(as_number(row[i]), f"{file}: row {r + 1}", column) for r, row in enumerate(lines)]
            scores = np.array(cells).reshape(repeats, asked.layers, asked.heads)
            tables[f"{file.absolute().parent.name}, {DYNAMIC[column]}"] = scores
    return _repeated(tables)


def headvis(path: Path, asked: Asked) -> Tables:
    """Metrics of heads: each is a table. Heads whose metric is null have none."""
    folder = path if path.is_dir() else path.parent
    rows = read_json(folder / SCATTER)
    config = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise BadFile(f"{folder / SCATTER} holds {brief(rows)}, expected a list of objects, one for each head")
    if not isinstance(config, dict):
        raise BadFile(f"{folder / 'config.json'} holds {brief(config)}, expected an object")
    told = config.get("metrics")
    names = told if isinstance(told, list) else [name for name in rows[0] if name not in ("layer", "head")]
    layers, heads = (asked.layers or config.get("n_layers"), asked.heads or config.get("n_heads"))
    scores = {}
    for name in map(str, names):
        entries = [
            Entry(row.get("layer"), row.get("head"), row.get(name), f"{folder / SCATTER}: row {i + 1}, {brief(name)}")
            for i, row in enumerate(rows)
        ]
        if any(entry.values is not None for entry in entries):  # a metric that no head has is no table
            scores[name] = place(entries, folder / SCATTER, layers, heads)[0]
    if not scores:
        raise BadFile(f"{folder / SCATTER} has no metrics")
    about = {"model_name": config["model_name"]} if isinstance(config.get("model_name"), str) else {}
    return Tables(padded(scores), about=about)


def npy(path: Path, asked: Asked) -> Tables:
    """An array; NaN is a head that there is not."""
    values = np.load(path, mmap_mode="r", allow_pickle=False)
    if values.dtype.kind not in "biuf" or values.ndim not in (2, 3) or 0 in values.shape:
        expected = "numbers [layer, head] or [table, layer, head]"
        raise BadFile(f"{path} holds {values.dtype} of the shape {values.shape}, expected {expected}")
    check_size(path, values.size // (values.shape[-2] * values.shape[-1]), *values.shape[-2:])
    scores = np.array(values, np.float64).reshape(-1, *values.shape[-2:])
    if np.isinf(scores).any():
        table, layer, head = (int(i) for i in np.argwhere(np.isinf(scores))[0])
        raise BadFile(f"{path}: table {table}, layer {layer}, head {head} is infinite")
    names = asked.names or ([asked.label] if len(scores) == 1 else [f"table {i}" for i in range(len(scores))])
    if len(names) != len(scores):
        raise BadArgument(f"names has {len(names)} names, but {path} has {len(scores)} tables")
    check_unique("names", names)
    tables = dict(zip(names, scores, strict=True))
    same_shape(tables, path, asked.layers, asked.heads)
    return Tables(tables)


READERS: Mapping[str, Callable[[Path, Asked], Tables]] = {
    "retrieval-head": retrieval_head,
    "headkv": retrieval_head,
    "duo-attention": duo_attention,
    "ranked": ranked,
    "layers-by-heads": layers_by_heads,
    "minference": minference,
    "maps": maps,
    "headvis": headvis,
    "csv": long_table,
    "json": long_table,
    "parquet": long_table,
    "npy": npy,
}


def guess(path: Path) -> str:
    """The format of a file or folder, where only one can be meant."""
    if (path / HEADS_FILE).is_file() or path.name == HEADS_FILE:
        return "duo-attention"
    if (path / SCATTER).is_file() or path.name == SCATTER:
        return "headvis"
    if path.is_dir():
        name = "maps" if [*path.glob("*/scores.csv"), *path.glob("*/results.csv")] else ""
    elif path.suffix.lower() == ".csv":
        name = "maps" if set(read_csv(path)[0]) <= set(DYNAMIC) else "csv"
    elif path.suffix.lower() == ".json":
        name = _layout(read_json(path))
    else:
        name = path.suffix.lower().removeprefix(".")
    if name not in FORMATS:
        raise BadArgument(f"format is not given, and {path} does not tell it: give one of {', '.join(FORMATS)}")
    return name


def _layout(content: Any) -> str:
    """The format of what a JSON file holds; '' where it is none of ours, or where there are two."""
    if isinstance(content, dict) and content:
        if all(re.fullmatch(r"\d+-\d+", key) for key in content):
            return "retrieval-head"
        inside = {_layout(value) if isinstance(value, list) else "" for value in content.values()}
        return inside.pop() if inside in ({"ranked"}, {"layers-by-heads"}) else ""
    first = content[0] if isinstance(content, list) and content else None
    if isinstance(first, dict) and {"layer", "layer_idx"} & set(first):
        return "json" if {"method", "subject", "measure"} & set(first) else "ranked"
    if isinstance(first, dict) and first:
        one = next(iter(first.values()))
        if isinstance(one, list) and len(one) == 4 and isinstance(one[0], str):
            return "minference"
        return "ranked" if len(first) == 1 and isinstance(one, list) and len(one) == 3 else ""
    triples = _is_square(content) and all(len(row) == 3 and all(type(v) is int for v in row[:2]) for row in content)
    return "layers-by-heads" if _is_square(content) and not triples else ""  # triples may be three heads a layer


def _is_square(value: Any) -> bool:
    rows = isinstance(value, list) and bool(value) and all(isinstance(row, list) and row for row in value)
    return rows and all(type(v) in (int, float) for row in value for v in row)


def _repeated(tables: dict[str, np.ndarray]) -> Tables:
    """Of scores [repeat, layer, head]: their means; and where there are several, each."""
    means = {}
    for name, scores in tables.items():
        count = np.isfinite(scores).sum(0)
        means[name] = np.where(count > 0, np.nansum(scores, 0) / np.maximum(count, 1), np.nan)
    return Tables(means, repeats={name: scores for name, scores in tables.items() if len(scores) > 1})
