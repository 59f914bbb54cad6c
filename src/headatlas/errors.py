"""Everything HeadAtlas raises on purpose, and the exit code each one ends the command with.

    HeadAtlasError
    ├── BadArgument (ValueError)     2   asked wrongly: an unknown name, a wrong shape, a value out of range
    └── CannotDo (RuntimeError)      1   asked rightly, but it could not be done
        ├── BadFile                      a file is damaged or laid out differently
        ├── FetchFailed                  something had to be fetched and could not be
        ├── OutOfMemory                  half as many tokens at once may do
        ├── MissingExtra                 an optional package is needed; the message says how to install it
        └── UnsupportedModel             a model HeadAtlas cannot place

A message is one line that names the argument, the value and what would be valid.

Its class decides the code. A path that does not exist, an unknown name or a value out of range is asked wrongly. A file
that exists and cannot be used (damaged, of another layout, not readable) could not be done.
"""

import math
import re
from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from numbers import Integral, Real
from pathlib import Path
from typing import Any


class HeadAtlasError(Exception):
    """The base of every error HeadAtlas raises on purpose. `exit_code` is what the command ends with."""

    exit_code = 1


class BadArgument(HeadAtlasError, ValueError):
    """Asked wrongly: an unknown name, a wrong shape, a value out of range."""

    exit_code = 2


class CannotDo(HeadAtlasError, RuntimeError):
    """Asked rightly, but it could not be done."""


class BadFile(CannotDo):
    """A file is damaged or laid out differently."""


class FetchFailed(CannotDo):
    """Something had to be fetched and could not be."""


class OutOfMemory(CannotDo):
    """Memory ran out; half as many tokens at once may do."""


class MissingExtra(CannotDo):
    """An optional package is needed; the message says how to install it."""


class UnsupportedModel(CannotDo):
    """A model whose heads HeadAtlas cannot find."""


def one_line(error: BaseException | str, limit: int = 300) -> str:
    """The first line of an error's text that says something, short enough for a terminal."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    last = next((i for i, line in enumerate(lines) if not line.endswith(":")), len(lines) - 1)
    text = " ".join(lines[: last + 1]) or type(error).__name__
    return text if len(text) <= limit else text[: limit - 1] + "…"


def did_you_mean(value: str, choices: Iterable[str]) -> str:
    """' Did you mean …?' when something near exists, else ''."""
    known = list(choices)
    near = get_close_matches(value, known, n=2, cutoff=0.6)
    if not near:  # perhaps a word of a longer name: 'captial' of 'country_to_capital'
        words = {name: [word.lower() for word in re.split(r"[\W_]+", name)] for name in known}
        near = [name for name in known if get_close_matches(value.lower(), words[name], cutoff=0.75)][:2]
    return f" Did you mean {' or '.join(repr(c) for c in near)}?" if near else ""


def brief(value: Any, limit: int = 60) -> str:
    """A value in one short line: text and numbers as they are, of anything large its beginning."""
    text = " ".join(line.strip() for line in repr(value).splitlines())
    return text if len(text) <= limit else f"{text[: limit - 1]}… ({type(value).__name__})"


def check_choice(argument: str, value: Any, choices: Collection[str]) -> None:
    """That a value is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        near = did_you_mean(value, choices) if isinstance(value, str) else ""
        raise BadArgument(f"{argument} is {brief(value)}, expected one of {', '.join(choices)}.{near}")


def list_names(argument: str, names: Any, expected: str = "names") -> list[str]:
    """A name, or several, as a list."""
    listed = [names] if isinstance(names, str) else list(names) if isinstance(names, Iterable) else [names]
    if not listed:
        raise BadArgument(f"{argument} is empty, expected {expected}")
    for name in listed:
        if not isinstance(name, str):
            raise BadArgument(f"{argument} is {brief(names)}, expected {expected}")
    return listed


def check_names(argument: str, names: Any, choices: Collection[str]) -> list[str]:
    """A name, or several, as a list, in which each is one of the choices."""
    listed = list_names(argument, names, f"some of {', '.join(choices)}")
    for name in listed:
        if name not in choices:
            raise BadArgument(
                f"{argument}: {brief(name)} is not one of {', '.join(choices)}.{did_you_mean(name, choices)}"
            )
    return listed


def check_unique(argument: str, names: Sequence[str], advice: str = "") -> None:
    """That no name stands twice."""
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise BadArgument(f"{argument} has {twice[0]!r} {names.count(twice[0])} times: names must differ{advice}")


def check_columns(where: str | Path, present: Collection[str] | None, wanted: Iterable[str]) -> None:
    """That a table has the columns it needs."""
    if missing := [c for c in wanted if c not in (present or ())]:
        raise BadFile(f"{where} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}")


def check_count(argument: str, value: Any, least: int, most: int | None = None, why: str = "") -> int:
    """A whole number between the least and the most. why: the reason for the most."""
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_whole or value < least or (most is not None and value > most):
        limits = f", at least {least}" if most is None else f" from {least} to {most}"
        raise BadArgument(f"{argument} is {brief(value)}, expected a whole number{limits}{f': {why}' * bool(why)}")
    return int(value)


def is_number(value: Any) -> bool:
    """Whether a value is a finite real number; True and False are not."""
    if isinstance(value, bool):
        return False
    return isinstance(value, Real) and math.isfinite(float(value))


def check_positive(argument: str, value: Any, why: str = "") -> float:
    """A number above 0. why: what it is, for the error."""
    if not is_number(value) or not value > 0:
        raise BadArgument(f"{argument} is {brief(value)}, expected a number above 0{f': {why}' * bool(why)}")
    return float(value)


def check_counts(argument: str, values: Any, least: int = 1) -> list[int]:
    """Whole numbers, each larger than the one before."""
    counts = [check_count(argument, value, least) for value in (values if isinstance(values, Iterable) else [values])]
    if not counts or counts != sorted(set(counts)):
        raise BadArgument(f"{argument} is {brief(values)}, expected whole numbers, each larger than the one before")
    return counts


def check_exists(argument: str, path: str | Path, kind: str = "file or folder", also: str = "") -> None:
    """That a path the user gave exists, and is a 'file', a 'folder', or either. also: what it might be otherwise."""
    try:
        exists = {"file": Path.is_file, "folder": Path.is_dir}.get(kind, Path.exists)(Path(path))
    except (OSError, ValueError):  # longer than a name can be, or with a null byte in it
        exists = False
    if not exists:
        raise BadArgument(f"{argument} is {str(path)!r}: no such {kind}{also}")
