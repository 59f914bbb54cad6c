"""Everything HeadAtlas raises on purpose, and the exit code each one ends the command with.

HeadAtlasError
├── BadArgument (ValueError)     2   asked wrongly: an unknown name, a wrong shape, a value out of range
└── CannotDo (RuntimeError)      1   asked rightly, but it could not be done
    ├── BadFile                      a file is missing, damaged or laid out differently
    ├── FetchFailed                  something had to be fetched and could not be
    ├── OutOfMemory                  half as many tokens at once may do
    ├── MissingExtra                 an optional package is needed; the message says how to install it
    └── UnsupportedModel             a model HeadAtlas cannot place

A message is one line that names the argument, the value and what would be valid.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class HeadAtlasError(Exception):
    """The base of every error HeadAtlas raises on purpose."""

    exit_code = 1


class BadArgument(HeadAtlasError, ValueError):
    exit_code = 2


class CannotDo(HeadAtlasError, RuntimeError):
    pass


class BadFile(CannotDo):
    pass


class FetchFailed(CannotDo):
    pass


class OutOfMemory(CannotDo):
    pass


class MissingExtra(CannotDo):
    pass


class UnsupportedModel(CannotDo):
    pass


def one_line(error: BaseException | str, limit: int = 300) -> str:
    """The first line of an error's text that says something, short enough for a terminal."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = next((i for i, line in enumerate(lines) if not line.endswith(":")), len(lines) - 1)
    text = " ".join(lines[: said + 1]) or type(error).__name__
    return text if len(text) <= limit else text[: limit - 1] + "…"


def did_you_mean(value: str, choices: Iterable[str]) -> str:
    """' Did you mean …?' when something near exists, else ''."""
    near = get_close_matches(value, list(choices), n=2, cutoff=0.6)
    return f" Did you mean {' or '.join(repr(c) for c in near)}?" if near else ""
