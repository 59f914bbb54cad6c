"""The command that shows one head."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headatlas.cli.app import Json, Model, app, check_path, import_torch, print_rows, print_table
from headatlas.models.head_names import check_head, head_numbers, read_shape
from headatlas.progress import show_step
from headatlas.terminal import bar

if TYPE_CHECKING:
    import xarray as xr

    from headatlas.results.atlas import Atlas
    from headatlas.results.card import Card


@app.command()
def head(
    model: Model,
    name: Annotated[str, typer.Argument(metavar="HEAD", help="A head, such as L23.H4.")],
    tokens: Annotated[int, typer.Option(min=1, max=10_000, help="Number of its most amplified tokens to show.")] = 30,
    atlas: Annotated[
        Path | None,
        typer.Option(
            callback=check_path("folder"),
            help="Folder of an atlas of this model: also show the head's scores and ranks.",
        ),
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="File (.png, .svg or .pdf) for a figure of the head.")] = None,
    describe: Annotated[
        str | None,
        typer.Option(help="Address of an OpenAI-compatible endpoint: ask a model there to describe the head."),
    ] = None,
    describe_model: Annotated[
        str, typer.Option(help="Name of the model at the endpoint of --describe.")
    ] = "gpt-4o-mini",
    as_json: Json = False,
) -> None:
    """Show one head: the tokens it amplifies, what it turns them into, the relations that explain it, and its ranks."""
    layer, index = head_numbers(name)
    # The numbers of layers and heads, if they are known before torch is imported.
    if model_shape := read_shape(model):
        check_head(layer, index, *model_shape)
    import_torch()
    from headatlas.figures.saving import write_card
    from headatlas.methods.salient.compute import explained_by
    from headatlas.report.describe import describe_operations
    from headatlas.results.atlas import open_atlas
    from headatlas.results.method_tables import list_rows
    from headatlas.tasks.relations import load_relations

    opened = open_atlas(atlas, "--atlas") if atlas else None
    operations, card = _read(model, name, tokens, opened)
    explained = [{"relation": r, "mappings": n} for r, n in explained_by(operations, load_relations()).items()]
    pairs = zip(operations.token.values, operations.strongest.values, strict=True)
    description = describe_operations(pairs, describe, describe_model) if describe else None
    if figure:
        write_card(card, figure)
    if as_json:
        _print_json(list_rows(operations), explained, card, description)
        return
    print_table(f"{card.name} of {model}: tokens it amplifies, and what it turns them into", list_rows(operations))
    print_rows("Relations that explain these mappings", explained)
    if opened is not None:
        _show_standing(card)
    if description:
        typer.echo(description)
    if figure:
        typer.echo(f"wrote {figure}")


def _read(model: str, name: str, tokens: int, atlas: "Atlas | None") -> "tuple[xr.Dataset, Card]":
    """Compute the most salient operations of a head, and its card."""
    from headatlas.methods.salient.compute import salient_operations
    from headatlas.models.head_names import parse_head
    from headatlas.models.loading import open_weights
    from headatlas.results.card import card

    with show_step(bar, f"opening {model}"):
        weights, tokenizer, model_name = open_weights(model)
    layer, index = parse_head(name, weights.anatomy)
    with show_step(bar, f"reading {name}"):
        if atlas is not None:
            atlas.check_model(weights, model_name)
        operations = salient_operations(weights, tokenizer, [layer], tokens=tokens)
    # The card shows fewer of them.
    shortened = operations.isel(rank=slice(8), output=slice(4)).assign_attrs(model=model_name)
    results = {} if atlas is None else atlas.results
    return operations.sel(layer=layer, head=index), card(results | {"salient": shortened}, layer, index)


def _print_json(
    operations: list[dict[str, Any]], explained: list[dict[str, Any]], card: "Card", description: str | None
) -> None:
    from headatlas.results import tables

    content: dict[str, Any] = {"head": card.name, "operations": operations, "explained_by": explained}
    content |= {"standings": tables.standings(card), "tested": tables.tested_sets(card), "description": description}
    typer.echo(json.dumps(content, indent=2))


def _show_standing(card: "Card") -> None:
    from headatlas.results import tables

    print_rows("Its rank among all heads", tables.standings_in_words(card))
    print_rows("Tested together with other top heads", tables.tested_sets(card))
