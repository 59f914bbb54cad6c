"""The command's frame: options that several commands share, and how results are printed."""

import csv
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from headatlas import __version__

app = typer.Typer(
    name="headatlas",
    help="What every attention head of a language model does, whether that is causally true, and how sure we are.",
    epilog="Errors are one line; add --debug for the traceback. Exit codes: 0 done, 1 could not be done, 2 asked wrongly.",
    add_completion=False,
    rich_markup_mode=None,
)

Model = Annotated[
    str, typer.Argument(help="A hub id, a model folder, a .gguf file, or a name from `headatlas models`.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16, float16 or float64.")]
Engine = Annotated[
    str, typer.Option(help="local (this machine, one process for each GPU) or ray (a cluster; docs/scale.md).")
]
Address = Annotated[
    str | None, typer.Option(help="HOST:PORT of a Ray cluster, or auto. Without it, Ray is started here.")
]
Workers = Annotated[int | None, typer.Option(min=1, help="How many at most. Without it, as many as there is room for.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV instead of a table.")]


@app.callback(invoke_without_command=True)
def about(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version or context.invoked_subcommand is None:
        typer.echo(f"headatlas {__version__}" if version else context.get_help())
        raise typer.Exit


def show_parts(
    parts: dict[str, list[dict[str, Any]]], as_json: bool, path: Path, sentences: Iterable[str] = ()
) -> None:
    """Tables by title, then what is to be known beside them."""
    if as_json:
        typer.echo(json.dumps(parts, indent=2))
        return
    for title, rows in parts.items():
        if rows:
            show_table(title, rows)
    for sentence in sentences:
        typer.echo(sentence)
    typer.echo(f"wrote {path}")


def listed(text: str) -> list[str] | None:
    """Names with commas between; None where there are none."""
    return [name.strip() for name in text.split(",") if name.strip()] or None


def show(title: str, rows: list[dict[str, Any]], as_json: bool = False, as_csv: bool = False) -> None:
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    elif as_csv:
        keys = list(dict.fromkeys(key for row in rows for key in row))
        table = csv.DictWriter(sys.stdout, keys, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    elif rows:
        show_table(title, rows)
    else:
        typer.echo(f"{title}: none")


def show_table(title: str, rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    keys = list(dict.fromkeys(key for row in rows for key in row))
    for key in keys:
        table.add_column(key.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row.get(key)) for key in keys))
    console = Console(
        markup=False, highlight=False, soft_wrap=not sys.stdout.isatty(), width=None if sys.stdout.isatty() else 200
    )
    console.print(title, style="bold")
    console.print(table)


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
