"""The `headatlas` command: it reads arguments, calls the library and prints. Nothing is computed here."""

import logging
import sys
from typing import Any

import typer

# Importing these modules adds their commands.
from headatlas.cli import (  # noqa: F401
    atlas,
    compare,
    edit,
    exchange,
    head,
    lists,
    test_command,
    view,
)
from headatlas.cli.app import app
from headatlas.cli.plug_ins import PACKAGES, command_entries
from headatlas.errors import HeadAtlasError, did_you_mean, one_line
from headatlas.progress import default_progress
from headatlas.terminal import bar

# The exit code that typer returns for a KeyboardInterrupt.
INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> None:
    """Run the command. Every error becomes one line on standard error and an exit code.

    arguments: those of the command line (default: sys.argv).
    """
    argv = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in argv
    argv = [argument for argument in argv if argument != "--debug"]
    _print_log_messages()
    default_progress.set(bar)
    try:
        code = app(args=argv, prog_name="headatlas", standalone_mode=False)
        if code == INTERRUPTED:
            code = _fail("interrupted", 1, debug)
    except HeadAtlasError as e:
        code = _fail(str(e), e.exit_code, debug)
    except (KeyboardInterrupt, typer.Abort):
        code = _fail("interrupted", 1, debug)
    except Exception as e:  # noqa: BLE001  # a bug must not print a page of traceback
        # Click's errors: typer may bring its own click, so that there is no one class to catch.
        if hasattr(e, "format_message"):
            code = _fail(_usage_message(e), 2, debug)
        else:
            code = _fail(f"unexpected {type(e).__name__}: {one_line(e)} (please report it, with --debug)", 1, debug)
    sys.exit(code or 0)


def _usage_message(error: Any) -> str:
    """Return click's message, with a suggestion for a command or an option that does not exist."""
    text = one_line(error.format_message())
    context = getattr(error, "ctx", None)
    if context is not None and hasattr(error, "possibilities"):
        options = [name for param in context.command.params for name in param.opts]
        return f"{one_line(error.message)}.{did_you_mean(error.option_name, options)}"
    if context is not None and text.startswith("No such command"):
        name = text.split("'")[1]
        if name in PACKAGES and name not in command_entries():
            return f"No such command {name!r}. {PACKAGES[name]}"
        commands = [command for command in context.command.list_commands(context) if command != name]
        return f"No such command {name!r}.{did_you_mean(name, commands)}"
    return text


def _print_log_messages() -> None:
    """Print the log messages of HeadAtlas as plain lines on standard error."""
    log = logging.getLogger("headatlas")
    log.setLevel(logging.INFO)
    log.propagate = False
    log.handlers = [_StderrHandler()]


class _StderrHandler(logging.Handler):
    """Writes to the current sys.stderr, which a progress bar replaces to print lines above itself."""

    def emit(self, record: logging.LogRecord) -> None:
        typer.echo(self.format(record), err=True)


def _fail(message: str, code: int, debug: bool) -> int:
    """Print an error as one line and return its exit code; with debug, raise the current exception."""
    if debug and sys.exc_info()[0] is not None:
        raise
    typer.echo(f"error: {' '.join(message.splitlines())}", err=True)
    return code
