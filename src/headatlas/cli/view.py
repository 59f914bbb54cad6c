"""The command that starts the live page."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from headatlas.cli.app import Device, Dtype, Model, app, check_path, import_torch
from headatlas.progress import default_progress, doing
from headatlas.terminal import bar

HERE = ("127.0.0.1", "localhost", "::1")


@app.command()
def view(
    model: Model = "smollm2",
    atlas: Annotated[
        Path | None,
        typer.Option(callback=check_path("folder"), help="An atlas of this model: its maps are on the page too."),
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    host: Annotated[str, typer.Option(help="Where to listen. Anything but this machine lets others in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 0,
    opens: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
) -> None:
    """Try prompts on a model: what it says, where heads look, what they write, and what changes without them."""
    import_torch()
    from headatlas.live.view import make_server

    default_progress.set(bar)
    with doing(bar, f"loading {model}"):
        server = make_server(model, atlas, device=device, dtype=dtype, host=host, port=port)
    if host not in HERE:
        typer.echo(f"warning: anyone who reaches {host} and has this address can use the model", err=True)
    typer.echo(f"{server.url}\nCtrl-C ends it.")
    if opens and not webbrowser.open(server.url):
        typer.echo("no browser could be started: open the address yourself", err=True)
    server.run()
