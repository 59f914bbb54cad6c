"""retrieval-head: JSON {"layer-head": [score, …], …}, as the repository Retrieval_Head publishes it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from headatlas.errors import BadFile, brief
from headatlas.exchange.format import Format, Source

if TYPE_CHECKING:
    from headatlas.exchange.checked_tables import ImportOptions, Tables


def recognises(source: Source) -> bool:
    content = source.json
    return isinstance(content, dict) and bool(content) and all(re.fullmatch(r"\d+-\d+", key) for key in content)


def read(path: Path, options: ImportOptions) -> Tables:
    """Read every head's scores, one per needle; a head's score is their mean."""
    from headatlas.exchange.checked_tables import Entry, average_repeats, place_scores, read_json

    content = read_json(path)
    if not isinstance(content, dict):
        raise BadFile(f'{path} holds {brief(content)}, expected an object such as {{"12-5": [0.1, 0.2]}}')
    entries = []
    for name, values in content.items():
        match = re.fullmatch(r"(\d{1,9})-(\d{1,9})", name)
        if not match:
            raise BadFile(f"{path}: the key {brief(name)} is not a head, such as '12-5' for layer 12, head 5")
        entries.append(Entry(int(match[1]), int(match[2]), values, f"{path}: {name}"))
    return average_repeats({"retrieval": place_scores(entries, path, options.layers, options.heads, allow_lists=True)})


FORMAT = Format("retrieval-head", read=read, recognises=recognises, result_name="retrieval-head")
