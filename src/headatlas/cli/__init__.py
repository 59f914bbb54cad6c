"""The `headatlas` command: reads arguments, calls the library, prints. Nothing is computed here."""

import logging
import sys
from typing import Any

import typer

from headatlas.cli import (  # noqa: F401  # they add their commands
    atlas,
    compare,
    edit,
    exchange,
    head,
    lists,
    view,
)
from headatlas.cli.app import app
from headatlas.cli.plug_ins import PACKAGES, command_entries
from headatlas.errors import HeadAtlasError, did_you_mean, one_line
from headatlas.progress import default_progress
from headatlas.terminal import bar

INTERRUPTED = 130  # what typer makes of a KeyboardInterrupt


def main(arguments: list[str] | None = None) -> None:
    """Entry point. Every error ends as one line on standard error and an exit code."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in argv
    argv = [a for a in argv if a != "--debug"]
    _show_log()
    default_progress.set(bar)
    try:
        code = app(args=argv, prog_name="headatlas", standalone_mode=False)
        if code == INTERRUPTED:
            code = _fail("interrupted", 1, debug)
    except HeadAtlasError as e:
        code = _fail(str(e), e.exit_code, debug)
    except (KeyboardInterrupt, typer.Abort):
        code = _fail("interrupted", 1, debug)
    except Exception as e:  # noqa: BLE001  # the last line of defence: a bug must not print a page of traceback
        if hasattr(e, "format_message"):  # of click, which may be typer's own or the installed one
            code = _fail(_explained(e), 2, debug)
        else:
            code = _fail(f"unexpected {type(e).__name__}: {one_line(e)} (please report it, with --debug)", 1, debug)
    sys.exit(code or 0)


def _explained(error: Any) -> str:
    """Click's message, with a suggestion for a command or an option that does not exist."""
    text, context = one_line(error.format_message()), getattr(error, "ctx", None)
    if context is not None and hasattr(error, "possibilities"):
        options = [name for param in context.command.params for name in param.opts]
        return f"{one_line(error.message)}.{did_you_mean(error.option_name, options)}"
    if context is not None and text.startswith("No such command"):
        name = text.split("'")[1]
        if name in PACKAGES and name not in command_entries():
            return f"No such command {name!r}. {PACKAGES[name]}"
        known = [command for command in context.command.list_commands(context) if command != name]
        return f"No such command {name!r}.{did_you_mean(name, known)}"
    return text


def _show_log() -> None:
    """HeadAtlas's own messages as plain lines on standard error."""
    log = logging.getLogger("headatlas")
    log.setLevel(logging.INFO)
    log.propagate = False
    log.handlers = [_Lines()]


class _Lines(logging.Handler):
    """Writes to the current sys.stderr: a bar that is being shown puts lines above itself."""

    def emit(self, record: logging.LogRecord) -> None:
        typer.echo(self.format(record), err=True)


def _fail(message: str, code: int, debug: bool) -> int:
    if debug and sys.exc_info()[0] is not None:
        raise
    typer.echo(f"error: {' '.join(message.splitlines())}", err=True)
    return code
