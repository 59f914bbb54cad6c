"""`run`: plan → execute → store → draw, once, for every engine."""

import hashlib
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headatlas import __version__
from headatlas.errors import BadFile, HeadAtlasError
from headatlas.figures.files import write_figures
from headatlas.models.default import DEFAULT_MODEL
from headatlas.models.lm import LM
from headatlas.progress import Progress, silent
from headatlas.report.page import write_report
from headatlas.results.atlas import INDEX, Atlas, open_atlas
from headatlas.results.files import alone_in, check_folder, read_json, write_json
from headatlas.results.provenance import describe_run
from headatlas.results.reading import complete, load_result
from headatlas.runs.execute import ask_for_plan, execute
from headatlas.runs.job import Job, check_model
from headatlas.runs.messages import Planned
from headatlas.runs.request import check_run
from headatlas.runs.start import start_workers


def run(
    model: LM | str | Path = DEFAULT_MODEL,
    out: str | Path = "atlas",
    *,
    preset: str = "quick",
    methods: Sequence[str] | str | None = None,
    functions: Sequence[str] | str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    engine: str = "local",
    address: str | None = None,
    gpus_per_job: int | None = None,
    workers: int | None = None,
    draw: bool = True,
    command: str = "",
    progress: Progress = silent,
    tell: Callable[[Planned], None] = lambda planned: None,
) -> Atlas:
    """Map a model into the folder `out`, draw it, write its page. Run again, it does what is missing or has changed.

    Args:
        model: an LM, or anything `load` takes.
        preset: 'quick' for a laptop, 'full' as published.
        methods: which ones; without it, the preset's.
        functions: cognitive functions, for the methods that take some; without it, what their preset says.
        engine: 'local' is this process, or one for each GPU if there are several; 'ray' is a cluster
            (docs/how-to/cluster.md).
        address: of the cluster, or 'auto'; without one, Ray is started on this machine.
        gpus_per_job: a model larger than one GPU is spread over so many.
        workers: how many at most. The results are the same with any number and any engine.
        draw: also the figures and the page.
        tell: is handed the plan before work begins.

    Returns:
        The atlas. A method that could not be done is noted in atlas.json, with the reason.
    """
    request, folder = check_run(preset, methods, functions), Path(out)
    pool = start_workers(
        model,
        device=device,
        dtype=dtype,
        engine=engine,
        address=address,
        gpus_per_job=gpus_per_job,
        workers=workers,
        progress=progress,
    )
    with pool:
        check_folder(folder)
        with alone_in(folder):
            planned = ask_for_plan(pool, request)
            tell(planned)
            check_model(planned.jobs, folder)
            index = Index(folder, planned, command)
            for outcome in execute(pool, index.to_do, folder, progress):
                index.note(outcome.name, _went(index.to_do[outcome.name], outcome.error, outcome.seconds))
            if draw:
                draw_atlas(index, progress)
    return open_atlas(folder)


class Index:
    """atlas.json: what an atlas is of, which methods are complete, what was drawn."""

    def __init__(self, folder: Path, planned: Planned, command: str) -> None:
        self.folder = folder
        for name in complete(folder):
            if name not in planned.jobs:
                load_result(folder / f"{name}.nc")  # it will be drawn with the rest
        self.info: dict[str, Any] = {
            "model": dict(planned.model),
            "run": describe_run() | {"command": command},
            "methods": {},
        }
        self.info |= self._earlier()
        jobs = {name: job for name, job in planned.jobs.items() if isinstance(job, Job)}
        self.to_do = {name: job for name, job in jobs.items() if job.state(folder) != "done"}
        for name, job in planned.jobs.items():
            if isinstance(job, HeadAtlasError):
                self.info["methods"][name] = {"complete": False, "why": str(job)}
            elif name not in self.to_do and self.info["methods"].get(name, {}).get("key") != job.key:
                self.info["methods"][name] = _went(job, None, 0.0)
        self.write()

    def _earlier(self) -> dict[str, Any]:
        """What earlier runs for the same model noted; empty without any, or if the file is not ours."""
        noted: dict[str, Any] = {}
        try:
            earlier = read_json(self.folder / INDEX)
            # without a fingerprint, nothing could be planned: what is there stays
            if self.info["model"]["fingerprint"] in ("", earlier["model"]["fingerprint"]):
                noted["model"] = dict(earlier["model"])
                noted["methods"] = {str(name): dict(went) for name, went in earlier["methods"].items()}
                drawn = earlier["shown"]  # missing, if nothing was drawn: the methods are kept
                noted["shown"] = {"key": str(drawn["key"]), "files": [str(name) for name in drawn["files"]]}
        except (BadFile, KeyError, TypeError, ValueError, AttributeError):
            pass
        return noted

    def note(self, name: str, went: dict[str, Any]) -> None:
        self.info["methods"][name] = went
        self.write()

    def write(self) -> None:
        write_json(self.folder / INDEX, self.info)


def _went(job: Job, error: HeadAtlasError | None, seconds: float) -> dict[str, Any]:
    if error is not None:
        return {"complete": False, "why": str(error)}
    when = datetime.now(UTC).isoformat(timespec="seconds")
    return {"complete": True, "file": f"{job.name}.nc", "key": job.key, "time": when, "seconds": round(seconds, 2)}


def draw_atlas(index: Index, progress: Progress) -> None:
    """Draw the figures and write the page, unless those of these results exist."""
    folder, info = index.folder, index.info
    files = [folder / f"{name}.nc" for name in complete(folder)]
    text = b"".join(f.read_bytes() for f in files) + json.dumps([__version__, info["methods"]]).encode()
    key = hashlib.sha256(text).hexdigest()[:16]
    shown = info.get("shown") or {"key": "", "files": []}
    if shown["key"] == key and all((folder / name).is_file() for name in shown["files"]):
        return
    atlas = Atlas(folder, info)
    results = atlas.results
    drawn = write_figures(results, folder / "figures", when=atlas.when, progress=progress)
    write_report(results, info, folder / "report.html")
    written = [str(path.relative_to(folder)) for path in drawn] + ["report.html"]
    for name in set(shown["files"]) - set(written):  # figures of results that are gone
        (folder / "figures" / Path(name).name).unlink(missing_ok=True)
    info["shown"] = {"key": key, "files": written}
    index.write()
