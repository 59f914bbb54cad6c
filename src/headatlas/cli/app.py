"""What commands share: their group, checks and options, and the functions that print results."""

import csv
import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from headatlas import __version__
from headatlas.cli.plug_ins import command_entries, load_command, warn_name_taken
from headatlas.errors import BadArgument, CannotDo, check_choice, check_exists, check_names
from headatlas.methods import get_method, method_names
from headatlas.methods.method import PRESETS
from headatlas.progress import show_step
from headatlas.terminal import bar


class Commands(typer.core.TyperGroup):
    """The commands of this package, one command per method, and those of other packages, made when they are needed.

    If several of these have the same name, the first in this order gets it.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        ours = [*super().list_commands(ctx), *(name.replace("_", "-") for name in method_names())]
        for name in command_entries():
            if name in ours:
                warn_name_taken(name)
        return list(dict.fromkeys([*ours, *command_entries()]))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            return command
        name = cmd_name.replace("-", "_")
        if name not in method_names():
            return load_command(cmd_name) if cmd_name in command_entries() else None
        from headatlas.cli.method_commands import make_command

        try:
            return make_command(get_method(name))
        except BadArgument:
            # A plug-in that is left out: the registry has already logged why.
            return None


INTRODUCTION = """\
HeadAtlas scores every attention head of a language model with many methods, and tests the scores by removing heads.

  headatlas run --out atlas --open         map the default model (135M) and open the page
  headatlas run MODEL --plan               estimate how long that would take for your model
  headatlas heads atlas --function math    list the top heads of a task, function or relation by every method

All commands: headatlas --help"""

app = typer.Typer(
    name="headatlas",
    cls=Commands,
    help="Score every attention head of a language model with many methods, and test the scores by removing heads.",
    epilog="Errors are one line; add --debug for the traceback. Exit codes: 0 success, 1 failure, 2 usage error.",
    add_completion=False,
    rich_markup_mode=None,
)


def check_one_of(*choices: str) -> Callable[[typer.CallbackParam, Any], Any]:
    """Make a callback that checks an option's value at once, before slow imports."""

    def check(param: typer.CallbackParam, value: Any) -> Any:
        if value is not None:
            check_choice(param.opts[0], value, choices)
        return value

    return check


def check_some_of(
    choices: Collection[str] | Callable[[], Collection[str]],
) -> Callable[[typer.CallbackParam, str], str]:
    """Make a callback that checks comma-separated names. choices: the valid names, or a function that lists them."""

    def check(param: typer.CallbackParam, value: str) -> str:
        if names := split_names(value):
            check_names(param.opts[0], names, choices() if callable(choices) else choices)
        return value

    return check


def check_path(kind: str) -> Callable[[typer.CallbackParam, Path | None], Path | None]:
    """Make a callback that checks that a path exists. kind: 'file', 'folder' or 'file or folder'."""

    def check(param: typer.CallbackParam, value: Path | None) -> Path | None:
        if value is not None:
            is_argument = param.param_type_name == "argument"
            check_exists((is_argument and param.metavar) or param.opts[0], value, kind)
        return value

    return check


def check_atlas_path(param: typer.CallbackParam, value: Path) -> Path:
    """Check the path of an atlas: its folder, or one of its .nc files."""
    check_exists("ATLAS", value, "file" if value.suffix == ".nc" else "folder")
    return value


def split_names(text: str) -> list[str] | None:
    """Split comma-separated names; None if there are none."""
    return [name.strip() for name in text.split(",") if name.strip()] or None


def check_model(value: str | None) -> str | None:
    """Check that a model that can only be a path exists."""
    if value and (value.startswith(("/", "./", "../")) or value.endswith(".gguf")):
        path = Path(value).expanduser()
        # A broken link in a cache is reported when the model is loaded, with more detail.
        if not path.is_symlink():
            check_exists("model", path)
    return value


Model = Annotated[
    str,
    typer.Argument(
        callback=check_model, help="A Hugging Face id, a model folder, a .gguf file, or a name from `headatlas models`."
    ),
]
Device = Annotated[str, typer.Option(help="Device: auto, cpu, cuda or cuda:N.")]
Dtype = Annotated[
    str,
    typer.Option(
        callback=check_one_of("auto", "float32", "bfloat16", "float16", "float64"),
        help="Precision of the model: auto, float32, bfloat16, float16 or float64.",
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        callback=check_one_of("local", "ray"),
        help="Where to run: local (this machine, one process per GPU) or ray (a cluster; docs/how-to/cluster.md).",
    ),
]
Address = Annotated[
    str | None, typer.Option(help="HOST:PORT of a Ray cluster, or auto to find one (default: start Ray here).")
]
GpusPerJob = Annotated[
    int | None,
    typer.Option(min=0, help="Number of GPUs over which each worker spreads the model (default: 1 if there are any)."),
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Maximum number of workers (default: as many as fit in memory).")
]
Preset = Annotated[
    str,
    typer.Option(
        callback=check_one_of(*PRESETS),
        help="Settings: quick (minutes on a laptop) or full (as published; needs a GPU).",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV instead of a table.")]


@app.callback(invoke_without_command=True)
def introduce(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version or context.invoked_subcommand is None:
        typer.echo(f"headatlas {__version__}" if version else INTRODUCTION)
        raise typer.Exit


def print_tables(
    parts: dict[str, list[dict[str, Any]]], as_json: bool, path: Path, sentences: Iterable[str] = ()
) -> None:
    """Print tables by title, then sentences about them, then the path of the result."""
    if as_json:
        typer.echo(json.dumps(parts, indent=2))
        return
    for title, rows in parts.items():
        if rows:
            print_table(title, rows)
    for sentence in sentences:
        typer.echo(sentence)
    typer.echo(f"wrote {path}")


@contextmanager
def resumable(out: Path) -> Iterator[None]:
    """Turn an interruption into an error that says how to resume the work in a folder."""
    try:
        yield
    except KeyboardInterrupt as e:
        raise CannotDo(f"interrupted: the same command with --out {out} resumes") from e


def import_torch() -> None:
    """Import torch and transformers, which takes seconds: call this after the arguments are checked."""
    with show_step(bar, "importing torch and transformers"):
        import_module("headatlas.models.loading")


def print_rows(title: str, rows: list[dict[str, Any]], as_json: bool = False, as_csv: bool = False) -> None:
    """Print rows as a table, as JSON or as CSV."""
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    elif as_csv:
        keys = list(dict.fromkeys(key for row in rows for key in row))
        table = csv.DictWriter(sys.stdout, keys, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    elif rows:
        print_table(title, rows)
    else:
        typer.echo(f"{title}: none")


def print_table(title: str, rows: list[dict[str, Any]]) -> None:
    """Print rows as a table, with a column for each key."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    keys = list(dict.fromkeys(key for row in rows for key in row))
    for key in keys:
        table.add_column(key.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row.get(key)) for key in keys))
    # In a file or a pipe, lines are not wrapped to the width of a terminal.
    is_terminal = sys.stdout.isatty()
    console = Console(markup=False, highlight=False, soft_wrap=not is_terminal, width=None if is_terminal else 200)
    console.print(title, style="bold")
    console.print(table)


def _cell(value: Any) -> str:
    """Write a value of a table: four digits of a number, '-' for a missing value."""
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
