"""The command about one head."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headatlas.cli.app import Json, Model, app, check_path, import_torch, print_rows, print_table
from headatlas.models.head_names import check_head, head_numbers, shape
from headatlas.progress import doing
from headatlas.terminal import bar

if TYPE_CHECKING:
    import xarray as xr

    from headatlas.results.atlas import Atlas
    from headatlas.results.card import Card


@app.command()
def head(
    model: Model,
    name: Annotated[str, typer.Argument(metavar="HEAD", help="A head, such as L23.H4.")],
    tokens: Annotated[int, typer.Option(min=1, max=10_000, help="How many of its most amplified tokens to show.")] = 30,
    atlas: Annotated[
        Path | None,
        typer.Option(callback=check_path("folder"), help="Tell its scores and ranks from the atlas here."),
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the head card into this .png, .svg or .pdf file.")] = None,
    describe: Annotated[
        str | None, typer.Option(help="Send the operations to this OpenAI-compatible endpoint.")
    ] = None,
    describe_model: Annotated[str, typer.Option(help="The model to ask there.")] = "gpt-4o-mini",
    as_json: Json = False,
) -> None:
    """What one head does: the tokens it amplifies, what it makes of them, relations that explain it, its ranks."""
    numbers, known_shape = head_numbers(name), shape(model)
    if known_shape:
        check_head(*numbers, *known_shape)
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
    text = describe_operations(pairs, describe, describe_model) if describe else None
    if figure:
        write_card(card, figure)
    if as_json:
        _print_json(list_rows(operations), explained, card, text)
        return
    print_table(f"{card.name} of {model}: what it amplifies, and what it makes of it", list_rows(operations))
    print_rows("Relations that explain these mappings", explained)
    if opened is not None:
        _show_standing(card)
    if text:
        typer.echo(text)
    if figure:
        typer.echo(f"wrote {figure}")


def _read(model: str, name: str, tokens: int, atlas: "Atlas | None") -> "tuple[xr.Dataset, Card]":
    """The head's most salient operations, and its card."""
    from headatlas.methods.salient.compute import salient_operations
    from headatlas.models.head_names import parse_head
    from headatlas.models.loading import open_weights
    from headatlas.results.card import card

    with doing(bar, f"opening {model}"):
        weights, tokenizer, called = open_weights(model)
    layer, index = parse_head(name, weights.anatomy)
    with doing(bar, f"reading {name}"):
        if atlas is not None:
            atlas.check_model(weights, called)
        operations = salient_operations(weights, tokenizer, [layer], tokens=tokens)
    brief = operations.isel(rank=slice(8), output=slice(4)).assign_attrs(model=called)
    results = {} if atlas is None else atlas.results
    return operations.sel(layer=layer, head=index), card(results | {"salient": brief}, layer, index)


def _print_json(
    operations: list[dict[str, Any]], explained: list[dict[str, Any]], card: "Card", text: str | None
) -> None:
    from headatlas.results import tables

    content: dict[str, Any] = {"head": card.name, "operations": operations, "explained_by": explained}
    content |= {"standings": tables.standings(card), "removed": tables.removals(card), "description": text}
    typer.echo(json.dumps(content, indent=2))


def _show_standing(card: "Card") -> None:
    from headatlas.results import tables

    print_rows("Where it stands among all heads", tables.standings_in_words(card))
    print_rows("Removed together with other top heads", tables.removals(card))
