"""The command that compares maps."""

from pathlib import Path
from typing import Annotated, Any

import typer

from headatlas.cli.app import Csv, Json, app, atlas_path, import_torch, one_of, show
from headatlas.progress import doing
from headatlas.report import PAGE
from headatlas.terminal import bar

SHOWN = 30  # pairs, at most


def _atlases(param: typer.CallbackParam, value: list[Path]) -> list[Path]:
    return [atlas_path(param, path) for path in value]


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
    from headatlas.figures.saving import write_agreement
    from headatlas.report.page import write_report
    from headatlas.results.agree import side_by_side

    maps, _ = side_by_side(atlases)
    models = dict.fromkeys(str(m.attrs.get("model", "")) for m in maps.values())
    info = {"model": {"name": ", ".join(filter(None, models))}, "run": {}, "methods": {}}
    paths = [path for path in write_agreement(result, out) if path.suffix == ".png"]
    write_report(maps, info, out / PAGE, agreed=result)
    typer.echo(f"wrote {', '.join(map(str, [*paths, out / PAGE]))}", err=True)
