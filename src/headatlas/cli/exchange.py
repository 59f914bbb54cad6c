"""The commands for tables of heads in foreign formats: read one as a result, and write maps as one."""

from pathlib import Path
from typing import Annotated

import typer

from headatlas.cli.app import app, check_atlas_path, check_one_of, check_path, import_torch, split_names
from headatlas.errors import check_choice
from headatlas.exchange import readable, writable
from headatlas.methods import importing_methods

IMPORT_FORMATS = tuple(readable())
EXPORT_FORMATS = tuple(writable())


def _check_kind(param: typer.CallbackParam, value: str | None) -> str | None:
    """Methods declare the kinds, and those of other packages are imported when this is called."""
    if value is not None:
        check_choice(param.opts[0], value, importing_methods())
    return value


Scores = Annotated[
    Path,
    typer.Argument(
        metavar="SCORES",
        callback=check_path("file or folder"),
        help="A file, or a folder for duo-attention, maps and headvis (docs/how-to/published-maps.md).",
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        callback=check_one_of(*IMPORT_FORMATS),
        help=f"One of {', '.join(IMPORT_FORMATS)}. Without it, what the file tells.",
    ),
]
Kind = Annotated[
    str | None,
    typer.Option(
        "--as",
        callback=_check_kind,
        help="Instead of a format: importance, categories or gate, read as the result of a method.",
    ),
]
ModelName = Annotated[
    str | None,
    typer.Option(help="What to call the model; one on this machine tells its layers and heads. Without it, the file."),
]
Name = Annotated[str | None, typer.Option(help="What to call the result. Without it, as its format or file.")]
Key = Annotated[str | None, typer.Option(help="Where in a JSON file the table is: scores, or results.0.scores.")]
Layers = Annotated[int | None, typer.Option(help="How many layers the model has.")]
Heads = Annotated[int | None, typer.Option(help="How many query heads a layer has; scores of KV heads are spread.")]
Fill = Annotated[float | None, typer.Option(help="Score of heads that the table does not have. Without it, none.")]


@app.command("import")
def import_scores(
    scores: Scores,
    out: Annotated[Path, typer.Option(help="Folder for the dataset, which figures, report and compare then take.")],
    format: Format = None,
    kind: Kind = None,
    model: ModelName = None,
    name: Name = None,
    key: Key = None,
    layers: Layers = None,
    heads: Heads = None,
    fill: Fill = None,
    names: Annotated[str, typer.Option(help="Names of the first axis of a .npy file, with commas between.")] = "",
) -> None:
    """Make a dataset of scores from elsewhere, so that they can be drawn and compared without running the model."""
    import_torch()
    from headatlas.exchange import importing

    result = importing.import_scores(
        scores,
        format,
        kind=kind,
        name=name,
        model=model,
        key=key,
        names=split_names(names),
        layers=layers,
        heads=heads,
        fill=fill,
        out=out,
    )
    typer.echo(f"wrote {out / result.attrs['method']}.nc: {', '.join(f'{n} {d}' for d, n in result.sizes.items())}")
    for sentence in importing.sentences(result):
        typer.echo(sentence)


@app.command()
def export(
    atlas: Annotated[
        Path,
        typer.Argument(
            metavar="ATLAS", callback=check_atlas_path, help="The folder of an atlas, or one of its .nc files."
        ),
    ],
    to: Annotated[
        str, typer.Option(callback=check_one_of(*EXPORT_FORMATS), help=f"One of {', '.join(EXPORT_FORMATS)}.")
    ],
    out: Annotated[Path, typer.Option(help="A new file; for duo-attention and headvis, a new folder.")],
    chart: Annotated[str | None, typer.Option(help="The map by its name: 'streaming: passkeys'.")] = None,
    method: Annotated[str | None, typer.Option(help="Instead of a chart, only maps of this method,")] = None,
    measure: Annotated[str | None, typer.Option(help="of this measure,")] = None,
    subject: Annotated[str | None, typer.Option(help="of this task, function or relation.")] = None,
    sink: Annotated[
        int | None, typer.Option(help="duo-attention: first tokens to keep. Without it, as the map, or 128.")
    ] = None,
    recent: Annotated[
        int | None, typer.Option(help="duo-attention: last tokens to keep. Without it, as the map, or 256.")
    ] = None,
    kv_heads: Annotated[
        int | None, typer.Option(help="duo-attention: KV heads of a layer, if the atlas does not say it.")
    ] = None,
    fill: Annotated[float | None, typer.Option(help="duo-attention, headkv: score of heads that have none.")] = None,
) -> None:
    """Write maps as files that other tools read: cache compressors, viewers, tables (docs/how-to/export.md).

    duo-attention and headkv hold one map: without --chart, that of a method made for them (streaming, retrieval). The
    others hold all. `headatlas import` reads each of them back.
    """
    import_torch()
    from headatlas.exchange.exporting import export as write

    options = {"sink": sink, "recent": recent, "kv_heads": kv_heads, "fill": fill}
    names = {"chart": chart, "method": method, "measure": measure, "subject": subject}
    for sentence in write(atlas, to, out, **names, **options):  # type: ignore[arg-type]
        typer.echo(sentence)
