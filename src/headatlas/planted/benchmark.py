"""`ha.benchmark`: every method against models whose heads are known (docs/benchmark.md).

Three kinds of truth: trained models whose functions live in chosen heads; the same models with noise in spare heads, which
interferes; and random models with relations written into chosen heads.
"""

import hashlib
import logging
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from headatlas.atlas import Atlas, open_atlas
from headatlas.planted.contenders import CONTENDERS, Known
from headatlas.planted.real import ASK, assess, hash_atlas
from headatlas.errors import BadArgument, did_you_mean
from headatlas.results.files import check_folder
from headatlas.results.provenance import describe_run, flat
from headatlas.models.cache import cache_folder
from headatlas.models.heads import head_mask
from headatlas.models.lm import LM
from headatlas.models.loading import load
from headatlas.models.passes import counted
from headatlas.planted.asking import planted_task
from headatlas.planted.functions import FUNCTIONS
from headatlas.planted.interference import plant_interference
from headatlas.planted.known import MOST_SEEDS, SHIPPED, accept, measure_functions, planted_folder, read_truth
from headatlas.planted.relations import NOISE, plant_relations
from headatlas.planted.training import plant
from headatlas.progress import Done, Progress, silent
from headatlas.runs.job import Job, Part, finish
from headatlas.runs.execute import Planned, finish_elsewhere, for_workers, hired
from headatlas.evidence.evidence import DRAWS
from headatlas.evidence.truth import mean_interval, recovery

log = logging.getLogger(__name__)

RELATION_SEEDS = (0, 1)


def benchmark(
    methods: Sequence[str] | None = None,
    models: Sequence[str | Path] = SHIPPED,
    *,
    atlas: Atlas | str | Path | None = None,
    atlas_model: LM | str | Path | None = None,
    seed: int = 0,
    device: str = "auto",
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
    out: str | Path | None = None,
    progress: Progress = silent,
) -> xr.Dataset:
    """AUROC and average precision of every method, on models whose heads are known: auroc(contender, model, subject).

    methods: which; all without any. models: 'one' and 'two' come with the package; folders that `headatlas plant` wrote;
    'seed:3' (or 'seed:3/4' with 4 KV heads) is trained now, unless it was before, which wants a GPU.
    atlas: of a real model. What can be said of its maps without a truth: agreement, stability, and whether removal hurts.
    atlas_model: that model, where its name in the atlas does not say where it lies.
    seed: of the prompts and of what is random in the methods. engine, address, workers: as in `run`, model by model.
    out: a folder for benchmark.nc; interrupted work goes on there.
    """
    check_folder(out)
    if isinstance(atlas_model, LM) and (engine != "local" or workers):
        raise BadArgument("atlas_model is an LM, but workers load it themselves: give its name or folder")
    asked: dict[str, Any] = {
        "methods": methods,
        "models": {str(m): str(m) if str(m) in SHIPPED else for_workers(m) for m in models},
        "atlas": for_workers(atlas) if isinstance(atlas, str | Path) else atlas,
        "atlas_model": for_workers(atlas_model) if isinstance(atlas_model, str | Path) else atlas_model,
        "seed": seed,
    }
    planning = partial(_planned, **asked, device=device)
    pool = None if isinstance(atlas_model, LM) else hired(planning, engine, address, None, workers, device)
    if pool is None:
        return finish(plan_benchmark(**asked, device=device, out=out, progress=progress))
    with pool, tempfile.TemporaryDirectory() as aside:
        return finish_elsewhere(pool, "benchmark", Path(out or aside), progress)


def _planned(**options: Any) -> Planned:
    return Planned({}, "benchmark", {"benchmark": plan_benchmark(**options)})


def plan_benchmark(
    methods: Sequence[str] | None,
    models: Mapping[str, str],
    atlas: Atlas | str | Path | None,
    atlas_model: LM | str | Path | None,
    seed: int,
    device: str,
    out: str | Path | None = None,
    progress: Progress = silent,
) -> Job:
    """`benchmark`, planned. models: by what they are called, where they are."""
    chosen = list(dict.fromkeys(CONTENDERS if methods is None else methods))
    for name in chosen:
        if name not in CONTENDERS:
            raise BadArgument(
                f"method is {name!r}, expected one of {', '.join(CONTENDERS)}.{did_you_mean(name, CONTENDERS)}"
            )
    if not 0 <= seed < MOST_SEEDS:
        raise BadArgument(f"seed is {seed}, expected 0 to {MOST_SEEDS - 1}")
    if not chosen or not models:
        raise BadArgument(f"{'models' if chosen else 'methods'} is empty: name at least one")
    real = atlas if atlas is None or isinstance(atlas, Atlas) else open_atlas(atlas, "atlas")
    folders = {name: _folder(where, device, progress) for name, where in models.items()}
    wanted = {CONTENDERS[name].truth for name in chosen}

    recipes: list[str | tuple[float, int]] = [
        *folders,
        *(product(NOISE, RELATION_SEEDS) if wanted & {"relations", "suppression"} else ()),
    ]

    @cache
    def models_of(recipe: str | tuple[float, int]) -> list[tuple[str, Known]]:
        if isinstance(recipe, str):
            return list(_with_functions(recipe, folders[recipe], wanted, seed, device))
        return list(_with_relations(*recipe, wanted, seed))

    def contenders(truth: str) -> list[str]:
        return [name for name in chosen if CONTENDERS[name].truth == truth]

    def part(recipe: str | tuple[float, int]) -> Part:
        names = _names_of(recipe)
        leaves = tuple(f"{known}: {c}" for truth, known in names.items() for c in contenders(truth))

        def do(done: Done, progress: Progress) -> None:
            for truth, known in models_of(recipe):
                for name in progress(contenders(truth), f"model {known.name}"):
                    if f"{known.name}: {name}" not in done:
                        done[f"{known.name}: {name}"] = _measure(name, known, seed)

        return Part(f"model {next(iter(names.values()))}", leaves, do)

    def work(done: Done, progress: Progress) -> xr.Dataset:
        found: list[tuple[str, Known, np.ndarray, np.ndarray]] = []
        for truth, known in chain(*map(models_of, recipes)):
            for name in contenders(truth):
                values, costs = done[f"{known.name}: {name}"]
                found.append((name, known, values, costs))
        result = _as_dataset(chosen, found)
        if real is None:
            return result
        source = real.info["model"]["name"] if atlas_model is None else atlas_model
        lm = source if isinstance(source, LM) else load(source, device)
        return result.merge(assess(real, lm, seed=seed, done=done, progress=progress), combine_attrs="no_conflicts")

    versions = {k: v for k, v in flat(describe_run()).items() if k != "time"}
    stamp = {
        "model": ", ".join(folders),
        "fingerprint": ", ".join(map(_hash_folder, folders.values())),
        "likeness": "",
        "read_from": "",
    }
    return Job(
        "benchmark",
        f"{len(chosen)} methods on {', '.join(folders)}",
        stamp | {"seed": seed, "asked": ASK, "draws": DRAWS} | versions,
        work,
        {"methods": ", ".join(chosen), "atlas": "" if real is None else hash_atlas(real)},
        None if out is None else Path(out),
        progress,
        [part(recipe) for recipe in recipes],
    )


def _hash_folder(folder: Path) -> str:
    """Of everything in it: weights, tokenizer, truth."""
    found = hashlib.sha256()
    for path in sorted(p for p in folder.iterdir() if p.is_file()):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()[:16]


def _folder(model: str, device: str, progress: Progress) -> Path:
    """Where a planted model lies; 'seed:N' is planted first."""
    if recipe := re.fullmatch(r"seed:(\d+)(?:/(\d+))?", model):
        seed, kv_heads = int(recipe[1]), int(recipe[2] or 8)
        folder = cache_folder() / "planted" / f"seed-{seed}-{kv_heads}"
        if not folder.exists():
            plant(folder, seed, kv_heads, device=device, progress=progress)
        return folder
    return planted_folder(model)


def _names_of(recipe: str | tuple[float, int]) -> dict[str, str]:
    """What the models of a recipe are called, by kind of truth."""
    if isinstance(recipe, str):
        return {"functions": recipe, "interference": f"{recipe}, noisy"}
    noise, number = recipe
    return {truth: f"{truth}, noise {noise:g}, {number}" for truth in ("relations", "suppression")}


def _with_functions(name: str, folder: Path, wanted: set[str], seed: int, device: str) -> Iterator[tuple[str, Known]]:
    """(kind of truth, model) of a trained model, as it is and with noise in spare heads."""
    lm, truth, called = load(folder, device), read_truth(folder), _names_of(name)
    head_mask(truth.background, lm.anatomy)  # that they are there
    problems = accept(measure_functions(lm, truth))
    for function, problem in problems.items():
        log.warning("model %s: %s is left out, it is not where the truth says: %s", name, function, problem)
    heads_of = {f: heads for f, heads in truth.functions.items() if f not in problems}
    if not heads_of:
        raise BadArgument(f"model {name!r}: no function is where its truth.json says")
    if "functions" in wanted:
        yield "functions", Known(name, "functions", lm, heads_of, [], [])
    if "interference" in wanted:
        noisy, interferes, heads = plant_interference(lm, truth, seed)
        interferes = {f: found for f, found in interferes.items() if f in heads_of}
        yield "interference", Known(called["interference"], "interference", noisy, interferes, heads, [])


def _with_relations(noise: float, number: int, wanted: set[str], seed: int) -> Iterator[tuple[str, Known]]:
    """(kind of truth, model) of a random model with relations written into some heads."""
    planted = plant_relations(noise, len(RELATION_SEEDS) * seed + number)
    for truth_of, known_heads in (("relations", planted.writers), ("suppression", planted.suppressors)):
        if truth_of in wanted:
            called, group = _names_of((noise, number))[truth_of], f"{truth_of}, noise {noise:g}"
            yield truth_of, Known(called, group, planted.lm, known_heads, [], planted.relations)


def _measure(name: str, known: Known, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """AUROC and average precision of each subject [subject, 2], and what they cost: seconds, forward, backward passes a subject."""
    start = time.perf_counter()
    with counted(known.lm) as passes, _hushed():
        scores = CONTENDERS[name].score(known, seed)
    seconds = time.perf_counter() - start
    values = [recovery(scores[s], heads, known.unsure) for s, heads in known.heads.items()]
    asked = [e for f in FUNCTIONS for e in planted_task(f, 1, 32, seed).held_out]
    example = float(np.mean([len(str(e.prompt).split()) + 1 for e in asked]))  # tokens, with the first
    each = [seconds, *(count / example / len(scores) for count in (passes.forward, passes.backward))]
    return np.array(values), np.array(each)


@contextmanager
def _hushed() -> Iterator[None]:
    """Without what methods say of every task by itself."""
    said = logging.getLogger("headatlas.methods")
    before = said.level
    said.setLevel(logging.ERROR)
    try:
        yield
    finally:
        said.setLevel(before)


def _as_dataset(methods: Sequence[str], found: Sequence[tuple[str, Known, np.ndarray, np.ndarray]]) -> xr.Dataset:
    models = {known.name: known.group for _, known, _, _ in found}
    subjects = list(dict.fromkeys(s for _, known, _, _ in found for s in known.heads))
    groups = list(dict.fromkeys(models.values()))
    values = np.full((len(methods), len(models), len(subjects), 2), np.nan)
    costs = np.full((len(methods), len(models), 3), np.nan)
    for name, known, value, cost in found:
        at = list(methods).index(name), list(models).index(known.name)
        costs[at] = cost
        values[at][[subjects.index(s) for s in known.heads]] = value
    dims = ("contender", "model", "subject")
    ds = xr.Dataset(
        {
            "auroc": (dims, values[..., 0]),
            "average_precision": (dims, values[..., 1]),
            **{n: (dims[:2], costs[..., i]) for i, n in enumerate(("seconds", "forward", "backward"))},
        },
        coords={"contender": list(methods), "model": list(models), "subject": subjects},
    ).assign_coords(group=("model", list(models.values())), truth=("contender", [CONTENDERS[m].truth for m in methods]))
    means = np.full((len(methods), len(groups), 3, 2), np.nan)
    for i, name in enumerate(methods):
        for j, group in enumerate(groups):
            cells = ds.sel(contender=name, model=ds.group == group)
            for k, measure in enumerate(("auroc", "average_precision")):
                means[i, j, :, k] = mean_interval(cells[measure].values.ravel())
    summary = {
        f"{measure}_{part}": (("contender", "over"), means[:, :, i, k])
        for k, measure in enumerate(("auroc", "average_precision"))
        for i, part in enumerate(("mean", "low", "high"))
    }
    return ds.assign(summary).assign_coords(over=groups)
