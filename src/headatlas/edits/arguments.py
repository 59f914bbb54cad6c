"""Parse edits given as text, and check them before anything slow is imported."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from headatlas.errors import BadArgument, check_exists
from headatlas.models.head_names import head_numbers

GRAMMAR = "'math by dissociate', 'interfering by gate, syntax', 'top 10 math by ablate' or 'lowest 10% by ablate'"
# "top 10 math by ablate", "lowest group of every layer by taylor, …": end, count, unit, subject, method, measure.
_SET = re.compile(
    r"(?:(top|lowest) (?:(\d+(?:\.\d+)?) ?(%?) |(?=groups? of ))(groups? of (?:every|each) layer )?)?"
    r"(.*?) ?\bby ([\w-]+) ?(?:, ?(.*\S))?"
)


@dataclass(frozen=True)
class HeadSet:
    """A set of heads by name: 'top 10 math by gate, facilitation'.

    words: names of a subject, of a measure, or of both. end: 'top' or 'lowest', or '' for the heads that the map marks.
    count: how many, or what percentage. groups: count key-value groups of every layer instead of heads.
    """

    text: str
    method: str
    words: tuple[str, ...]
    end: str = ""
    count: float = 0.0
    percent: bool = False
    groups: bool = False


def parse_set(text: str) -> HeadSet:
    """Parse the name of a set of heads; `sets.select_heads` looks up its heads in an atlas."""
    match = _SET.fullmatch(" ".join(text.split()))
    if not match:
        raise BadArgument(f"set is {text!r}, expected such as {GRAMMAR}")
    end, count, percent, groups, what, method, rest = match.groups(default="")
    # "lowest group of every layer" has no number and means one.
    number = float(count or bool(groups))
    if end and percent and not groups:
        valid = 0 < number <= 100
        expected = "more than 0% and at most 100%"
    else:
        valid = not end or (not percent and number >= 1 and number.is_integer())
        expected = "a whole number, at least 1"
    if not valid:
        raise BadArgument(f"set is {text!r}: {end} {count}{percent}, expected {expected}")
    words = tuple(word.strip() for word in (what, *rest.split(",")) if word.strip())
    if not end and not words:
        raise BadArgument(f"set is {text!r}, which names no subject and no number, expected such as {GRAMMAR}")
    return HeadSet(text, method.replace("-", "_"), words, end, number, bool(percent), bool(groups))


def split_heads(text: str, argument: str = "remove") -> list[str]:
    """Split comma-separated names of heads, 'L23.H4, L3.H1', and check them. argument: its name, for errors."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise BadArgument(f"{argument} is {text!r}, expected heads such as L23.H4,L3.H1")
    for name in names:
        head_numbers(name)
    return names


def split_scales(texts: Iterable[str]) -> dict[str, float]:
    """Parse texts such as 'L3.H1=0.5,L4.H2=0' as factors by the name of a head."""
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
    """Return a finite factor. name: its head, for errors."""
    if not isfinite(value):
        raise BadArgument(f"scale of {name} is {value}, expected a finite number")
    return value


@dataclass(frozen=True)
class Direction:
    """A direction in a file, times a factor. subject: which of the directions in a .nc file."""

    path: Path
    factor: float = 1.0
    subject: str = ""


def split_steers(texts: Iterable[str]) -> dict[str, Direction]:
    """Parse texts such as 'L3.H1=direction.npy', 'L3.H1=direction.npy*2' or 'L3=vectors.nc:capitals'.

    Returns:
        Directions by the name of a head or layer.
    """
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
    """Return layer and head of 'L3.H1' as (3, 1), of 'L3' as (3, None)."""
    if match := re.fullmatch(r"L(\d+)", name.strip(), re.IGNORECASE):
        return int(match[1]), None
    return head_numbers(name)


def _parts(argument: str, texts: Iterable[str], example: str) -> list[str]:
    parts = [part.strip() for text in texts for part in text.split(",") if part.strip()]
    for part in parts:
        if "=" not in part:
            raise BadArgument(f"{argument} is {part!r}, expected such as {example}")
    return parts
