"""What heads are to be changed, as text: read and checked before anything slow is imported."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from headatlas.errors import BadArgument, check_exists
from headatlas.models.head_names import head_numbers

GRAMMAR = "'math by dissociate', 'interfering by gate, syntax', 'top 10 math by ablate' or 'lowest 10% by ablate'"
_SET = re.compile(
    r"(?:(top|lowest) (?:(\d+(?:\.\d+)?) ?(%?) |(?=groups? of ))(groups? of (?:every|each) layer )?)?"
    r"(.*?) ?\bby ([\w-]+) ?(?:, ?(.*\S))?"
)


@dataclass(frozen=True)
class HeadSet:
    """A set of heads by name: 'top 10 math by gate, facilitation'.

    words: what it is of, each the name of a subject or of a measure. end: 'top' or 'lowest' so many, or ''. groups: so
    many key-value groups of every layer, not heads of all.
    """

    text: str
    method: str
    words: tuple[str, ...]
    end: str = ""
    count: float = 0.0
    percent: bool = False
    groups: bool = False


def parse_set(text: str) -> HeadSet:
    """A set of heads as HeadSet; which heads it has, an atlas tells (`sets.choose`)."""
    match = _SET.fullmatch(" ".join(text.split()))
    if not match:
        raise BadArgument(f"set is {text!r}, expected such as {GRAMMAR}")
    end, count, percent, groups, what, method, rest = match.groups(default="")
    number = float(count or bool(groups))
    if end and not (0 < number <= 100 and not groups if percent else number >= 1 and number.is_integer()):
        expected = "more than 0% and at most 100%" if percent and not groups else "a whole number, at least 1"
        raise BadArgument(f"set is {text!r}: {end} {count}{percent}, expected {expected}")
    words = tuple(word.strip() for word in (what, *rest.split(",")) if word.strip())
    if not end and not words:
        raise BadArgument(f"set is {text!r}, which says neither of what nor how many, expected such as {GRAMMAR}")
    return HeadSet(text, method.replace("-", "_"), words, end, number, bool(percent), bool(groups))


def split_heads(text: str) -> list[str]:
    """'L23.H4, L3.H1' → names of heads."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise BadArgument(f"remove is {text!r}, expected heads such as L23.H4,L3.H1")
    for name in names:
        head_numbers(name)
    return names


def split_scales(texts: Iterable[str]) -> dict[str, float]:
    """'L3.H1=0.5' or several with commas between → factors by the name of a head."""
    factors = {}
    for part in _parts("scale", texts, "L3.H1=0.5"):
        name, _, value = part.partition("=")
        head_numbers(name)
        try:
            factor = float(value)
        except ValueError:
            raise BadArgument(f"scale is {part!r}, expected a head and a number such as L3.H1=0.5") from None
        factors[name.strip()] = check_factor(name.strip(), factor)
    return factors


def check_factor(name: str, value: float) -> float:
    if not isfinite(value):
        raise BadArgument(f"scale of {name} is {value}, expected a finite number")
    return value


@dataclass(frozen=True)
class Direction:
    """A direction in a file, times a number. subject: which of those in a .nc file."""

    path: Path
    factor: float = 1.0
    subject: str = ""


def split_steers(texts: Iterable[str]) -> dict[str, Direction]:
    """'L3.H1=direction.npy', 'L3.H1=direction.npy*2' or 'L3=vectors.nc:capitals' → by the name of a head or layer."""
    directions = {}
    for part in _parts("steer", texts, "L3.H1=direction.npy"):
        name, _, value = part.partition("=")
        layer_or_head(name)
        match = re.fullmatch(r"(.+?)(?:(?<=\.nc):([^*]+))?(?:\*([-+.\deE]+))?", value.strip())
        path, subject, factor = match.groups(default="") if match else ("", "", "")
        try:
            number = float(factor or 1.0)
        except ValueError:
            raise BadArgument(f"steer is {part!r}, expected such as L3.H1=direction.npy*2") from None
        check_exists(f"steer of {name.strip()}", path, "file")
        directions[name.strip()] = Direction(Path(path), check_factor(name.strip(), number), subject.strip())
    return directions


def layer_or_head(name: str) -> tuple[int, int | None]:
    """'L3.H1' → (3, 1), 'L3' → (3, None)."""
    if match := re.fullmatch(r"L(\d+)", name.strip(), re.IGNORECASE):
        return int(match[1]), None
    return head_numbers(name)


def _parts(argument: str, texts: Iterable[str], example: str) -> list[str]:
    parts = [part.strip() for text in texts for part in text.split(",") if part.strip()]
    for part in parts:
        if "=" not in part:
            raise BadArgument(f"{argument} is {part!r}, expected such as {example}")
    return parts
