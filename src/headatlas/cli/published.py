"""The commands on other people's tables of heads: read one, compare it with others and with ours, and
write ours as theirs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from headatlas.cli.app import Csv, Json, app, atlas_path, existing, import_torch, listed, one_of, show
from headatlas.progress import doing
from headatlas.report import PAGE
from headatlas.results import exporting
from headatlas.results.importing import FORMATS, KINDS
from headatlas.terminal import bar

SHOWN = 30  # pairs, at most


Scores = Annotated[
    Path,
    typer.Argument(
        metavar="SCORES",
        callback=existing("file or folder"),
        help="A file, or a folder for duo-attention, maps and headvis (docs/how-to/published-maps.md).",
    ),
]
Format = Annotated[
    str | None,
    typer.Option(callback=one_of(*FORMATS), help=f"One of {', '.join(FORMATS)}. Without it, what the file tells."),
]
Kind = Annotated[
    str | None,
    typer.Option(
        "--as",
        callback=one_of(*KINDS),
        help=f"Instead of a format: {', '.join(KINDS)}, as the result of a method (docs/how-to/paper-figure.md).",
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
    out: Annotated[Path, typer.Option(help="Folder for the dataset, which figures, report and agree then take.")],
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
    from headatlas.results.importing import scores as importing

    result = importing.import_scores(
        scores,
        format,
        kind=kind,
        name=name,
        model=model,
        key=key,
        names=listed(names),
        layers=layers,
        heads=heads,
        fill=fill,
        out=out,
    )
    typer.echo(f"wrote {out / result.attrs['method']}.nc: {', '.join(f'{n} {d}' for d, n in result.sizes.items())}")
    for sentence in importing.sentences(result):
        typer.echo(sentence)


def _atlases(param: typer.CallbackParam, value: list[Path]) -> list[Path]:
    return [atlas_path(param, path) for path in value]


@app.command()
def export(
    atlas: Annotated[
        Path,
        typer.Argument(metavar="ATLAS", callback=atlas_path, help="The folder of an atlas, or one of its .nc files."),
    ],
    to: Annotated[
        str, typer.Option(callback=one_of(*exporting.FORMATS), help=f"One of {', '.join(exporting.FORMATS)}.")
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
    from headatlas.results.exporting.export import export as write

    options = {"sink": sink, "recent": recent, "kv_heads": kv_heads, "fill": fill}
    names = {"chart": chart, "method": method, "measure": measure, "subject": subject}
    for sentence in write(atlas, to, out, **names, **options):  # type: ignore[arg-type]
        typer.echo(sentence)


@app.command()
def agree(
    atlases: Annotated[
        list[Path],
        typer.Argument(metavar="ATLAS", callback=_atlases, help="Folders of atlases, or their .nc files."),
    ],
    by: Annotated[
        str | None,
        typer.Option(callback=one_of("kv-group"), help="kv-group: compare the maximum and the mean of each KV group."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many top heads to compare; at most half of them.")] = 20,
    kv_heads: Annotated[int | None, typer.Option(min=1, help="KV heads of a layer, if no atlas says it.")] = None,
    within_layers: Annotated[
        bool, typer.Option("--within-layers", help="p: shuffle heads within their layers, not over the whole model.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for a figure, and a page of all maps.")] = None,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Do maps agree, whoever made them? Every two charts of these atlases, which must have the same layers and heads.

    Spearman's correlation over heads, with p (corrected for the number of pairs) from shuffled heads; how many of the
    top heads are the same, and how many would be by chance; and how well each finds the top heads of the other (AUROC:
    1 always, 0.5 by chance). By KV group where a map has no more. The p of one pair, and more, are in --json.
    """
    import_torch()
    from headatlas.files import check_folder
    from headatlas.results import tables
    from headatlas.results.agree import agree as compare

    check_folder(out)
    with doing(bar, "comparing maps"):
        result = compare(*atlases, by=by, top=top, kv_heads=kv_heads, within_layers=within_layers)  # type: ignore[arg-type]
    rows = tables.agreed(result)
    if as_json or as_csv:
        show("", rows, as_json, as_csv)
    else:
        words = tables.agreed_in_words(tables.between_atlases(rows))
        show(f"{len(words)} comparisons of {result.sizes['chart']} maps, the closest first", words[:SHOWN])
        if len(words) > SHOWN:
            lowest = words[-1]["spearman"]
            typer.echo(f"and {len(words) - SHOWN} more, down to {lowest}: --json prints all, --out draws them")
    if out is not None:
        _draw(result, atlases, out)


def _draw(result: Any, atlases: list[Path], out: Path) -> None:
    """A figure of all pairs, and a page of all maps."""
    from headatlas.figures.files import write_agreement
    from headatlas.report.page import write_report
    from headatlas.results.agree import side_by_side

    maps, _ = side_by_side(atlases)
    models = dict.fromkeys(str(m.attrs.get("model", "")) for m in maps.values())
    info = {"model": {"name": ", ".join(filter(None, models))}, "run": {}, "methods": {}}
    paths = [path for path in write_agreement(result, out) if path.suffix == ".png"]
    write_report(maps, info, out / PAGE, agreed=result)
    typer.echo(f"wrote {', '.join(map(str, [*paths, out / PAGE]))}", err=True)
