"""The command that starts the live page."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from headatlas.cli.app import Device, Dtype, Model, app, check_path, import_torch
from headatlas.progress import default_progress, show_step
from headatlas.terminal import bar

# Addresses that only this machine can reach.
LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")


@app.command()
def view(
    model: Model = "smollm2",
    atlas: Annotated[
        Path | None,
        typer.Option(
            callback=check_path("folder"), help="Folder of an atlas of this model, to show its maps on the page too."
        ),
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    host: Annotated[
        str, typer.Option(help="Address to listen on. With the default, only this machine can connect.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 chooses a free one.")] = 0,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
) -> None:
    """Open a page to try prompts on a model.

    It shows the answer, where heads look, what they write, and what changes without them.
    """
    import_torch()
    from headatlas.live.view import make_server

    default_progress.set(bar)
    with show_step(bar, f"loading {model}"):
        server = make_server(model, atlas, device=device, dtype=dtype, host=host, port=port)
    if host not in LOCAL_HOSTS:
        typer.echo(f"warning: anyone who reaches {host} and has this address can use the model", err=True)
    typer.echo(f"{server.url}\nPress Ctrl-C to stop.")
    if open_page and not webbrowser.open(server.url):
        typer.echo("no browser could be started: open the address yourself", err=True)
    server.run()
