"""Load sets of texts without answers: built-in ones, or those of the user, from a file or from Python."""

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from headatlas.errors import BadArgument, BadFile, brief, check_columns, did_you_mean, one_line
from headatlas.models.lm import Text
from headatlas.tasks.prompts import as_text

TextSets = dict[str, tuple[Text, ...]]
"""Texts by the name of their set."""

# Name of the set of texts that come without one.
UNNAMED = "texts"
EXPECTED = "texts such as ['Once upon a', …], {name: texts}, names of built-in sets, or a .txt, .jsonl or .csv file"


def built_in_texts() -> TextSets:
    """Load short texts written for HeadAtlas, each cut off where a continuation must follow."""
    file = files("headatlas.tasks") / "data" / "texts.json"
    return {name: tuple(texts) for name, texts in json.loads(file.read_text(encoding="utf-8")).items()}


def load_texts(texts: Any = None) -> TextSets:
    """Load built-in sets (None for all, or by name, 'facts,code'), a file, texts, or texts by the name of their set.

    A .txt file has a text per line; JSON Lines have {"text": …, "set": …}; CSV has the columns text and, if there are
    several sets, set. Texts may be token ids.
    """
    if texts is None:
        return built_in_texts()
    if isinstance(texts, str | Path):
        sets = _built_in_sets(str(texts).split(",")) or _read(Path(texts).expanduser())
    elif isinstance(texts, Mapping):
        sets = {_name(name): _check_texts(f"texts[{name!r}]", listed) for name, listed in texts.items()}
    elif isinstance(texts, Iterable):
        listed = list(texts)
        sets = _built_in_sets(listed) or {UNNAMED: _check_texts("texts", listed)}
    else:
        raise BadArgument(f"texts is {brief(texts)}, expected {EXPECTED}")
    if not sets:
        raise BadArgument(f"texts is {brief(texts)}, which holds no texts, expected {EXPECTED}")
    return sets


def hash_texts(sets: TextSets) -> str:
    """Return a short hash of the texts, for provenance and resuming."""
    return hashlib.sha256(repr(list(sets.items())).encode()).hexdigest()[:16]


def _built_in_sets(names: Iterable[Any]) -> TextSets:
    """Return built-in sets if every name is that of one; otherwise nothing."""
    listed = [name.strip() if isinstance(name, str) else name for name in names]
    built_in = built_in_texts()
    if not all(isinstance(name, str) and name in built_in for name in listed):
        return {}
    return {name: built_in[name] for name in listed}


def _name(name: Any) -> str:
    if not isinstance(name, str) or not name.strip():
        raise BadArgument(f"texts has the name {brief(name)}, expected text, as in {{'letters': texts}}")
    return name


def _check_texts(where: str, texts: Any) -> tuple[Text, ...]:
    if isinstance(texts, str | Mapping) or not isinstance(texts, Iterable):
        raise BadArgument(f"{where} is {brief(texts)}, expected a list of texts")
    checked: list[Text] = []
    for i, value in enumerate(texts):
        text = as_text(value)
        if text is None:
            raise BadArgument(f"{where}[{i}] is {brief(value)}, expected text")
        checked.append(text)
    if not checked:
        raise BadArgument(f"{where} is empty, expected a list of texts")
    return tuple(checked)


def _read(path: Path) -> TextSets:
    try:
        content = path.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, IsADirectoryError):
        names = list(built_in_texts())
        near = did_you_mean(str(path), names)
        raise BadArgument(
            f"texts is {str(path)!r}, which is neither a built-in set ({', '.join(names)}) nor a file.{near}"
        ) from None
    except (OSError, UnicodeDecodeError, ValueError) as e:
        raise BadFile(f"cannot read texts from {path}: {one_line(e)}") from e
    if path.suffix.lower() == ".csv":
        reader = csv.DictReader(io.StringIO(content, newline=""))
        check_columns(path, reader.fieldnames, ("text",))
        rows: Iterable[Any] = list(reader)
    elif path.suffix.lower() in (".jsonl", ".json"):
        rows = [
            _parse_json_line(path, number, line) for number, line in enumerate(content.split("\n"), 1) if line.strip()
        ]
    else:
        rows = [{"text": line} for line in content.splitlines() if line.strip()]
    sets: dict[str, list[str]] = {}
    for number, row in enumerate(rows, 1):
        text = row.get("text") if isinstance(row, Mapping) else None
        if not isinstance(text, str) or not text.strip():
            raise BadFile(f'{path}, text {number} is {brief(row)}, expected {{"text": "…"}}')
        sets.setdefault(str(row.get("set") or path.stem), []).append(text)
    if not sets:
        raise BadFile(f"{path} holds no text")
    return {name: tuple(listed) for name, listed in sets.items()}


def _parse_json_line(path: Path, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as e:
        raise BadFile(f"{path}, line {number} is not JSON: {one_line(e)}") from e
