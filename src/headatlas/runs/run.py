"""Run methods on a model: `run` for an atlas, `compute` for one method; the same steps on every engine."""

import inspect
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Unpack

import xarray as xr

from headatlas.engines.pool import Pool
from headatlas.errors import did_you_mean
from headatlas.files import check_folder, locked_folder
from headatlas.methods.method import Method
from headatlas.models.default_model import DEFAULT_MODEL
from headatlas.models.lm import LM
from headatlas.progress import Progress, Watch, silent
from headatlas.report import PAGE
from headatlas.results.atlas import Atlas, open_atlas
from headatlas.results.stored_tests import TESTS, with_outcomes
from headatlas.runs.draw import draw_atlas
from headatlas.runs.execute import execute
from headatlas.runs.manifest import Manifest
from headatlas.runs.map_tests import plan_tests
from headatlas.runs.plan import Plan, RunPlan
from headatlas.runs.selection import select_methods
from headatlas.runs.timeline import Timeline
from headatlas.runs.where import Where, WhereOptions, start_workers


def run(
    model: LM | str | Path = DEFAULT_MODEL,
    out: str | Path = "atlas",
    *,
    preset: str = "quick",
    methods: Sequence[str] | str | None = None,
    functions: Sequence[str] | str | None = None,
    tests: bool = True,
    draw: bool = True,
    command: str = "",
    progress: Progress = silent,
    watch: Watch | None = None,
    **where: Unpack[WhereOptions],
) -> Atlas:
    """Map a model into the folder `out`, draw the figures and write the page.

    Run again, it computes only what is missing or has changed.

    Args:
        model: an LM, or anything that `load` takes.
        out: the folder of the atlas.
        preset: 'quick' for a laptop, 'full' for the settings of the publications.
        methods: names of methods (default: those of the preset).
        functions: cognitive functions, for the methods that have this option (default: those of the preset).
        tests: test the top heads of the maps by removing them (docs/concepts/evidence.md), once all maps are there.
        draw: draw the figures and the page, after every method, so that first results can be seen early.
        command: the command line, to be noted in atlas.json.
        progress: wraps sequences of work and shows how far they are.
        watch: its methods are called when the run is planned and when methods begin and end.
        where: device ('auto', 'cpu', 'cuda' or 'cuda:N') and dtype ('auto' is that of the files);
            engine, 'local' (this process, or one process per GPU if there are several) or 'ray'
            (docs/how-to/cluster.md); address of the cluster, or 'auto' (default: Ray is started on this machine);
            gpus_per_job, the number of GPUs over which a model is spread; workers, their maximum number. Results do not
            depend on the number of workers, nor on the engine.

    Returns:
        The atlas. If a method failed, the reason is noted in atlas.json, and the other methods are done.
    """
    for unknown in where.keys() - WhereOptions.__annotations__.keys():
        valid = [*inspect.signature(run).parameters, *WhereOptions.__annotations__]
        raise TypeError(f"run() has no argument {unknown!r}.{did_you_mean(unknown, valid)}")
    selected = select_methods(preset, methods, functions)
    _carry_out(
        model,
        Path(out),
        selected,
        Where(**where),
        tests=preset if tests else "",
        draw=draw,
        stop_at_error=False,
        command=command,
        progress=progress,
        watch=watch or Watch(),
    )
    return open_atlas(out)


def compute(
    method: Method,
    model: LM | str | Path = DEFAULT_MODEL,
    options: Mapping[str, Any] | None = None,
    *,
    preset: str = "quick",
    out: str | Path | None = None,
    tests: bool = False,
    command: str = "",
    progress: Progress = silent,
    watch: Watch | None = None,
    **where: Unpack[WhereOptions],
) -> xr.Dataset:
    """Return the result of a method, read from the folder `out` if it is there already.

    Args:
        options: the method's options by name (default: those of the preset).
        out: the folder of an atlas, or a new folder (default: nothing is kept).
        where: as in `run`, like the other arguments.

    Raises:
        HeadAtlasError: the first error of the method.
    """
    check_folder(out)
    selected = [(method, method.in_preset(preset, options or {}))]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary if out is None else out)
        manifest = _carry_out(
            model,
            folder,
            selected,
            Where(**where),
            tests=preset if tests else "",
            draw=False,
            stop_at_error=True,
            command=command,
            progress=progress,
            watch=watch or Watch(),
        )
    return with_outcomes(manifest.results, manifest.tests)[method.name]


def _carry_out(
    model: LM | str | Path,
    folder: Path,
    selected: Sequence[tuple[Method, Mapping[str, Any]]],
    where: Where,
    *,
    tests: str,
    draw: bool,
    stop_at_error: bool,
    command: str,
    progress: Progress,
    watch: Watch,
) -> Manifest:
    """Run methods with their options, and keep atlas.json up to date.

    Args:
        tests: the preset of the tests; empty for none.
        stop_at_error: raise the first error, once it is noted.
    """
    with start_workers(model, where, progress) as pool, locked_folder(folder):
        planned: RunPlan = pool.ask("plan", selected)
        if stop_at_error:
            for plan in planned.plans.values():
                if not isinstance(plan, Plan):
                    raise plan
        planned.check_folder(folder)
        watch.on_plan(planned)
        manifest = Manifest(folder, planned, command)
        plans = manifest.to_do
        timeline = Timeline(
            {name: plan.seconds for name, plan in plans.items()},
            {name: len(plan.work.parts) + 1 for name, plan in plans.items()},
            pool.backend.size,
            watch,
        )
        watch.on_begin(timeline)
        _do_plans(pool, manifest, plans, timeline, draw, stop_at_error, progress)
        to_test = plan_tests(manifest.results, planned.possible, tests, manifest.tests) if tests else None
        if to_test is not None:
            n_parts = len(to_test.work.parts) + 1
            timeline = Timeline({TESTS: to_test.seconds}, {TESTS: n_parts}, pool.backend.size, watch)
            watch.on_begin(timeline)
            if draw:
                draw_atlas(manifest, progress, timeline)
                watch.on_page_drawn(folder / PAGE)
            _do_plans(pool, manifest, {TESTS: to_test}, timeline, draw, stop_at_error, progress)
        if draw:
            draw_atlas(manifest, progress)
    return manifest


def _do_plans(
    pool: Pool,
    manifest: Manifest,
    plans: Mapping[str, Plan],
    timeline: Timeline,
    draw: bool,
    stop_at_error: bool,
    progress: Progress,
) -> None:
    """Execute plans, and draw each result as it comes."""
    page = manifest.folder / PAGE
    try:
        with closing(execute(pool, plans, manifest.folder, progress, timeline)) as results:
            for name, result in results:
                manifest.note(name, result)
                timeline.finish(name, result.error)
                if result.error is not None and stop_at_error:
                    raise result.error
                if draw and timeline.pending and result.error is None:
                    draw_atlas(manifest, progress, timeline)
                    timeline.watch.on_page_drawn(page)
    except BaseException:
        if draw and page.exists():
            # a page that was drawn with methods pending reloads itself: it must not wait for results that never come
            draw_atlas(manifest, silent)
        raise
    finally:
        timeline.watch.on_end()
