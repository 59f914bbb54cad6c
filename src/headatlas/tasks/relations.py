"""Relations: what `maps` looks for. Twenty are built in; a user's own come as a folder of JSON files, a CSV file or a list."""

import csv
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from headatlas.errors import BadArgument, BadFile, did_you_mean, one_line

CATEGORIES = ("Algorithmic", "Knowledge", "Linguistic", "Translation")
COPYING = ("copying", "name_copying")  # held to a stricter k: many heads copy a little


@dataclass(frozen=True)
class Relation:
    """Pairs of words in the same relation. `prompt` has {} for the source; the target follows it.

    multi_token: 'last-first' where a tokenizer that cuts most of its words may use the last token of the source and the first of
    the target instead.
    """

    name: str
    category: str
    pairs: tuple[tuple[str, str], ...]
    prompt: str | None = None
    source: str = ""
    multi_token: Literal["", "last-first"] = ""


def load_relations(where: str | Path | Iterable[Relation | dict[str, Any]] | None = None) -> list[Relation]:
    """The built-in relations (None), or those of a folder of NAME.json files, one such file, a CSV file, or a list.

    JSON: {"category": "Knowledge", "pairs": [["France", "Paris"], …], "prompt": "The capital of {} is",
    "multi_token": "last-first"}, the last two optional.
    CSV: columns relation, category, source, target.
    """
    if where is None:
        folder = files("headatlas.tasks") / "data" / "relations"
        found = [_parse(f.name, f.name.removesuffix(".json"), f.read_text(encoding="utf-8")) for f in folder.iterdir()]
    elif isinstance(where, str | Path):
        found = _read(Path(where))
    else:
        found = [
            r if isinstance(r, Relation) else _check(f"relations[{i}]", r.get("name"), r) for i, r in enumerate(where)
        ]
    if not found:
        raise BadArgument(f"relations is {str(where)!r}, which holds no relation")
    names = [r.name for r in found]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise BadArgument(f"relations has {twice[0]!r} {names.count(twice[0])} times: names must differ")
    return sorted(found, key=lambda r: (CATEGORIES.index(r.category), r.name))


def hash_relations(relations: Iterable[Relation]) -> str:
    """A short hash of what is asked, for provenance and resuming."""
    return hashlib.sha256(repr(sorted(relations, key=lambda r: r.name)).encode()).hexdigest()[:16]


def _read(path: Path) -> list[Relation]:
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
    missing = {"relation", "category", "source", "target"} - set(reader.fieldnames or ())
    if missing:
        raise BadFile(f"{path} lacks the column{'s' * (len(missing) > 1)} {', '.join(sorted(missing))}")
    grouped: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for row in reader:
        if not row["source"] or not row["target"]:
            raise BadFile(f"{path}, line {reader.line_num}: source or target is empty")
        grouped.setdefault((row["relation"], row["category"]), []).append((row["source"], row["target"]))
    return [_check(str(path), name, {"category": c, "pairs": pairs}) for (name, c), pairs in grouped.items()]


def _check(where: str, name: Any, content: Any, text: str = "") -> Relation:
    if not isinstance(name, str) or not name:
        raise BadFile(f"{where} has no name")
    if not isinstance(content, dict) or "category" not in content or "pairs" not in content:
        raise BadFile(
            f'{where} is laid out differently: expected {{"category": "Knowledge", "pairs": [["France", "Paris"], …]}}'
        )
    category = content["category"]
    if category not in CATEGORIES:
        raise BadFile(
            f"{where} has category {category!r}, expected one of {', '.join(CATEGORIES)}.{did_you_mean(str(category), CATEGORIES)}"
        )
    pairs = content["pairs"]
    if not isinstance(pairs, list) or not pairs:
        raise BadFile(f"{where} has no pairs")
    for i, pair in enumerate(pairs):
        if not (
            isinstance(pair, list | tuple) and len(pair) == 2 and all(isinstance(w, str) and w.strip() for w in pair)
        ):
            raise BadFile(
                f"{where}{_line(text, i)}: pairs[{i}] is {pair!r}, expected two words such as ['France', 'Paris']"
            )
    prompt = content.get("prompt")
    if prompt is not None and (not isinstance(prompt, str) or prompt.count("{}") < 1):
        raise BadFile(f"{where} has prompt {prompt!r}, expected a text with {{}} where the source word goes")
    multi_token = content.get("multi_token", "")
    if multi_token not in ("", "last-first"):
        raise BadFile(f"{where} has multi_token {multi_token!r}, expected 'last-first', or leave it out")
    unique = tuple(dict.fromkeys((s.strip(), t.strip()) for s, t in pairs))
    return Relation(name, category, unique, prompt, str(content.get("source", "")), multi_token)


def _line(text: str, i: int) -> str:
    """', line N' of the i-th pair in a JSON text."""
    if not text:
        return ""
    decoder, at = json.JSONDecoder(), text.find("[", text.find('"pairs"')) + 1
    for _ in range(i + 1):
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        start, (_, at) = at, decoder.raw_decode(text, at)
    return f", line {text.count(chr(10), 0, start) + 1}"
