"""minference: JSON list over layers of {"head": [pattern, a, b, score], …}, MInference's best sparse patterns."""

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
    first = content[0] if isinstance(content, list) and content else None
    best = next(iter(first.values())) if isinstance(first, dict) and first else None
    return isinstance(best, list) and len(best) == 4 and isinstance(best[0], str)


def read(path: Path, options: ImportOptions) -> Tables:
    """Read the sparse pattern that suits each head best, its two sizes, and how much attention it keeps (the score)."""
    import numpy as np

    from headatlas.exchange.checked_tables import Entry, Tables, check_number, place_scores, read_json

    content = read_json(path)
    if not isinstance(content, list) or not all(isinstance(layer, dict) for layer in content):
        raise BadFile(f"{path} holds {brief(content)}, expected a list of layers, each an object of heads")
    entries = []
    patterns = []
    for layer, head, best in ((i, head, best) for i, heads in enumerate(content) for head, best in heads.items()):
        where = f"{path}: layer {layer}, head {brief(head, 20)}"
        if not re.fullmatch(r"\d{1,9}", head):
            raise BadFile(f"{where}: the key is not the number of a head")
        if not isinstance(best, list) or len(best) != 4 or not isinstance(best[0], str):
            raise BadFile(f"{where} holds {brief(best)}, expected [pattern, a, b, score]")
        entries.append(Entry(layer, int(head), best[3], where))
        patterns.append((best[0], check_number(best[1], where, "a"), check_number(best[2], where, "b")))
    scores = place_scores(entries, path, options.layers, options.heads)[0]
    pattern = np.full(scores.shape, "", object)
    size_a = np.full(scores.shape, np.nan)
    size_b = np.full(scores.shape, np.nan)
    for entry, (name, a, b) in zip(entries, patterns, strict=True):
        pattern[entry.layer, entry.head] = name
        size_a[entry.layer, entry.head] = a
        size_b[entry.layer, entry.head] = b
    extra = {"pattern": pattern.astype(str), "size_a": size_a, "size_b": size_b}
    return Tables({"best pattern": scores}, extra=extra)


FORMAT = Format("minference", read=read, recognises=recognises, result_name="minference")
