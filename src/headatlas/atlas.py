"""The whole flow: load a model, plan the work, do what is not done yet, draw it, write the page."""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import xarray as xr

from headatlas import __version__, tables
from headatlas.engines.pool import Pool
from headatlas.errors import (
    BadArgument,
    BadFile,
    HeadAtlasError,
    brief,
    check_count,
    check_there,
    did_you_mean,
    one_line,
)
from headatlas.results.about import by_kv_group
from headatlas.results.files import alone_in, check_folder, read_json, write_json
from headatlas.results.charts import MEASURES
from headatlas.results.provenance import describe_run
from headatlas.results.reading import complete, load_result, results_of
from headatlas.results.store import load_attributes
from headatlas.models.default import DEFAULT_MODEL
from headatlas.models.lm import LM
from headatlas.models.loading import load
from headatlas.models.weights import Weights
from headatlas.progress import Progress, doing, silent
from headatlas.runs.job import Job, check_model, finish, finished_parts, keep
from headatlas.figures.files import write_figures, write_report
from headatlas.runs.plan import Plan, from_weights, plan_for
from headatlas.runs.presets import check_run
from headatlas.results.accessor import HeadMaps, show_atlas, show_maps
from headatlas.runs.execute import Planned, ask_for_plan, for_workers, hired, spread
from headatlas.evidence.compare import compare as compare_charts

INDEX = "atlas.json"


class NotThere(BadArgument, KeyError):
    """A method that an atlas has no results of; a KeyError, as mappings raise."""

    __str__ = Exception.__str__


@dataclass(frozen=True)
class Atlas(Mapping[str, xr.Dataset]):
    """A folder of head maps for one model: a mapping from methods to their results, which are read when they are asked for."""

    folder: Path
    info: dict[str, Any]

    def __getitem__(self, method: str) -> xr.Dataset:
        """A method's head maps: atlas["maps"]."""
        if method not in self:
            raise NotThere(
                f"method {brief(method)} is not in this atlas; here are: {', '.join(self) or 'none yet'}."
                f"{did_you_mean(str(method), self)}"
            )
        return show_maps(load_result(self.folder / f"{method}.nc"))

    def __iter__(self) -> Iterator[str]:
        return iter(self.complete)

    def __len__(self) -> int:
        return len(self.complete)

    def __contains__(self, method: object) -> bool:
        return method in self.complete

    @property
    def complete(self) -> list[str]:
        """The methods this atlas has results of."""
        return complete(self.folder)

    @property
    def maps(self) -> dict[str, xr.Dataset]:
        """All results, by method."""
        return dict(self.items())

    def heads(
        self, function: str | None = None, top: int = 10, *, method: str | None = None, by: str | None = None
    ) -> pd.DataFrame:
        """The top heads of a function, relation, task or pattern, by every method that has a map of it: a row for each.

        method: only what this one says. by: 'kv-group', for groups of heads that share keys and values.
        """
        if function is not None and not isinstance(function, str):
            raise BadArgument(f"function is {brief(function)}, expected the name of a function, relation or task")
        check_count("top", top, 1)
        return pd.DataFrame(tables.heads(self.by(by), function or "", top, method))

    def by(self, unit: str | None) -> dict[str, xr.Dataset]:
        """All results; with unit 'kv-group', those that can be, summed per key-value group."""
        if unit is None:
            return self.maps
        if unit != "kv-group":
            raise BadArgument(f"by is {unit!r}, expected kv-group")
        maps = {name: found for name, found in self.maps.items() if name in MEASURES}
        said = [found.attrs.get("n_kv_heads") for found in maps.values()]
        groups = next((g for g in (self.info["model"].get("n_kv_heads"), *said) if g is not None), None)
        return {name: by_kv_group(found, groups) for name, found in maps.items()}

    @property
    def when(self) -> dict[str, str]:
        """When each method was completed."""
        return {name: m["time"] for name, m in self.info["methods"].items() if "time" in m}

    def check_model(self, weights: Weights, name: str) -> None:
        """That the atlas is of this model."""
        for method in self.complete:
            said = load_attributes(self.folder / f"{method}.nc")
            if weights.fingerprint() != said.get("fingerprint") and weights.likeness() != said.get("likeness"):
                raise BadArgument(
                    f"atlas is {str(self.folder)!r}, whose {method}.nc is of {said.get('model')}, not of this {name}"
                )

    def __repr__(self) -> str:
        model = self.info["model"]
        methods = ", ".join(self.complete) or "none yet"
        return f"Atlas({str(self.folder)!r}: {model['name']}, {model['n_layers']} × {model['n_heads']} heads; methods: {methods})"

    def _repr_html_(self) -> str:
        return show_atlas(self.maps, self.info, str(self.folder))


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
    command: str = "",
    progress: Progress = silent,
    tell: Callable[[Planned], None] = lambda planned: None,
) -> Atlas:
    """Map a model into the folder `out`, draw it, write its page. Run again, it does only what is missing or has changed.

    preset: 'quick' for a laptop, 'full' as published. methods: which ones (the preset's). functions: of probe (all eight) and
    of dissociate, which in the quick preset takes the built-in tasks instead, unless functions are named.
    engine: 'local' is this process, or one process for each GPU where there are several; 'ray' is a cluster (docs/scale.md).
    address: of the cluster, or 'auto'; without one, Ray is started on this machine. gpus_per_job: a model larger than one GPU is
    spread over so many. workers: how many at most. The results are the same with any of them.
    A method that cannot be done is noted in atlas.json, with the reason. tell: is handed the plan before work begins.
    """
    names, functions = check_run(preset, methods, functions)
    methods = None if methods is None else names
    folder = Path(out)
    check_folder(folder)
    options: dict[str, Any] = {"preset": preset, "methods": methods, "functions": functions}
    if isinstance(model, LM) and (engine != "local" or workers or gpus_per_job):
        raise BadArgument("model is an LM, but workers load it themselves: give its name or folder")
    several = (gpus_per_job or 1) > 1
    if gpus_per_job == 0 and device == "auto":
        device = "cpu"
    there = model if isinstance(model, LM) else for_workers(model)  # before the folder is made, which may have its name
    with alone_in(folder), ExitStack() as stack:
        pool = None
        if not isinstance(there, LM):
            planning = partial(plan_for, there, device, dtype, several, **options)
            pool = hired(planning, engine, address, gpus_per_job, workers, device)
        if pool is None:
            subject = there
            if not isinstance(there, LM) and not from_weights(preset, methods):
                with doing(progress, f"loading {there}"):
                    subject = load(there, device, dtype, device_map="auto" if several else None)
            if isinstance(subject, LM):
                with doing(progress, f"reading the weights of {subject.name} for their fingerprint"):
                    stack.enter_context(subject.weights.unchanged())
            planned = plan_for(subject, device, dtype, several, out=folder, progress=progress, **options)
        else:
            stack.enter_context(pool)
            with doing(progress, "starting workers, which load the model and plan"):
                planned = ask_for_plan(pool)
            jobs = {n: replace(j, out=folder) if isinstance(j, Job) else j for n, j in planned.jobs.items()}
            planned = replace(planned, jobs=jobs)
        tell(planned)
        for job in planned.jobs.values():
            if isinstance(job, Job):
                check_model(job)
        for name in complete(folder):
            if name not in planned.jobs:
                load_result(folder / f"{name}.nc")  # it will be drawn with the rest
        info = _begin(folder, planned.model, command)
        earlier = dict(info["methods"])
        for name, said in (
            _do(planned.jobs, earlier) if pool is None else _do_elsewhere(planned.jobs, earlier, pool, progress)
        ):
            info["methods"][name] = said
            write_json(folder / INDEX, info)
        _show(folder, info, progress)
    return open_atlas(folder)


def _show(folder: Path, info: dict[str, Any], progress: Progress) -> None:
    """Draw the figures and write the page, unless they are there and of these results."""
    files = [folder / f"{name}.nc" for name in complete(folder)]
    text = b"".join(f.read_bytes() for f in files) + json.dumps([__version__, info["methods"]]).encode()
    key = hashlib.sha256(text).hexdigest()[:16]
    shown = info.get("shown") or {"key": "", "files": []}
    if shown["key"] == key and all((folder / name).is_file() for name in shown["files"]):
        return
    atlas = Atlas(folder, info)
    drawn = write_figures(atlas.maps, folder / "figures", when=atlas.when, progress=progress)
    write_report(atlas.maps, info, folder / "report.html")
    written = [str(path.relative_to(folder)) for path in drawn] + ["report.html"]
    for name in set(shown["files"]) - set(written):  # figures of what is no longer there
        (folder / "figures" / Path(name).name).unlink(missing_ok=True)
    info["shown"] = {"key": key, "files": written}
    write_json(folder / INDEX, info)


def compare(a: Mapping[str, xr.Dataset] | str | Path, b: Mapping[str, xr.Dataset] | str | Path) -> xr.Dataset:
    """Agreement of two atlases, chart by chart: head by head where both models have the same heads, by relative depth always.

    Each is an atlas, its folder, or results by method.
    """
    first, second = (
        open_atlas(given, name).maps if isinstance(given, str | Path) else results_of(name, given)
        for name, given in (("a", a), ("b", b))
    )
    return compare_charts(first, second)


def _begin(folder: Path, model: dict[str, Any], command: str) -> dict[str, Any]:
    """The folder's index, with what earlier runs for the same model noted."""
    info: dict[str, Any] = {"model": model, "run": describe_run() | {"command": command}, "methods": {}}
    try:
        earlier = read_json(folder / INDEX)
        if earlier["model"]["fingerprint"] == info["model"]["fingerprint"]:
            info["methods"] = {str(name): dict(said) for name, said in earlier["methods"].items()}
            shown = earlier.get("shown", {})
            info["shown"] = {"key": str(shown["key"]), "files": [str(name) for name in shown["files"]]}
    except (BadFile, KeyError, TypeError, ValueError, AttributeError):  # none, or not ours: it is written anew
        pass
    write_json(folder / INDEX, info)
    return info


def _do(jobs: Plan, earlier: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Do one job after the other and say how each went."""
    for name, job in jobs.items():
        if not isinstance(job, Job) or job.state == "done":
            yield name, _known(job, earlier.get(name, {}))
            continue
        start = time.perf_counter()
        try:
            finish(job)
        except HeadAtlasError as e:
            yield name, {"complete": False, "why": str(e)}
        except torch.OutOfMemoryError as e:
            yield name, {"complete": False, "why": f"out of memory: {one_line(e)}"}
        else:
            yield name, _well_done(job, time.perf_counter() - start)


def _do_elsewhere(
    jobs: Plan, earlier: dict[str, Any], pool: Pool, progress: Progress
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The same on workers, all jobs at once."""
    to_do: dict[str, Job] = {}
    for name, job in jobs.items():
        if isinstance(job, Job) and job.state != "done":
            to_do[name] = job
        else:
            yield name, _known(job, earlier.get(name, {}))
    for name, outcome in spread(pool, to_do, progress):
        if outcome.found is None:
            yield name, {"complete": False, "why": outcome.why}
        else:
            keep(to_do[name], outcome.found, finished_parts(to_do[name]))
            yield name, _well_done(to_do[name], outcome.seconds)


def _known(job: Job | HeadAtlasError, earlier: dict[str, Any]) -> dict[str, Any]:
    """What is to be said where there is nothing to do."""
    if isinstance(job, HeadAtlasError):
        return {"complete": False, "why": str(job)}
    return earlier if earlier.get("key") == job.key else _well_done(job, 0.0)


def _well_done(job: Job, seconds: float) -> dict[str, Any]:
    when = datetime.now(UTC).isoformat(timespec="seconds")
    done = {"complete": True, "file": job.path.name, "key": job.key}
    return done | {"time": when, "seconds": round(seconds, 2)}


def open(path: str | Path) -> Atlas | HeadMaps:
    """An atlas made earlier, or any folder of head maps; of one file such as atlas/maps.nc, its dataset."""
    if not isinstance(path, str | Path):
        raise BadArgument(f"path is {brief(path)}, expected the folder of an atlas, or one of its .nc files")
    return show_maps(load_result(Path(path))) if Path(path).is_file() else open_atlas(path)


def open_atlas(folder: str | Path, argument: str = "path") -> Atlas:
    """An atlas made earlier, or any folder of head maps."""
    path = Path(folder)
    check_there(argument, path, "folder")
    if (path / INDEX).is_file():
        info = read_json(path / INDEX)
        for part in ("model", "run", "methods"):
            if not isinstance(info.get(part), dict):
                raise BadFile(f"{path / INDEX} lacks {part}: not an atlas of this version")
        named = all(
            isinstance(info["model"].get(k), t) for k, t in (("name", str), ("n_layers", int), ("n_heads", int))
        )
        if not named or not all(isinstance(m, dict) and "complete" in m for m in info["methods"].values()):
            raise BadFile(f"{path / INDEX} is not laid out as an atlas of this version")
        return Atlas(path, info)
    files = [path / f"{name}.nc" for name in complete(path)]
    if not files:
        raise BadFile(
            f"{path} is not an atlas: it has no {INDEX} and no head map (make one with `headatlas run --out {path}`)"
        )
    found, said = load_result(files[0]), load_attributes(files[0])
    model = {"name": str(said.get("model", path.name)), "fingerprint": said.get("fingerprint", "")}
    shape = {"n_layers": found.sizes["layer"], "n_heads": found.sizes["head"]}
    return Atlas(path, {"model": model | shape, "run": {}, "methods": {}})
