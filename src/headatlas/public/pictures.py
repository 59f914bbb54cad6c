"""Figures as files, with their captions."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import xarray as xr

from headatlas.figures.all import caption, pictures
from headatlas.figures.style import FORMATS, PUBLISHED, check_formats, save
from headatlas.headmap.files import whole_file
from headatlas.progress import Progress, silent


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
    """Draw what can be drawn of these datasets (by method) into a folder: a file per figure and format, and a caption."""
    forms = check_formats(formats)
    written = []
    for picture in progress(list(pictures(maps, only, palette)), "drawing"):
        figure = picture.draw()
        for form in forms:
            path = folder / f"{picture.name}.{form}"
            with whole_file(path) as aside:
                save(figure, aside, form)
            written.append(path)
        with whole_file(folder / f"{picture.name}.txt") as aside:
            aside.write_text(caption(picture, maps, when or {}), encoding="utf-8")
    return written
