"""Read text and JSON strictly, and arrange scores as tables [layer, head]. No code in a file is ever run."""

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
    """What the caller knows about a file.

    key: where in a JSON file the table is. names: names of its tables. layers, heads: sizes of the model.
    """

    key: str | None = None
    names: list[str] | None = None
    layers: int | None = None
    heads: int | None = None

    @property
    def table_name(self) -> str:
        """Name of the table, if the file holds only one."""
        return self.key.split(".")[-1] if self.key else "score"


@dataclass(frozen=True)
class Tables:
    """Tables of scores from a file.

    scores: arrays [layer, head] by table name; NaN marks a missing head. low, high: ends of their intervals.
    repeats: the scores that were averaged, [repeat, layer, head]. extra: other values of each head, [layer, head].
    per_kv_head: whether heads are key-value heads. about: attributes for the result.
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
    """The scores of one head in a file. where: the place in the file, for error messages."""

    layer: Any
    head: Any
    values: Any  # a number, a list of numbers, or None for a missing head
    where: str


def read_text(file: Path) -> str:
    """Read a UTF-8 file, with or without a byte order mark."""
    try:
        return file.read_bytes().decode("utf-8-sig")
    except OSError as e:
        raise BadFile(f"cannot read {file}: {e.strerror}") from e
    except UnicodeDecodeError as e:
        raise BadFile(f"{file} is not UTF-8 text: byte {e.start} is {e.object[e.start]:#04x}") from e


def read_json(file: Path) -> Any:
    """Read JSON; a key that occurs twice in an object is an error."""

    def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        names = set[str]()
        for name, _ in pairs if len(content) < len(pairs) else ():
            if name in names:
                raise BadFile(f"{file}: the key {brief(name)} occurs twice")
            names.add(name)
        return content

    try:
        return json.loads(read_text(file), object_pairs_hook=unique_keys)
    except RecursionError as e:
        raise BadFile(f"{file} is nested too deeply to be a table of scores") from e
    except ValueError as e:
        raise BadFile(f"{file} is not JSON: {one_line(e)}") from e


def value_at_key(content: Any, key: str | None, path: Path) -> Any:
    """Return the value at a key: 'scores', or a path such as 'model_results.2.induction_scores'."""
    if key is None or (isinstance(content, dict) and key in content):
        return content if key is None else content[key]
    for part in key.split("."):
        entries = content if isinstance(content, dict) else {}
        if isinstance(content, list):
            entries = {str(i): value for i, value in enumerate(content)}
        if part not in entries:
            choices = [brief(name, 40).strip("'") for name in list(entries)[:12]]
            rest = f" and {len(entries) - 12} more" if len(entries) > 12 else ""
            listed = (
                f"the keys are {', '.join(choices)}{rest}.{did_you_mean(part, entries)}"
                if entries
                else "it has no keys"
            )
            raise BadArgument(f"key is {key!r}: {path} has no {part!r} there; {listed}")
        content = entries[part]
    return content


def check_number(value: Any, where: str, what: str = "score") -> float:
    """Return a finite number; text, true and false are errors."""
    try:
        result = float(value) if _is_number(value) else np.nan
    except OverflowError:
        result = np.inf
    if not np.isfinite(result):
        raise BadFile(f"{where}: {what} is {brief(value)}, expected a finite number")
    return result


def check_index(value: Any, where: str, what: str, size: int | None) -> int:
    """Return the number of a layer or head. size: their number in the model, if known."""
    last = MAX_INDEX if size is None else size - 1
    if not _is_number(value) or not 0 <= value <= last or value != int(value):
        why = "" if size is None else f": there are {size} {what}s"
        raise BadFile(f"{where}: {what} is {brief(value)}, expected a whole number from 0 to {last}{why}")
    return int(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def place_scores(
    entries: Iterable[Entry], file: Path, layers: int | None, heads: int | None, allow_lists: bool = False
) -> np.ndarray:
    """Arrange entries, in any order, as scores [repeat, layer, head]. Missing heads and missing repeats are NaN.

    allow_lists: whether a head may have a list of scores.
    """
    rows: dict[tuple[int, int], list[float]] = {}
    for entry in entries:
        layer = check_index(entry.layer, entry.where, "layer", layers)
        head = check_index(entry.head, entry.where, "head", heads)
        if (layer, head) in rows:
            raise BadFile(f"{entry.where}: layer {layer}, head {head} occurs twice")
        if allow_lists and entry.values == []:
            raise BadFile(f"{entry.where} has no score")
        values = [] if entry.values is None else [entry.values]
        values = entry.values if allow_lists and isinstance(entry.values, list) else values
        rows[layer, head] = [check_number(v, entry.where) for v in values]
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
    """Refuse tables so large that a column must have been mistaken for an index."""
    if repeats * layers * heads > MAX_NUMBERS:
        times = f", {repeats} times" * (repeats > 1)
        raise BadFile(f"{file} would be {layers} layers × {heads} heads{times}: is one of them not an index?")


def parse_square(value: Any, where: str, allow_missing: bool = False) -> np.ndarray:
    """Parse a list of layers, each a list with one number per head, as [layer, head].

    allow_missing: accept null and NaN as missing heads.
    """
    if not isinstance(value, list) or not value or not all(isinstance(row, list) and row for row in value):
        raise BadFile(f"{where} holds {brief(value)}, expected a list of layers, each a list of scores")
    for i, row in enumerate(value):
        if len(row) != len(value[0]):
            raise BadFile(f"{where}: layer {i} has {len(row)} scores, but layer 0 has {len(value[0])}")
    scores = np.full((len(value), len(value[0])), np.nan)
    for i, row in enumerate(value):
        for j, score in enumerate(row):
            if not allow_missing or (score is not None and score == score):
                scores[i, j] = check_number(score, f"{where}: layer {i}, head {j}")
    return scores


def check_same_shape(tables: Mapping[str, np.ndarray], file: Path, layers: int | None, heads: int | None) -> None:
    """Check that tables [layer, head] have the same shape, and the sizes that the caller expects, if any."""
    first, *_ = tables
    for name, scores in tables.items():
        sizes = {"layers": (scores.shape[0], layers), "heads": (scores.shape[1], heads)}
        for what, (size, expected) in sizes.items():
            if expected is not None and size != expected:
                raise BadFile(f"{file} has {size} {what}, expected {expected}")
        if scores.shape != tables[first].shape:
            shapes = [f"{brief(n)} has {tables[n].shape[0]} layers × {tables[n].shape[1]} heads" for n in (first, name)]
            raise BadFile(f"{file}: tables have different sizes: {shapes[0]}, {shapes[1]}")


def pad_tables(tables: Mapping[K, np.ndarray], like: Mapping[K, np.ndarray] | None = None) -> dict[K, np.ndarray]:
    """Pad tables [layer, head] with NaN to the size of the largest. like: take the size from these tables."""
    sizes = [v.shape for v in (like or tables).values()]
    layers, heads = (max(size[i] for size in sizes) for i in (0, 1))
    return {
        name: np.pad(v, [(0, layers - v.shape[0]), (0, heads - v.shape[1])], constant_values=np.nan)
        for name, v in tables.items()
    }


def average_repeats(tables: dict[str, np.ndarray]) -> Tables:
    """Average scores [repeat, layer, head] over repeats, ignoring NaN; keep the repeats of tables with several."""
    means = {}
    for name, scores in tables.items():
        count = np.isfinite(scores).sum(0)
        means[name] = np.where(count > 0, np.nansum(scores, 0) / np.maximum(count, 1), np.nan)
    return Tables(means, repeats={name: scores for name, scores in tables.items() if len(scores) > 1})
