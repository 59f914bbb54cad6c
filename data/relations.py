"""Write the word relations: one JSON file each, with sorted pairs."""

import json
from collections import Counter
from itertools import pairwise
from typing import Any

from word_lists import read_lists

Pairs = list[tuple[str, str]]


def read_pairs(relation: dict[str, Any]) -> Pairs:
    """Read the pairs of a table of relations.toml, in any of its notations."""
    if "groups" in relation:
        return [(word, target) for target, members in relation["groups"].items() for word in members.split()]
    if "chains" in relation:
        return [pair for line in relation["chains"].splitlines() for pair in pairwise(line.split())]
    notation = next(n for n in ("pairs", "same", "first", "last", "sounds", "compounds") if n in relation)
    words = relation[notation].split()
    if notation == "pairs":
        return [(source, target) for source, target in (word.split("/") for word in words)]
    if notation == "same":
        return [(word, word) for word in words]
    if notation == "compounds":
        return [(word.split("|")[0], word.replace("|", "")) for word in words]
    if notation == "sounds":
        groups = [word.split("/") for word in words]
        return [(word, next(o for o in group if o != word)) for group in groups for word in group]
    return [(word, word[0 if notation == "first" else -1]) for word in words]


def check(name: str, pairs: Pairs) -> None:
    """Check that every source occurs once, and is its own target only if the relation is copying."""
    repeated = [source for source, count in Counter(source for source, _ in pairs).items() if count > 1]
    wrong_pairs = [source for source, target in pairs if (source == target) != name.endswith("copying")]
    if repeated or wrong_pairs:
        raise ValueError(f"{name}: repeated sources {repeated}, wrong pairs of source and target {wrong_pairs}")


def files() -> dict[str, str]:
    """Return the text of each file by name: JSON with one pair per line."""
    texts = {}
    for name, relation in vars(read_lists("relations")).items():
        pairs = read_pairs(relation)
        check(name, pairs)
        fields = [key for key in ("category", "prompt", "source", "multi_token") if key in relation]
        field_lines = [f'  "{key}": {json.dumps(relation[key], ensure_ascii=False)},' for key in fields]
        lines = ",\n".join(f"    {json.dumps(pair, ensure_ascii=False)}" for pair in sorted(pairs))
        texts[f"{name}.json"] = "\n".join(["{", *field_lines, '  "pairs": [', lines, "  ]", "}"]) + "\n"
    return texts
