"""Figures as files."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import xarray as xr

from headatlas.figures.all import caption, pictures
from headatlas.figures.benchmark import quality_and_cost
from headatlas.figures.card import draw as draw_card
from headatlas.figures.names import FORMATS, PUBLISHED
from headatlas.figures.style import check_formats, save
from headatlas.progress import Progress, silent
from headatlas.results.card import Card
from headatlas.results.files import atomic_file


def write_figures(
    maps: Mapping[str, xr.Dataset],
    folder: Path,
    *,
    only: Sequence[str] | None = None,
    formats: Sequence[str] = FORMATS,
    palette: str = PUBLISHED,
    when: Mapping[str, str] | None = None,
    progress: Progress = silent,
) -> list[Path]:
    """Draw what can be drawn of these results (by method) into a folder: a file per format, and a caption."""
    forms = check_formats(formats)
    written = []
    for picture in progress(list(pictures(maps, only, palette)), "drawing"):
        figure = picture.draw()
        for form in forms:
            path = folder / f"{picture.name}.{form}"
            with atomic_file(path) as aside:
                save(figure, aside, form)
            written.append(path)
        path = folder / f"{picture.name}.txt"
        with atomic_file(path) as aside:
            aside.write_text(caption(picture, maps, when or {}), encoding="utf-8")
        written.append(path)
    return written


def write_card(known: Card, path: Path) -> None:
    """Draw a head card into a file; its ending says the format."""
    (form,) = check_formats([path.suffix.removeprefix(".") or "none"])
    figure = draw_card(known)
    with atomic_file(path) as aside:
        save(figure, aside, form)


def write_benchmark(result: xr.Dataset, folder: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draw quality against cost, a file per format."""
    figure = quality_and_cost(result)
    written = []
    for form in check_formats(formats):
        written.append(folder / f"benchmark.{form}")
        with atomic_file(written[-1]) as aside:
            save(figure, aside, form)
    return written
