"""Figures and page of an atlas, drawn as its results come in."""

import hashlib
import json
from pathlib import Path
from typing import Any

from headatlas import __version__
from headatlas.progress import Progress
from headatlas.report import PAGE
from headatlas.results.atlas import Atlas
from headatlas.results.reading import complete
from headatlas.runs.index import Index
from headatlas.runs.timeline import Timeline


def draw_atlas(index: Index, progress: Progress, timeline: Timeline | None = None) -> None:
    """Draw the figures of results that are new, and write the page. timeline: of what is still to come."""
    from headatlas.figures.all import pictures  # what draws is imported once there is something to draw
    from headatlas.figures.files import files_of, write_picture
    from headatlas.report.page import write_report

    folder, info = index.folder, index.info
    pending = {} if timeline is None else {job: timeline.left(job) for job in timeline.pending}
    hashes = {name: _hash((folder / f"{name}.nc").read_bytes()) for name in complete(folder)}
    key = _hash([__version__, info["methods"], hashes, list(pending)])
    shown = info.get("shown") or {"key": "", "files": [], "pictures": {}}
    if shown["key"] == key and all((folder / name).is_file() for name in shown["files"]):
        return
    atlas = Atlas(folder, info)
    results, when = atlas.results, atlas.when
    drawn, written = {}, [folder / PAGE]
    for picture in progress(list(pictures(results)), "drawing"):
        drawn[picture.name] = _hash([__version__, [(name, hashes[name], when.get(name)) for name in picture.methods]])
        files = files_of(picture, folder / "figures")
        if shown["pictures"].get(picture.name) != drawn[picture.name] or not all(f.is_file() for f in files):
            write_picture(picture, results, folder / "figures", when=when)
        written += files
    write_report(results, info, folder / PAGE, pending)
    names = sorted(str(path.relative_to(folder)) for path in written)
    for name in set(shown["files"]) - set(names):  # figures of results that are gone
        (folder / "figures" / Path(name).name).unlink(missing_ok=True)
    info["shown"] = {"key": key, "files": names, "pictures": drawn}
    index.write()


def _hash(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return hashlib.sha256(data).hexdigest()[:16]
