"""The command that compares maps."""

from pathlib import Path
from typing import Annotated, Any

import typer

from headatlas.cli.app import Csv, Json, app, check_atlas_path, check_one_of, import_torch, print_rows
from headatlas.progress import show_step
from headatlas.report import PAGE
from headatlas.terminal import bar

# Pairs of different maps that the terminal shows.
MAX_PAIRS = 30


def _atlases(param: typer.CallbackParam, value: list[Path]) -> list[Path]:
    return [check_atlas_path(param, path) for path in value]


@app.command()
def compare(
    atlases: Annotated[
        list[Path],
        typer.Argument(metavar="ATLAS", callback=_atlases, help="Folders of atlases, or their .nc files."),
    ],
    over: Annotated[
        str | None,
        typer.Option(
            callback=check_one_of("seed", "refit"),
            help="seed or refit: compare each map with itself, between its seeds or between refits of the probe.",
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            callback=check_one_of("kv-group"),
            help="kv-group: compare the maximum and the mean of each key-value group.",
        ),
    ] = None,
    top: Annotated[
        int | None, typer.Option(min=1, help="Number of top heads to compare, at most half of all (default: 5 %).")
    ] = None,
    kv_heads: Annotated[int | None, typer.Option(min=1, help="KV heads per layer, if no atlas records them.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for a figure of all pairs and a page of all maps.")] = None,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Compare every two maps of atlases, whoever made them: HeadAtlas, imported tables, other models.

    It prints Spearman's correlation over heads, with a p from heads shuffled within their layers (corrected for the
    number of pairs); the number of top heads in common, and the number expected by chance; and how well each map finds
    the top heads of the other (AUROC: 1 is perfect, 0.5 is chance). Maps with one score per KV group are compared by
    group, and maps with different numbers of layers or heads by relative depth. --json has more, such as the p of
    each pair before correction.
    """
    import_torch()
    from headatlas.comparison import pair_rows as tables
    from headatlas.comparison.compare import compare as compare_maps
    from headatlas.files import check_folder

    check_folder(out)
    with show_step(bar, "comparing maps"):
        result = compare_maps(*atlases, over=over, by=by, top=top, kv_heads=kv_heads)  # type: ignore[arg-type]
    as_data = as_json or as_csv
    if over is not None:
        rows = tables.repeat_rows(result)
        title = f"{len(rows)} maps, the least stable first"
        print_rows(title, rows if as_data else tables.repeats_in_words(rows, over), as_json, as_csv)
        return
    rows = tables.pair_rows(result)
    if as_data:
        print_rows("", rows, as_json, as_csv)
    else:
        _show(rows, result.sizes["chart"])
    if out is not None:
        _draw(result, atlases, out)


def _show(rows: list[dict[str, Any]], n_maps: int) -> None:
    """Print the maps that two atlases both have, then the other pairs."""
    from headatlas.comparison import pair_rows as tables

    same = [row for row in rows if row["same"]]
    if same:
        title = "Maps in both atlases"
        if tables.only_by_depth(same):
            title += " (by relative depth: their numbers of layers or heads differ)"
        print_rows(title, tables.same_maps_in_words(same))
    words = tables.pairs_in_words([row for row in tables.between_atlases(rows) if not row["same"]])
    if words:
        print_rows(
            f"{len(words)} {'other ' * bool(same)}comparisons of {n_maps} maps, the closest first", words[:MAX_PAIRS]
        )
    if len(words) > MAX_PAIRS:
        lowest = words[-1]["spearman"]
        typer.echo(f"and {len(words) - MAX_PAIRS} more, down to {lowest}: --json prints all, --out draws all")
    if not same and not words:
        typer.echo("nothing to compare: no two of these maps have heads in common, or all scores of a map are equal")


def _draw(result: Any, atlases: list[Path], out: Path) -> None:
    """Draw a figure of all pairs, and write a page of all maps."""
    from headatlas.comparison.side_by_side import check_one_size, side_by_side
    from headatlas.figures.saving import write_agreement
    from headatlas.report.page import write_report

    maps, origin = side_by_side(atlases)
    check_one_size(maps, origin)
    models = dict.fromkeys(str(m.attrs.get("model", "")) for m in maps.values())
    info = {"model": {"name": ", ".join(filter(None, models))}, "run": {}, "methods": {}}
    paths = [path for path in write_agreement(result, out) if path.suffix == ".png"]
    write_report(maps, info, out / PAGE, compared=result)
    typer.echo(f"wrote {', '.join(map(str, [*paths, out / PAGE]))}", err=True)
