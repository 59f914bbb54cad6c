"""Word lists, and grammar that several builders share."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any


def read_lists(name: str) -> Any:
    """Read the word lists of a file in data/words, as attributes."""
    return SimpleNamespace(**tomllib.loads((Path(__file__).parent / "words" / f"{name}.toml").read_text("utf-8")))


@cache
def rows(text: str) -> list[list[str]]:
    """Split 'a|b; c|d' into [['a', 'b'], ['c', 'd']]; line breaks count as spaces."""
    lines = (re.sub(r"\s+", " ", row).strip() for row in text.split(";"))
    return [part.split("|") for part in lines if part]


def capital(text: str) -> str:
    return text[0].upper() + text[1:]


@dataclass(frozen=True)
class Person:
    """A name with its pronouns, for str.format: '{p} takes {p.his} bag'."""

    name: str
    is_girl: bool

    def __str__(self) -> str:
        return self.name

    @property
    def she(self) -> str:
        return "she" if self.is_girl else "he"

    @property
    def her(self) -> str:
        return "her" if self.is_girl else "him"

    @property
    def his(self) -> str:
        return "her" if self.is_girl else "his"

    @property
    def hers(self) -> str:
        return "hers" if self.is_girl else "his"
