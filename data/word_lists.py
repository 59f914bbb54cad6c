"""Word lists, and the grammar that several builders need."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any


def read_lists(name: str) -> Any:
    """The word lists of a file in data/words, as attributes."""
    return SimpleNamespace(**tomllib.loads((Path(__file__).parent / "words" / f"{name}.toml").read_text("utf-8")))


@cache
def rows(text: str) -> list[list[str]]:
    """'a|b; c|d' to [['a', 'b'], ['c', 'd']], line breaks being spaces."""
    parts = (re.sub(r"\s+", " ", row).strip() for row in text.split(";"))
    return [part.split("|") for part in parts if part]


def capital(text: str) -> str:
    return text[0].upper() + text[1:]


@dataclass(frozen=True)
class Person:
    """A name that knows its pronouns, for str.format: '{p} takes {p.his} bag'."""

    name: str
    girl: bool

    def __str__(self) -> str:
        return self.name

    @property
    def she(self) -> str:
        return "she" if self.girl else "he"

    @property
    def her(self) -> str:
        return "her" if self.girl else "him"

    @property
    def his(self) -> str:
        return "her" if self.girl else "his"

    @property
    def hers(self) -> str:
        return "hers" if self.girl else "his"
