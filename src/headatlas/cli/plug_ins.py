"""Commands of other packages: functions that their entry points of the group `headatlas.commands` name."""

import logging
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
import typer.main

from headatlas.errors import HeadAtlasError, one_line

GROUP = "headatlas.commands"
_BENCH = "It is part of the package headatlas-bench: run `pip install ./bench` in a checkout of HeadAtlas."
PACKAGES = {"benchmark": _BENCH, "plant": _BENCH}
"""How to install commands that are not part of this package, by the command's name."""

log = logging.getLogger(__name__)


@cache
def command_entries() -> dict[str, EntryPoint]:
    """Find the entry points by the command's name, without importing them."""
    # Cached, because this reads the metadata of every installed package.
    return {entry.name: entry for entry in sorted(entry_points(group=GROUP), key=lambda e: e.name)}


# Cached, so that each is logged once.
@cache
def warn_name_taken(name: str) -> None:
    """Log that a package has a command whose name is taken."""
    log.warning("command %s of %s is left out: the name is taken", name, _package(command_entries()[name]))


# Cached, so that a broken one is logged once.
@cache
def load_command(name: str) -> Any:
    """Import the command of an entry point; log an error and return None if that fails."""
    entry = command_entries()[name]
    try:
        return as_command(name, entry.load())
    except Exception as e:  # noqa: BLE001  # a broken package must not break the other commands
        reason = str(e) if isinstance(e, HeadAtlasError) else f"{type(e).__name__}: {one_line(e)}"
        log.warning("command %s of %s is left out: %s", name, _package(entry), reason)
        return None


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value


def as_command(name: str, function: Any, description: str | None = None) -> Any:
    """Make a command that calls a function, with options from its signature as in typer."""
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name, help=description)(function)
    return typer.main.get_command(single)
