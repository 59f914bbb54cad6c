"""Write figures to files."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import xarray as xr
from matplotlib.figure import Figure

from headatlas.figures.agreement_matrix import CAPTION_OF_COMPARISON, agreed
from headatlas.figures.all import caption, pictures
from headatlas.figures.figure_names import FORMATS, MARKED, PUBLISHED
from headatlas.figures.head_summary import draw as draw_card
from headatlas.figures.picture import Picture
from headatlas.figures.style import check_formats, save
from headatlas.files import atomic_file
from headatlas.progress import Progress, silent
from headatlas.results.card import Card


def write_figures(
    maps: Mapping[str, xr.Dataset],
    folder: Path,
    *,
    only: Sequence[str] | None = None,
    formats: Sequence[str] = FORMATS,
    palette: str = PUBLISHED,
    style: str = MARKED,
    when: Mapping[str, str] | None = None,
    progress: Progress = silent,
) -> list[Path]:
    """Draw all figures of results (by method) into a folder, each as a file per format and a caption."""
    check_formats(formats)
    selected = list(pictures(maps, only, palette, style))
    for picture in progress(selected, "drawing"):
        write_picture(picture, maps, folder, formats, when=when or {})
    return [path for picture in selected for path in files_of(picture, folder, formats)]


def files_of(picture: Picture, folder: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Return the files that `write_picture` writes: one per format, then the caption."""
    return [folder / f"{picture.name}.{form}" for form in (*check_formats(formats), "txt")]


def write_picture(
    picture: Picture,
    maps: Mapping[str, xr.Dataset],
    folder: Path,
    formats: Sequence[str] = FORMATS,
    *,
    when: Mapping[str, str],
) -> None:
    """Draw one figure into a folder. maps: all results. when: date of each method, for the caption."""
    write_formats(picture.draw(), folder, picture.name, formats)
    with atomic_file(files_of(picture, folder, formats)[-1]) as temporary:
        temporary.write_text(caption(picture, maps, when), encoding="utf-8")


def write_formats(figure: Figure, folder: Path, name: str, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write a figure into a folder, one file per format."""
    checked = check_formats(formats)
    paths = [folder / f"{name}.{form}" for form in checked]
    for path, form in zip(paths, checked, strict=True):
        with atomic_file(path) as temporary:
            save(figure, temporary, form)
    return paths


def write_card(card: Card, path: Path) -> None:
    """Draw a head card into a file in the format of its suffix."""
    (form,) = check_formats([path.suffix.removeprefix(".") or "none"])
    figure = draw_card(card)
    with atomic_file(path) as temporary:
        save(figure, temporary, form)


def write_agreement(result: xr.Dataset, folder: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draw a result of `ha.compare`, as a file per format and a caption."""
    paths = write_formats(agreed(result), folder, "agreement", formats)
    with atomic_file(folder / "agreement.txt") as temporary:
        temporary.write_text(f"{CAPTION_OF_COMPARISON}\n", encoding="utf-8")
    return paths
