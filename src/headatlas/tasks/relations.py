"""Relations, which `maps` looks for. Twenty are built in; users give theirs as JSON files, a CSV file or a list."""

import csv
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from headatlas.errors import (
    BadArgument,
    BadFile,
    HeadAtlasError,
    brief,
    check_columns,
    check_exists,
    check_unique,
    did_you_mean,
    one_line,
)
from headatlas.tasks.built_in import relation_names

CATEGORIES = ("Algorithmic", "Knowledge", "Linguistic", "Translation")
OTHER = "Other"  # the category of relations without one
EXPECTED = (
    'names of built-in relations, {name: [("France", "Paris"), …]}, or a list of'
    ' {"name": …, "category": …, "pairs": [["France", "Paris"], …]}'
)
# Tested with a stricter k, because many heads copy weakly.
COPYING = ("copying", "name_copying")


@dataclass(frozen=True)
class Relation:
    """Pairs of words in the same relation. prompt: text with {} for the source; the target follows it.

    multi_token: 'last-first' if, with a tokenizer that splits most of its words, the last token of the source and the
    first token of the target may replace them.
    """

    name: str
    category: str
    pairs: tuple[tuple[str, str], ...]
    prompt: str | None = None
    source: str = ""
    multi_token: Literal["", "last-first"] = ""

    def row(self, source: str) -> str:
        """Return the text that identifies the row of a pair: the relation's prompt, or the source alone."""
        return (self.prompt or "{}").replace("{}", source)


def load_relations(where: Any = None) -> list[Relation]:
    """Load the built-in relations (None), or those of a folder of NAME.json files, a file, a list or a dict.

    JSON: {"category": "Knowledge", "pairs": [["France", "Paris"], …], "prompt": "The capital of {} is",
    "multi_token": "last-first"}; only the pairs are required. CSV: columns relation, source, target and, optionally,
    category.
    A list holds Relations, dicts as in JSON with a name, and names of built-in relations. A dict holds lists of pairs,
    or dicts as in JSON, by name. Relations without a category are in category Other.
    """
    if where is None:
        relations = _built_in()
    elif isinstance(where, str | Path):
        relations = _read(where)
    else:
        relations = _from_python(where)
    if not relations:
        raise BadArgument(f"relations is {brief(where)}, which holds no relations")
    check_unique("relations", [r.name for r in relations])
    return sorted(relations, key=lambda r: ((*CATEGORIES, OTHER).index(r.category), r.name))


def categories(used: Iterable[str]) -> tuple[str, ...]:
    """Return the four categories, and Other if it is used."""
    return (*CATEGORIES, OTHER) if OTHER in used else CATEGORIES


def _built_in() -> list[Relation]:
    folder = files("headatlas.tasks") / "data" / "relations"
    return [_parse(f.name, f.name.removesuffix(".json"), f.read_text(encoding="utf-8")) for f in folder.iterdir()]


def _from_python(listed: Any) -> list[Relation]:
    """Read relations from a Python object; their errors are BadArgument instead of BadFile."""
    if not isinstance(listed, Iterable):
        raise BadArgument(f"relations is {brief(listed)}, expected {EXPECTED}")
    if isinstance(listed, Mapping):
        named = [(f"relations[{name!r}]", name, value) for name, value in listed.items()]
    else:
        named = [
            (f"relations[{i}]", value.get("name") if isinstance(value, Mapping) else None, value)
            for i, value in enumerate(listed)
        ]
    relations = []
    for where, name, value in named:
        if isinstance(value, Relation):
            relations.append(value if name is None else replace(value, name=str(name)))
        elif isinstance(value, str | Path) and name is None:
            relations += _read(value)
        elif name is None and not isinstance(value, Mapping):
            raise BadArgument(f"{where} is {brief(value)}, expected {EXPECTED}")
        else:
            content = value
            if not isinstance(value, Mapping):
                content = {"pairs": list(value) if isinstance(value, Iterable) else value}
            relations.append(_check(where, name, content, error=BadArgument))
    return relations


def hash_relations(relations: Iterable[Relation]) -> str:
    """Return a short hash of the relations, for provenance and resuming."""
    return hashlib.sha256(repr(sorted(relations, key=lambda r: r.name)).encode()).hexdigest()[:16]


def _read(where: str | Path) -> list[Relation]:
    """Read a folder, a file, or a built-in relation by its name."""
    path = Path(where).expanduser()
    if str(where) in relation_names() and not path.exists():
        return [r for r in _built_in() if r.name == str(where)]
    try:
        check_exists("relations", path)
    except BadArgument as e:
        near = did_you_mean(str(where), relation_names())
        raise BadArgument(f"{e}, nor a built-in relation.{near}") from None
    if path.is_dir():
        return [r for p in sorted(path.glob("*.json")) for r in _read(p)]
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise BadFile(f"cannot read relations from {path}: {one_line(e)}") from e
    return _parse_csv(path, text) if path.suffix == ".csv" else [_parse(str(path), path.stem, text)]


def _parse(where: str, name: str, text: str) -> Relation:
    try:
        content = json.loads(text)
    except ValueError as e:
        raise BadFile(f"{where} is not JSON: {one_line(e)}") from e
    return _check(where, name, content, text)


def _parse_csv(path: Path, text: str) -> list[Relation]:
    reader = csv.DictReader(text.splitlines())
    check_columns(path, reader.fieldnames, ("relation", "source", "target"))
    grouped: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for row in reader:
        if not row["source"] or not row["target"]:
            raise BadFile(f"{path}, line {reader.line_num}: source or target is empty")
        grouped.setdefault((row["relation"], row.get("category") or OTHER), []).append((row["source"], row["target"]))
    return [_check(str(path), name, {"category": c, "pairs": pairs}) for (name, c), pairs in grouped.items()]


def _check(where: str, name: Any, content: Any, text: str = "", error: type[HeadAtlasError] = BadFile) -> Relation:
    if not isinstance(name, str) or not name:
        raise error(
            f"{where} has the name {brief(name)}, expected text" if name is not None else f"{where} has no name"
        )
    if not isinstance(content, Mapping) or "pairs" not in content:
        raise error(
            f'{where} has another layout, expected {{"category": "Knowledge", "pairs": [["France", "Paris"], …]}}'
        )
    category = content.get("category") or OTHER
    if category not in (*CATEGORIES, OTHER):
        raise error(
            f"{where} has category {brief(category)}, expected one of {', '.join((*CATEGORIES, OTHER))}."
            f"{did_you_mean(str(category), CATEGORIES)}"
        )
    pairs = content["pairs"]
    if not isinstance(pairs, list | tuple) or not pairs:
        raise error(f'{where} has no pairs, expected [["France", "Paris"], …]')
    for i, pair in enumerate(pairs):
        if not (
            isinstance(pair, list | tuple) and len(pair) == 2 and all(isinstance(w, str) and w.strip() for w in pair)
        ):
            raise error(
                f"{where}{_line(text, i)}: pairs[{i}] is {brief(pair)}, expected two words such as ['France', 'Paris']"
            )
    prompt = content.get("prompt")
    if prompt is not None and (not isinstance(prompt, str) or prompt.count("{}") < 1):
        raise error(f"{where} has prompt {brief(prompt)}, expected a text with {{}} where the source word goes")
    multi_token = content.get("multi_token", "")
    if multi_token not in ("", "last-first"):
        raise error(f"{where} has multi_token {brief(multi_token)}, expected 'last-first', or leave it out")
    unique = tuple(dict.fromkeys((s.strip(), t.strip()) for s, t in pairs))
    return Relation(name, category, unique, prompt, str(content.get("source", "")), multi_token)


def _line(text: str, i: int) -> str:
    """Return ', line N', the line of the i-th pair in a JSON text."""
    if not text:
        return ""
    decoder = json.JSONDecoder()
    position = text.find("[", text.find('"pairs"')) + 1
    for _ in range(i + 1):
        while position < len(text) and text[position] in " \t\r\n,":
            position += 1
        start = position
        _, position = decoder.raw_decode(text, position)
    return f", line {text.count(chr(10), 0, start) + 1}"
