"""Read text and JSON strictly, and put scores in their place. Nothing that is read is run."""

import json
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from headatlas.errors import BadArgument, BadFile, brief, did_you_mean, one_line

# More numbers than this are a mistake in the file.
MAX_NUMBERS = 50_000_000
# A larger number is not the index of a layer or head.
MAX_INDEX = 9_999
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class ImportOptions:
    """What the caller says of a file: the key its table lies below, tables' names, how many layers and heads."""

    key: str | None = None
    names: list[str] | None = None
    layers: int | None = None
    heads: int | None = None

    @property
    def table_name(self) -> str:
        """The name of the file's only table."""
        return self.key.split(".")[-1] if self.key else "score"


@dataclass(frozen=True)
class Tables:
    """Tables of scores from a file.

    scores: by the table's name, [layer, head]; NaN for heads that are not in it. low, high: their intervals.
    repeats: what they are means of, [repeat, layer, head]. extra: other values of every head, [layer, head].
    per_kv_head: heads are key-value heads. about: attributes for the result.
    """

    scores: dict[str, np.ndarray]
    low: dict[str, np.ndarray] = field(default_factory=dict)
    high: dict[str, np.ndarray] = field(default_factory=dict)
    repeats: dict[str, np.ndarray] = field(default_factory=dict)
    extra: dict[str, np.ndarray] = field(default_factory=dict)
    per_kv_head: bool = False
    about: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    """What a file says of one head, and where it says it."""

    layer: Any
    head: Any
    values: Any  # a number, a list of them, or None: there is no such head
    where: str


def read_text(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8-sig")
    except OSError as e:
        raise BadFile(f"cannot read {file}: {e.strerror}") from e
    except UnicodeDecodeError as e:
        raise BadFile(f"{file} is not UTF-8 text: byte {e.start} is {e.object[e.start]:#04x}") from e


def read_json(file: Path) -> Any:
    """JSON in which no key stands twice."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content, names = dict(pairs), set[str]()
        for name, _ in pairs if len(content) < len(pairs) else ():
            if name in names:
                raise BadFile(f"{file}: the key {brief(name)} stands there twice")
            names.add(name)
        return content

    try:
        return json.loads(read_text(file), object_pairs_hook=once)
    except RecursionError as e:
        raise BadFile(f"{file} is nested too deeply to be a table of scores") from e
    except ValueError as e:
        raise BadFile(f"{file} is not JSON: {one_line(e)}") from e


def under(content: Any, key: str | None, path: Path) -> Any:
    """What lies below a key: 'scores', or through objects and lists 'model_results.2.induction_scores'."""
    if key is None or (isinstance(content, dict) and key in content):
        return content if key is None else content[key]
    for part in key.split("."):
        inside = content if isinstance(content, dict) else {}
        if isinstance(content, list):
            inside = {str(i): value for i, value in enumerate(content)}
        if part not in inside:
            known = [brief(name, 40).strip("'") for name in list(inside)[:12]]
            more = f" and {len(inside) - 12} more" if len(inside) > 12 else ""
            there = f"there are {', '.join(known)}{more}.{did_you_mean(part, inside)}" if inside else "nothing is there"
            raise BadArgument(f"key is {key!r}: {path} has no {part!r} there; {there}")
        content = inside[part]
    return content


def number(value: Any, where: str, what: str = "score") -> float:
    """A finite number; not a text, nor true or false."""
    try:
        result = float(value) if _is_number(value) else np.nan
    except OverflowError:
        result = np.inf
    if not np.isfinite(result):
        raise BadFile(f"{where}: {what} is {brief(value)}, expected a finite number")
    return result


def index(value: Any, where: str, what: str, size: int | None) -> int:
    """The number of a layer or head. size: how many there are, if that is known."""
    last = MAX_INDEX if size is None else size - 1
    if not _is_number(value) or not 0 <= value <= last or value != int(value):
        why = "" if size is None else f": there are {size} {what}s"
        raise BadFile(f"{where}: {what} is {brief(value)}, expected a whole number from 0 to {last}{why}")
    return int(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def place(
    entries: Iterable[Entry], file: Path, layers: int | None, heads: int | None, several: bool = False
) -> np.ndarray:
    """Scores [repeat, layer, head] of entries in any order. Heads without one are NaN, as are repeats a head lacks.

    several: a head may have a list of scores.
    """
    rows: dict[tuple[int, int], list[float]] = {}
    for entry in entries:
        at = index(entry.layer, entry.where, "layer", layers), index(entry.head, entry.where, "head", heads)
        if at in rows:
            raise BadFile(f"{entry.where}: layer {at[0]}, head {at[1]} stands there twice")
        if several and entry.values == []:
            raise BadFile(f"{entry.where} has no score")
        values = [] if entry.values is None else [entry.values]
        values = entry.values if several and isinstance(entry.values, list) else values
        rows[at] = [number(v, entry.where) for v in values]
    if not any(rows.values()):
        raise BadFile(f"{file} has no scores")
    repeats = max(map(len, rows.values()))
    n_layers = layers or max(layer for layer, _ in rows) + 1
    n_heads = heads or max(head for _, head in rows) + 1
    check_size(file, repeats, n_layers, n_heads)
    scores = np.full((repeats, n_layers, n_heads), np.nan)
    for (layer, head), values in rows.items():
        scores[: len(values), layer, head] = values
    return scores


def check_size(file: Path, repeats: int, layers: int, heads: int) -> None:
    """That so many numbers can be meant."""
    if repeats * layers * heads > MAX_NUMBERS:
        times = f", {repeats} times" * (repeats > 1)
        raise BadFile(f"{file} would be {layers} layers × {heads} heads{times}: is one of them not an index?")


def square(value: Any, where: str, may_miss: bool = False) -> np.ndarray:
    """[layer, head] of a list of layers, each a list of one number for every head.

    may_miss: null and NaN mark missing heads; else they are errors.
    """
    if not isinstance(value, list) or not value or not all(isinstance(row, list) and row for row in value):
        raise BadFile(f"{where} holds {brief(value)}, expected a list of layers, each a list of scores")
    for i, row in enumerate(value):
        if len(row) != len(value[0]):
            raise BadFile(f"{where}: layer {i} has {len(row)} scores, but layer 0 has {len(value[0])}")
    scores = np.full((len(value), len(value[0])), np.nan)
    for i, row in enumerate(value):
        for j, score in enumerate(row):
            if not may_miss or (score is not None and score == score):
                scores[i, j] = number(score, f"{where}: layer {i}, head {j}")
    return scores


def same_shape(tables: Mapping[str, np.ndarray], file: Path, layers: int | None, heads: int | None) -> None:
    """That tables [layer, head] have one shape, and the sizes that were given."""
    first, *_ = tables
    for name, scores in tables.items():
        sizes = {"layers": (scores.shape[0], layers), "heads": (scores.shape[1], heads)}
        for what, (size, given) in sizes.items():
            if given is not None and size != given:
                raise BadFile(f"{file} has {size} {what}, expected {given}")
        if scores.shape != tables[first].shape:
            shapes = [f"{brief(n)} has {tables[n].shape[0]} layers × {tables[n].shape[1]} heads" for n in (first, name)]
            raise BadFile(f"{file}: tables have different sizes: {shapes[0]}, {shapes[1]}")


def padded(tables: Mapping[K, np.ndarray], like: Mapping[K, np.ndarray] | None = None) -> dict[K, np.ndarray]:
    """Tables [layer, head] made as large as the largest, with NaN. like: other tables that are as large."""
    sizes = [v.shape for v in (like or tables).values()]
    layers, heads = (max(size[i] for size in sizes) for i in (0, 1))
    return {
        name: np.pad(v, [(0, layers - v.shape[0]), (0, heads - v.shape[1])], constant_values=np.nan)
        for name, v in tables.items()
    }


def mean_of_repeats(tables: dict[str, np.ndarray]) -> Tables:
    """The means of scores [repeat, layer, head]; and, where a table has several repeats, each of them."""
    means = {}
    for name, scores in tables.items():
        count = np.isfinite(scores).sum(0)
        means[name] = np.where(count > 0, np.nansum(scores, 0) / np.maximum(count, 1), np.nan)
    return Tables(means, repeats={name: scores for name, scores in tables.items() if len(scores) > 1})
