"""`run`: plan → execute → store → draw, once, for every engine."""

from collections.abc import Sequence
from pathlib import Path

from headatlas.engines.pool import Pool
from headatlas.files import alone_in, check_folder
from headatlas.models.default_model import DEFAULT_MODEL
from headatlas.models.lm import LM
from headatlas.progress import Progress, Watch, silent
from headatlas.report import PAGE
from headatlas.results.atlas import Atlas, open_atlas
from headatlas.runs.draw import draw_atlas
from headatlas.runs.execute import ask_for_plan, ask_for_time, execute
from headatlas.runs.index import Index
from headatlas.runs.job import check_model
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
    watch: Watch | None = None,
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
        draw: also the figures and the page, after every method: there is something to look at while the rest is done.
        watch: is told what happens.

    Returns:
        The atlas. A method that could not be done is noted in atlas.json, with the reason.
    """
    request, folder, watch = check_run(preset, methods, functions), Path(out), watch or Watch()
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
            watch.planned(planned)
            check_model(planned.jobs, folder)
            index = Index(folder, planned, command)
            _do_jobs(pool, index, draw, progress, watch)
            if draw:
                draw_atlas(index, progress)
    return open_atlas(folder)


def _do_jobs(pool: Pool, index: Index, draw: bool, progress: Progress, watch: Watch) -> None:
    """Do what is to be done, and show each result while the others are still to come."""
    timeline, page = ask_for_time(pool, index.to_do, watch), index.folder / PAGE
    try:
        jobs = {name: index.to_do[name] for name in timeline.expected}
        for outcome in execute(pool, jobs, index.folder, progress, timeline):
            index.note(outcome.name, outcome.error, outcome.seconds)
            timeline.finish(outcome.name, outcome.error)
            if draw and timeline.pending and outcome.result is not None:
                draw_atlas(index, progress, timeline)
                watch.drawn(page)
    except BaseException:
        if draw and page.exists():
            draw_atlas(index, silent)  # the page must not wait for what will not come
        raise
    finally:
        watch.ends()
