"""`benchmark`: every method on models whose heads are known (docs/evidence/benchmark.md). A part is a model."""

import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from scipy.stats import spearmanr

from headatlas.engines.local import Local
from headatlas.engines.pool import Pool
from headatlas.errors import BadArgument, check_choice
from headatlas.evidence.control import top_heads
from headatlas.evidence.truth import mean_interval, recovery
from headatlas.files import check_folder, locked_folder
from headatlas.methods.method import Part, Work
from headatlas.models.lm import LM
from headatlas.progress import Done, Progress, silent
from headatlas.results.atlas import Atlas, open_atlas
from headatlas.results.provenance import describe_run, flat
from headatlas.results.store import load as load_result
from headatlas.runs.execute import execute
from headatlas.runs.plan import Plan
from headatlas.runs.where import Where, absolute
from headatlas.runs.worker import ModelWorker
from headatlas_bench.asking import planted_task
from headatlas_bench.contenders import Results, contenders, from_which, score
from headatlas_bench.exams import Exam
from headatlas_bench.functions import FUNCTIONS
from headatlas_bench.known import MOST_SEEDS
from headatlas_bench.names import SHIPPED
from headatlas_bench.real import DRAWS, as_dataset, assess, hash_atlas
from headatlas_bench.recipes import (
    COPYING_SEEDS,
    RELATION_SEEDS,
    Copying,
    Functions,
    Known,
    Recipe,
    Relations,
    find_model,
    hash_folder,
    plantings_of,
)
from headatlas_bench.relations import NOISE

MEASURES = ("auroc", "average_precision", "marked", "own", "graded")
COSTS = ("seconds", "forward", "backward")


@dataclass(frozen=True)
class Cell:
    """A contender on a model. group: what results are averaged over."""

    contender: str
    model: str
    group: str

    @property
    def array(self) -> str:
        return f"{self.model}: {self.contender}"


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
    """AUROC and average precision of every method on models whose heads are known.

    methods: which, baselines included; by default all. models: those that come with the package (one and two; harder
    ones: spare-one, spare-two, joint-one, joint-two); folders that `headatlas plant` wrote; 'seed:3' (or 'seed:3/4'
    with 4 KV heads) is trained now, unless it was before: use a GPU.
    atlas: of a real model. Adds what can be measured without a truth: agreement, stability, removal, transfer.
    atlas_model: that model, if its name in the atlas does not tell where it is.
    seed: of the prompts and of random choices in the methods. engine, address, workers: as in `run`, model by model.
    out: a folder for benchmark.nc; interrupted work goes on from there.

    Returns auroc and average_precision(contender, model, subject); marked, the share of the heads that must come first
    that are among the map's highest, as many as there are of them (of decoys: as many as their function needs); own,
    the share that the method counts as its map's own, where it says from which score; graded, how far scores go with
    strengths. Their means with intervals, auroc_mean(contender, over), …, and what they cost: seconds, forward and
    backward(contender, model). With an atlas also effect, random_effect, p, p_corrected, follows, random_follows,
    disturbs, transfer_p, transfer_p_corrected, agreement and stability(real).

    Example:
        >>> headatlas_bench.benchmark(["random", "taylor"], ["one"]).auroc_mean.sel(over="functions")
    """
    check_folder(out)
    where = Where(device=device, engine=engine, address=address, workers=workers)
    if isinstance(atlas_model, LM) and (engine != "local" or workers):
        raise BadArgument("atlas_model is an LM, but workers load it themselves: give its name or folder")
    atlas = open_atlas(atlas, "atlas") if isinstance(atlas, str | Path) else atlas
    plan = plan_benchmark(methods, models, atlas, atlas_model, seed, device, progress)
    here = partial(ModelWorker, "", where, None, progress)
    elsewhere = partial(ModelWorker, "", where, torch.get_num_threads())
    with tempfile.TemporaryDirectory() as aside:
        folder = Path(aside if out is None else out)
        pool = Pool(Local(here)) if isinstance(atlas_model, LM) else where.pool(here, elsewhere)
        with locked_folder(folder), pool:
            if plan.state(folder) == "done":
                return load_result(plan.path(folder))
            [(_, result)] = execute(pool, {plan.method: plan}, folder, progress)
    if result.error is not None:
        raise result.error
    dataset: xr.Dataset = result.value
    return dataset


def plan_benchmark(
    methods: Sequence[str] | None,
    models: Sequence[str | Path],
    atlas: Atlas | None,
    atlas_model: LM | str | Path | None,
    seed: int,
    device: str,
    progress: Progress,
) -> Plan:
    """Plan `benchmark`: a part for each model, and one for the real model's maps."""
    chosen = _choose(methods, seed)
    if not chosen or not models:
        raise BadArgument(f"{'models' if chosen else 'methods'} is empty: name at least one")
    trained = [_trained(model, device, progress) for model in dict.fromkeys(map(str, models))]
    noises = product(NOISE, RELATION_SEEDS) if {"relations", "suppression"} & set(chosen.values()) else ()
    copying = map(Copying, COPYING_SEEDS) if "copying" in chosen.values() else ()
    recipes: list[Recipe] = [*trained, *(Relations(*each) for each in noises), *copying]
    cells = {recipe: _cells(recipe, chosen) for recipe in recipes}
    parts = [
        Part(
            name=f"model {of[0].model}",
            do=measure,
            arguments={"recipe": recipe, "chosen": chosen, "seed": seed},
            outputs=tuple(cell.array for cell in of),
        )
        for recipe, of in cells.items()
        if of
    ]
    real = ""
    if atlas is not None:
        real = f"removal and transfer tests {hash_atlas(atlas)}"
        source = atlas.info["model"]["name"] if atlas_model is None else atlas_model
        source = source if isinstance(source, LM) else absolute(source)
        asked = {"label": real, "folder": atlas.folder.absolute(), "source": source, "device": device, "seed": seed}
        parts.append(Part(name=real, do=assess, arguments=asked))
    stamp = {
        "model": ", ".join(model.name for model in trained),
        "fingerprint": ", ".join(model.files for model in trained),
        "values_hash": "",
        "read_from": "",  # parts make their own models
        "seed": seed,
        "draws": DRAWS,
    }
    versions = {k: v for k, v in flat(describe_run()).items() if k != "time"}
    text = f"{len(chosen)} methods on {stamp['model']}"
    arguments = {"chosen": chosen, "cells": [cell for of in cells.values() for cell in of], "real": real}
    settings = {"methods": ", ".join(chosen), "atlas": real}
    work = Work(summary=text, combine=combine, arguments=arguments, parts=parts, result_settings=settings)
    return Plan("benchmark", work, stamp | versions)


def _choose(methods: Sequence[str] | None, seed: int) -> dict[str, str]:
    """Contenders, and the kind of truth each is measured against."""
    every = contenders()
    for name in methods or ():
        check_choice("method", name, every)
    if not 0 <= seed < MOST_SEEDS:
        raise BadArgument(f"seed is {seed}, expected 0 to {MOST_SEEDS - 1}")
    return {name: every[name].truth.kind for name in (every if methods is None else methods)}


def _trained(model: str, device: str, progress: Progress) -> Functions:
    where = model if model in SHIPPED else absolute(model)
    folder = find_model(where, device, progress)
    return Functions(model, where, device, hash_folder(folder), plantings_of(folder))


def _cells(recipe: Recipe, chosen: Mapping[str, str]) -> list[Cell]:
    """What is measured on a recipe's models."""
    return [
        Cell(contender, model, group)
        for kind, model, group in recipe.names
        for contender in chosen
        if chosen[contender] == kind
    ]


def measure(_: None, *, recipe: Recipe, chosen: Mapping[str, str], seed: int, done: Done, progress: Progress) -> None:
    """A part: make a recipe's models and measure every contender on them, unless that is done."""
    results: dict[int, Results] = {}
    for known in recipe.make(set(chosen.values()), seed):
        cells = [cell for cell in _cells(recipe, chosen) if cell.model == known.name]
        for cell in progress(cells, f"model {known.name}"):
            if cell.array not in done:
                of_model = results.setdefault(id(known.lm), {})
                done[cell.array] = measure_contender(cell.contender, known, seed, of_model)
    nothing = np.empty((0, len(MEASURES))), np.full(len(COSTS), np.nan), np.empty(0, str)
    for cell in _cells(recipe, chosen):
        if cell.array not in done:  # none of its functions is where the truth says
            done[cell.array] = nothing


def measure_contender(
    name: str, known: Known, seed: int, results: Results
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Its MEASURES [subject, measure]; seconds, forward and backward passes per subject; the subjects."""
    contender = contenders()[name]
    with _hushed():
        scores, (seconds, *passes) = score(contender, known, seed, results)
    values = [_measures(scores[s], exam, from_which(contender)) for s, exam in known.exams.items()]
    examples = [e for f in FUNCTIONS for e in planted_task(f, 1, 32, seed).held_out]
    tokens = float(np.mean([len(str(e.prompt).split()) + 1 for e in examples]))  # of an example, with the first
    each = [seconds, *(count / tokens / len(scores) for count in passes)]
    return np.array(values), np.array(each), np.array(list(known.exams), str)


def _measures(scores: np.ndarray, exam: Exam, least: float | None) -> tuple[float, ...]:
    """MEASURES of a map [layer, head]. least: the score from which a head is one of the map's own."""
    marked = set(top_heads(scores, exam.marks or len(exam.heads)))
    of_heads = np.array([scores[head] for head in exam.heads])
    graded = spearmanr(of_heads, exam.strength).statistic if len(set(of_heads)) > 1 and exam.strength else np.nan
    return (
        *recovery(scores, exam.heads, exam.unsure),
        len(marked & set(exam.heads)) / len(exam.heads),
        np.nan if least is None else float((of_heads >= least).mean()),
        float(graded),
    )


@contextmanager
def _hushed() -> Iterator[None]:
    """Without the messages that are logged about every task."""
    loggers = [logging.getLogger(f"headatlas.{name}") for name in ("methods", "tasks")]
    before = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def combine(
    _: None, *, chosen: Mapping[str, str], cells: Sequence[Cell], real: str, done: Done, progress: Progress
) -> xr.Dataset:
    """What the parts measured, with means over models. real: where a part left the atlas's tests, or ''."""
    groups = {cell.model: cell.group for cell in cells}
    names, models = list(chosen), list(groups)
    subjects = list(dict.fromkeys(str(s) for cell in cells for s in done[cell.array][2]))
    values = np.full((len(names), len(models), len(subjects), len(MEASURES)), np.nan)
    costs = np.full((len(names), len(models), len(COSTS)), np.nan)
    for cell in cells:
        at = names.index(cell.contender), models.index(cell.model)
        value, costs[at], of = done[cell.array]
        values[at][[subjects.index(str(s)) for s in of]] = value
    dims = ("contender", "model", "subject")
    variables: dict[str, Any] = {name: (dims, values[..., i]) for i, name in enumerate(MEASURES)}
    variables |= {n: (dims[:2], costs[..., i]) for i, n in enumerate(COSTS)}
    result = xr.Dataset(variables, coords={"contender": names, "model": models, "subject": subjects})
    result = result.assign_coords(group=("model", list(groups.values())), truth=("contender", list(chosen.values())))
    result = with_means(result)
    return result.merge(as_dataset(*done[real]), combine_attrs="no_conflicts") if real else result


def with_means(result: xr.Dataset) -> xr.Dataset:
    """Mean over models and subjects with a 95 % interval, by group of models: (contender, over)."""
    names, groups = result.contender.values, list(dict.fromkeys(result.group.values.tolist()))
    for measure in MEASURES:
        means = np.full((len(names), len(groups), 3), np.nan)
        for i, j in np.ndindex(means.shape[:2]):
            cells = result[measure].sel(contender=names[i], model=result.group == groups[j])
            means[i, j] = mean_interval(cells.values.ravel())
        parts = zip(("mean", "low", "high"), np.moveaxis(means, -1, 0), strict=True)
        result = result.assign({f"{measure}_{part}": (("contender", "over"), v) for part, v in parts})
    return result.assign_coords(over=groups)
