"""Figures and page of an atlas, drawn as its results come in."""

import hashlib
import json
import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from headatlas import __version__
from headatlas.engines.pool import attempt
from headatlas.progress import Progress
from headatlas.report import PAGE
from headatlas.results.stored_tests import TESTS
from headatlas.runs.manifest import Manifest
from headatlas.runs.timeline import Timeline

log = logging.getLogger(__name__)


def draw_atlas(manifest: Manifest, progress: Progress, timeline: Timeline | None = None) -> None:
    """Draw the figures of new results, and write the page.

    A result that cannot be drawn is noted in atlas.json with the reason, and the others are drawn.

    Args:
        timeline: of the run, while some of its methods have not ended; the page shows their remaining time.
    """
    pending = {} if timeline is None else {method: timeline.remaining_seconds(method) for method in timeline.pending}
    if attempt(lambda: _draw(manifest, pending, progress)).error is None:
        return
    # some result cannot be drawn: find which, and draw the others
    for name in manifest.drawable:
        if (alone := attempt(lambda name=name: _draw_alone(manifest, name))).error is not None:  # type: ignore[misc]
            manifest.note_not_drawn(name, str(alone.error))
    error = attempt(lambda: _draw(manifest, pending, progress)).error
    if error is not None:
        log.warning("figures and page could not be drawn: %s", error)


def _draw(manifest: Manifest, pending: Mapping[str, float | None], progress: Progress) -> None:
    """Draw the figures whose results have changed, write the page, and remove figures of results that are gone.

    Args:
        pending: remaining seconds of each method that has not ended.
    """
    # plotting libraries take seconds to import: not before there is something to draw
    from headatlas.figures.all import pictures
    from headatlas.figures.saving import files_of, write_picture
    from headatlas.report.page import write_report

    folder = manifest.folder
    info = manifest.info
    results = manifest.drawable
    key = _hash([__version__, info["methods"], manifest.hashes, list(pending)])
    shown = info.get("shown") or {"key": "", "files": [], "pictures": {}}
    if shown["key"] == key and all((folder / name).is_file() for name in shown["files"]):
        return
    times = manifest.completion_times
    picture_keys: dict[str, str] = {}
    paths = [folder / PAGE]
    for picture in progress(list(pictures(results)), "drawing"):
        tested = [TESTS] if any("tested_outcome" in results[name] for name in picture.methods) else []
        sources = [(name, manifest.hashes[name], times.get(name)) for name in (*picture.methods, *tested)]
        picture_keys[picture.name] = _hash([__version__, sources])
        files = files_of(picture, folder / "figures")
        if shown["pictures"].get(picture.name) != picture_keys[picture.name] or not all(f.is_file() for f in files):
            write_picture(picture, results, folder / "figures", when=times)
        paths += files
    write_report(results, info, folder / PAGE, pending)
    names = sorted(str(path.relative_to(folder)) for path in paths)
    # by the file's name alone, because atlas.json may have been edited: nothing outside the folder is removed
    for name in set(shown["files"]) - set(names):
        (folder / "figures" / Path(name).name).unlink(missing_ok=True)
    info["shown"] = {"key": key, "files": names, "pictures": picture_keys}
    manifest.write()


def _draw_alone(manifest: Manifest, name: str) -> None:
    """Draw one result into a temporary folder, to find out whether it can be drawn."""
    from headatlas.figures.all import pictures
    from headatlas.figures.saving import write_picture
    from headatlas.report.page import page

    results: dict[str, xr.Dataset] = {name: manifest.drawable[name]}
    with tempfile.TemporaryDirectory() as folder:
        for picture in pictures(results):
            write_picture(picture, results, Path(folder), when=manifest.completion_times)
    page(results, manifest.info)


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
