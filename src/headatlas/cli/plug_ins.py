"""Commands of other packages: functions named by entry points of the group `headatlas.commands`."""

import logging
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
import typer.main

from headatlas.errors import HeadAtlasError, one_line

GROUP = "headatlas.commands"
_BENCH = "It comes with the package headatlas-bench: `pip install ./bench` in a checkout of HeadAtlas."
PACKAGES = {"benchmark": _BENCH, "plant": _BENCH}
"""Where to find commands that are not part of this package."""

log = logging.getLogger(__name__)


@cache  # every installed package is asked for its entry points
def command_entries() -> dict[str, EntryPoint]:
    """Entry points by the command's name. None is imported."""
    return {entry.name: entry for entry in sorted(entry_points(group=GROUP), key=lambda e: e.name)}


@cache  # so that each is reported once
def warn_name_taken(name: str) -> None:
    """Log that a package offers a command whose name is taken."""
    log.warning("command %s of %s is left out: the name is taken", name, _package(command_entries()[name]))


@cache  # so that a broken one is reported once
def load_command(name: str) -> Any:
    """The command of an entry point, or None with a logged line if it cannot be imported or is no function."""
    entry = command_entries()[name]
    try:
        return as_command(name, entry.load())
    except Exception as e:  # noqa: BLE001  # whatever is wrong with it, the other commands work
        reason = str(e) if isinstance(e, HeadAtlasError) else f"{type(e).__name__}: {one_line(e)}"
        log.warning("command %s of %s is left out: %s", name, _package(entry), reason)
        return None


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value


def as_command(name: str, function: Any, description: str | None = None) -> Any:
    """A command that calls the function. Its options follow from the signature, as in typer."""
    frame = typer.Typer(add_completion=False, rich_markup_mode=None)
    frame.command(name, help=description)(function)
    return typer.main.get_command(frame)
