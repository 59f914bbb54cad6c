"""atlas.json, as a run keeps it."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headatlas.errors import BadFile, HeadAtlasError
from headatlas.files import read_json, write_json
from headatlas.results.atlas import INDEX
from headatlas.results.provenance import describe_run
from headatlas.results.reading import complete, load_result
from headatlas.runs.job import Job
from headatlas.runs.messages import Planned


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
        for name in jobs.keys() - self.to_do.keys():
            jobs[name].forget_parts(folder)  # left by a run that was killed just after it wrote the result
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
                pictures = {str(name): str(key) for name, key in drawn.get("pictures", {}).items()}
                files = [str(name) for name in drawn["files"]]
                noted["shown"] = {"key": str(drawn["key"]), "files": files, "pictures": pictures}
        except (BadFile, KeyError, TypeError, ValueError, AttributeError):
            pass
        return noted

    def note(self, name: str, error: HeadAtlasError | None, seconds: float) -> None:
        """How a method went."""
        self.info["methods"][name] = _went(self.to_do[name], error, seconds)
        self.write()

    def write(self) -> None:
        write_json(self.folder / INDEX, self.info)


def _went(job: Job, error: HeadAtlasError | None, seconds: float) -> dict[str, Any]:
    if error is not None:
        return {"complete": False, "why": str(error)}
    when = datetime.now(UTC).isoformat(timespec="seconds")
    return {"complete": True, "file": f"{job.name}.nc", "key": job.key, "time": when, "seconds": round(seconds, 2)}
