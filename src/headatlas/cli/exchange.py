"""The commands for foreign formats: import a table of heads as a result, and export maps to a table."""

from pathlib import Path
from typing import Annotated

import typer

from headatlas.cli.app import app, check_atlas_path, check_one_of, check_path, import_torch, split_names
from headatlas.errors import check_choice
from headatlas.exchange import export_formats, import_formats
from headatlas.methods import importing_methods

IMPORT_FORMATS = tuple(import_formats())
EXPORT_FORMATS = tuple(export_formats())


def _check_kind(param: typer.CallbackParam, value: str | None) -> str | None:
    """Check a kind of result. This imports the methods of other packages, which may declare kinds too."""
    if value is not None:
        check_choice(param.opts[0], value, importing_methods())
    return value


Scores = Annotated[
    Path,
    typer.Argument(
        metavar="SCORES",
        callback=check_path("file or folder"),
        help="File with the scores; for duo-attention, maps and headvis a folder (docs/how-to/published-maps.md).",
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        callback=check_one_of(*IMPORT_FORMATS),
        help=f"Format: {', '.join(IMPORT_FORMATS)}. Default: detected from the file.",
    ),
]
Kind = Annotated[
    str | None,
    typer.Option(
        "--as",
        callback=_check_kind,
        help="Instead of a format, the kind of result to read: importance, categories or gate.",
    ),
]
ModelName = Annotated[
    str | None,
    typer.Option(
        help="Name of the model, which gives layers and heads if it is on this machine (default: as in the file)."
    ),
]
Name = Annotated[str | None, typer.Option(help="Name of the result (default: that of the format or the file).")]
Key = Annotated[str | None, typer.Option(help="Path to the table in a JSON file, such as scores or results.0.scores.")]
Layers = Annotated[int | None, typer.Option(help="Number of layers of the model.")]
Heads = Annotated[
    int | None, typer.Option(help="Number of query heads per layer; scores of KV heads are repeated for them.")
]
Fill = Annotated[float | None, typer.Option(help="Score of heads that are missing from the table (default: no score).")]


@app.command("import")
def import_scores(
    scores: Scores,
    out: Annotated[Path, typer.Option(help="Folder for the result, which `figures`, `report` and `compare` read.")],
    format: Format = None,
    kind: Kind = None,
    model: ModelName = None,
    name: Name = None,
    key: Key = None,
    layers: Layers = None,
    heads: Heads = None,
    fill: Fill = None,
    names: Annotated[str, typer.Option(help="Comma-separated names along the first axis of a .npy file.")] = "",
) -> None:
    """Import scores from other tools as a result, to draw and compare them without running the model."""
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
    for sentence in importing.import_notes(result):
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
        str, typer.Option(callback=check_one_of(*EXPORT_FORMATS), help=f"Format: {', '.join(EXPORT_FORMATS)}.")
    ],
    out: Annotated[Path, typer.Option(help="New file; for duo-attention and headvis, new folder.")],
    chart: Annotated[str | None, typer.Option(help="Name of one map to export, such as 'streaming: passkeys'.")] = None,
    method: Annotated[str | None, typer.Option(help="Export only maps of this method.")] = None,
    measure: Annotated[str | None, typer.Option(help="Export only maps of this measure.")] = None,
    subject: Annotated[str | None, typer.Option(help="Export only maps of this task, function or relation.")] = None,
    sink: Annotated[
        int | None,
        typer.Option(help="duo-attention: number of first tokens to keep (default: that of the map, or 128)."),
    ] = None,
    recent: Annotated[
        int | None,
        typer.Option(help="duo-attention: number of last tokens to keep (default: that of the map, or 256)."),
    ] = None,
    kv_heads: Annotated[
        int | None, typer.Option(help="duo-attention: KV heads per layer, if the atlas does not record them.")
    ] = None,
    fill: Annotated[float | None, typer.Option(help="duo-attention, headkv: score of heads without one.")] = None,
) -> None:
    """Export maps to files that other tools read: cache compressors, viewers, tables (docs/how-to/export.md).

    duo-attention and headkv hold one map (default: that of the method made for them, streaming or retrieval). The other
    formats hold all maps. `headatlas import` reads every format back.
    """
    import_torch()
    from headatlas.exchange.exporting import export as export_maps

    options = {"sink": sink, "recent": recent, "kv_heads": kv_heads, "fill": fill}
    selection = {"chart": chart, "method": method, "measure": measure, "subject": subject}
    for sentence in export_maps(atlas, to, out, **selection, **options):  # type: ignore[arg-type]
        typer.echo(sentence)
