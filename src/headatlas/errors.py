"""The errors that HeadAtlas raises on purpose, and the exit code of the command for each.

    HeadAtlasError
    ├── BadArgument (ValueError)     2   usage error: an unknown name, a wrong shape, a value out of range
    └── CannotDo (RuntimeError)      1   the request was valid, but it failed
        ├── BadFile                      a file is damaged or has another layout
        ├── FetchFailed                  a download failed
        ├── OutOfMemory                  memory ran out; a smaller batch may fit
        ├── MissingExtra                 an optional package is missing; the message says how to install it
        └── UnsupportedModel             the heads of this model cannot be found

A message is one line that names the argument, its value and the valid values.

A path that does not exist is a `BadArgument`; a file that exists and cannot be used (damaged, unreadable, another
layout) is a `BadFile`.
"""

import math
import re
from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from numbers import Integral, Real
from pathlib import Path
from typing import Any


class HeadAtlasError(Exception):
    """Base class of all errors that HeadAtlas raises on purpose.

    Attributes:
        exit_code: exit code of the command.
    """

    exit_code = 1


class BadArgument(HeadAtlasError, ValueError):
    """Usage error: an unknown name, a wrong shape, a value out of range."""

    exit_code = 2


class CannotDo(HeadAtlasError, RuntimeError):
    """The request was valid, but it failed."""


class BadFile(CannotDo):
    """A file is damaged or has another layout."""


class FetchFailed(CannotDo):
    """A download failed."""


class OutOfMemory(CannotDo):
    """Memory ran out; a smaller batch may fit."""


class MissingExtra(CannotDo):
    """An optional package is missing; the message says how to install it."""


class UnsupportedModel(CannotDo):
    """The heads of a model cannot be found."""


def one_line(error: BaseException | str, limit: int = 300) -> str:
    """Shorten an error's text to its first informative line, for a terminal."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # A line such as "Error while loading:" only introduces the next one.
    last = next((i for i, line in enumerate(lines) if not line.endswith(":")), len(lines) - 1)
    text = " ".join(lines[: last + 1]) or type(error).__name__
    return text if len(text) <= limit else text[: limit - 1] + "…"


def did_you_mean(value: str, choices: Iterable[str]) -> str:
    """Return ' Did you mean …?' for the choices that resemble a value, or '' if none does."""
    names = list(choices)
    near = get_close_matches(value, names, n=2, cutoff=0.6)
    if not near:
        # Perhaps a word of a longer name: 'captial' of 'country_to_capital'.
        words = {name: [word.lower() for word in re.split(r"[\W_]+", name)] for name in names}
        near = [name for name in names if get_close_matches(value.lower(), words[name], cutoff=0.75)][:2]
    return f" Did you mean {' or '.join(repr(c) for c in near)}?" if near else ""


def brief(value: Any, limit: int = 60) -> str:
    """Show a value in one short line; of a long one, its beginning and its type."""
    text = " ".join(line.strip() for line in repr(value).splitlines())
    return text if len(text) <= limit else f"{text[: limit - 1]}… ({type(value).__name__})"


def check_choice(argument: str, value: Any, choices: Collection[str]) -> None:
    """Check that a value is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        near = did_you_mean(value, choices) if isinstance(value, str) else ""
        raise BadArgument(f"{argument} is {brief(value)}, expected one of {', '.join(choices)}.{near}")


def list_names(argument: str, names: Any, expected: str = "names") -> list[str]:
    """Return a name, or several, as a list."""
    listed = [names] if isinstance(names, str) else list(names) if isinstance(names, Iterable) else [names]
    if not listed:
        raise BadArgument(f"{argument} is empty, expected {expected}")
    for name in listed:
        if not isinstance(name, str):
            raise BadArgument(f"{argument} is {brief(names)}, expected {expected}")
    return listed


def check_names(argument: str, names: Any, choices: Collection[str]) -> list[str]:
    """Return a name, or several, as a list, and check that each is one of the choices."""
    listed = list_names(argument, names, f"some of {', '.join(choices)}")
    for name in listed:
        if name not in choices:
            raise BadArgument(
                f"{argument}: {brief(name)} is not one of {', '.join(choices)}.{did_you_mean(name, choices)}"
            )
    return listed


def check_unique(argument: str, names: Sequence[str], advice: str = "") -> None:
    """Check that no name occurs twice."""
    if repeated := sorted({n for n in names if names.count(n) > 1}):
        raise BadArgument(f"{argument} has {repeated[0]!r} {names.count(repeated[0])} times: names must differ{advice}")


def check_columns(table: str | Path, columns: Collection[str] | None, required: Iterable[str]) -> None:
    """Check that a table has the required columns. table: its name or path, for the error."""
    if missing := [c for c in required if c not in (columns or ())]:
        raise BadFile(f"{table} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}")


def check_count(argument: str, value: Any, minimum: int, maximum: int | None = None, reason: str = "") -> int:
    """Return a whole number, and check that it is between the limits. reason: for the maximum, in the error."""
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_whole or value < minimum or (maximum is not None and value > maximum):
        limits = f", at least {minimum}" if maximum is None else f" from {minimum} to {maximum}"
        suffix = f": {reason}" if reason else ""
        raise BadArgument(f"{argument} is {brief(value)}, expected a whole number{limits}{suffix}")
    return int(value)


def is_number(value: Any) -> bool:
    """Return whether a value is a finite real number; True and False are not."""
    if isinstance(value, bool):
        return False
    return isinstance(value, Real) and math.isfinite(float(value))


def check_positive(argument: str, value: Any, meaning: str = "") -> float:
    """Return a number, and check that it is above 0. meaning: what the number is, in the error."""
    if not is_number(value) or not value > 0:
        suffix = f": {meaning}" if meaning else ""
        raise BadArgument(f"{argument} is {brief(value)}, expected a number above 0{suffix}")
    return float(value)


def check_counts(argument: str, values: Any, minimum: int = 1) -> list[int]:
    """Return whole numbers, and check that each is larger than the one before."""
    counts = [check_count(argument, value, minimum) for value in (values if isinstance(values, Iterable) else [values])]
    if not counts or counts != sorted(set(counts)):
        raise BadArgument(f"{argument} is {brief(values)}, expected whole numbers, each larger than the one before")
    return counts


def check_exists(argument: str, path: str | Path, kind: str = "file or folder", hint: str = "") -> None:
    """Check that a path from the user exists and is of a kind: 'file', 'folder' or 'file or folder'.

    hint: end of the error, such as what else the argument may be.
    """
    try:
        exists = {"file": Path.is_file, "folder": Path.is_dir}.get(kind, Path.exists)(Path(path))
    except (OSError, ValueError):
        # A name that is too long, or that contains a null byte.
        exists = False
    if not exists:
        raise BadArgument(f"{argument} is {str(path)!r}: no such {kind}{hint}")
