"""`benchmark`: every method on planted models (docs/evidence/benchmark.md). Each model is one part of the work."""

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
from headatlas.progress import FinishedParts, Progress, silent
from headatlas.results.atlas import Atlas, open_atlas
from headatlas.results.provenance import describe_run, flat
from headatlas.results.store import load as load_result
from headatlas.runs.execute import execute
from headatlas.runs.plan import Plan
from headatlas.runs.where import Where, absolute_path
from headatlas.runs.worker import ModelWorker
from headatlas_bench.contenders import Results, contenders, role_threshold, score_heads
from headatlas_bench.exams import Exam
from headatlas_bench.functions import FUNCTIONS
from headatlas_bench.ground_truth import MAX_SEEDS
from headatlas_bench.names import SHIPPED
from headatlas_bench.prompts import planted_task
from headatlas_bench.real_model import MAX_DRAWS, assess_atlas, hash_atlas, real_model_dataset
from headatlas_bench.recipes import (
    COPYING_SEEDS,
    RELATION_SEEDS,
    BenchmarkModel,
    CopyingRecipe,
    FunctionRecipe,
    Recipe,
    RelationRecipe,
    find_model,
    hash_folder,
    list_plantings,
)
from headatlas_bench.relations import NOISE_LEVELS

MEASURES = ("auroc", "average_precision", "marked", "own", "graded")
COSTS = ("seconds", "forward", "backward")


@dataclass(frozen=True)
class Entry:
    """A contender on a model. group: results are averaged over the models of a group."""

    contender: str
    model: str
    group: str

    @property
    def output_name(self) -> str:
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
    """Measure AUROC and average precision of every method on models with planted heads.

    methods: names of methods and baselines (default: all). models: those that come with the package (one and two;
    harder ones: spare-one, spare-two, joint-one, joint-two), or folders that `headatlas plant` wrote. 'seed:3' (or
    'seed:3/4' with 4 KV heads) is trained first, unless it is cached; use a GPU.
    atlas: an atlas of a real model. Adds measurements that need no truth: agreement, stability, removal, transfer.
    atlas_model: that model, if its name in the atlas does not identify it.
    seed: random seed for the prompts and for the methods. engine, address, workers: as in `run`, model by model.
    out: a folder for benchmark.nc; interrupted work resumes from there.

    Returns auroc and average_precision(contender, model, subject). marked: of the n heads that must come first, the
    share among the map's top n (for decoys, n is the number of heads that their function needs). own: the share with a
    score above the method's threshold, if it declares one. graded: the correlation of scores with strengths. Their
    means with intervals: auroc_mean(contender, over), …. Costs: seconds, forward and backward(contender, model). With
    an atlas also effect, random_effect, p, p_corrected, follows, random_follows, disturbs, transfer_p,
    transfer_p_corrected, agreement and stability(real).

    Example:
        >>> headatlas_bench.benchmark(["random", "taylor"], ["one"]).auroc_mean.sel(over="functions")
    """
    check_folder(out)
    where = Where(device=device, engine=engine, address=address, workers=workers)
    if isinstance(atlas_model, LM) and (engine != "local" or workers):
        raise BadArgument("atlas_model is an LM, but workers load the model themselves: give its name or folder")
    atlas = open_atlas(atlas, "atlas") if isinstance(atlas, str | Path) else atlas
    plan = plan_benchmark(methods, models, atlas, atlas_model, seed, device, progress)
    make_local_worker = partial(ModelWorker, "", where, None, progress)
    make_worker = partial(ModelWorker, "", where, torch.get_num_threads())
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary if out is None else out)
        pool = (
            Pool(Local(make_local_worker))
            if isinstance(atlas_model, LM)
            else where.pool(make_local_worker, make_worker)
        )
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
    truth_kinds = _select_contenders(methods, seed)
    if not truth_kinds or not models:
        raise BadArgument(f"{'models' if truth_kinds else 'methods'} is empty: name at least one")
    trained_recipes = [_trained_recipe(model, device, progress) for model in dict.fromkeys(map(str, models))]
    recipes: list[Recipe] = [*trained_recipes]
    if {"relations", "suppression"} & set(truth_kinds.values()):
        recipes += [RelationRecipe(noise, number) for noise, number in product(NOISE_LEVELS, RELATION_SEEDS)]
    if "copying" in truth_kinds.values():
        recipes += [CopyingRecipe(number) for number in COPYING_SEEDS]
    entries = {recipe: _list_entries(recipe, truth_kinds) for recipe in recipes}
    parts = [
        Part(
            name=f"model {subset[0].model}",
            do=measure_recipe,
            arguments={"recipe": recipe, "truth_kinds": truth_kinds, "seed": seed},
            outputs=tuple(entry.output_name for entry in subset),
        )
        for recipe, subset in entries.items()
        if subset
    ]
    real_part = ""
    if atlas is not None:
        real_part = f"removal and transfer tests {hash_atlas(atlas)}"
        source = atlas.info["model"]["name"] if atlas_model is None else atlas_model
        source = source if isinstance(source, LM) else absolute_path(source)
        arguments_of_real = {
            "label": real_part,
            "folder": atlas.folder.absolute(),
            "source": source,
            "device": device,
            "seed": seed,
        }
        parts.append(Part(name=real_part, do=assess_atlas, arguments=arguments_of_real))
    stamp = {
        "model": ", ".join(recipe.name for recipe in trained_recipes),
        "fingerprint": ", ".join(recipe.files_hash for recipe in trained_recipes),
        "values_hash": "",
        # Every part makes its models itself.
        "read_from": "",
        "seed": seed,
        "draws": MAX_DRAWS,
    }
    versions = {k: v for k, v in flat(describe_run()).items() if k != "time"}
    summary = f"{len(truth_kinds)} methods on {stamp['model']}"
    all_entries = [entry for subset in entries.values() for entry in subset]
    arguments = {"truth_kinds": truth_kinds, "entries": all_entries, "real_part": real_part}
    settings = {"methods": ", ".join(truth_kinds), "atlas": real_part}
    work = Work(summary=summary, combine=combine, arguments=arguments, parts=parts, result_settings=settings)
    return Plan("benchmark", work, stamp | versions)


def _select_contenders(methods: Sequence[str] | None, seed: int) -> dict[str, str]:
    """Return the selected contenders, with the kind of truth each is measured against."""
    all_contenders = contenders()
    for name in methods or ():
        check_choice("method", name, all_contenders)
    if not 0 <= seed < MAX_SEEDS:
        raise BadArgument(f"seed is {seed}, expected 0 to {MAX_SEEDS - 1}")
    return {name: all_contenders[name].truth.kind for name in (all_contenders if methods is None else methods)}


def _trained_recipe(model: str, device: str, progress: Progress) -> FunctionRecipe:
    source = model if model in SHIPPED else absolute_path(model)
    folder = find_model(source, device, progress)
    return FunctionRecipe(model, source, device, hash_folder(folder), list_plantings(folder))


def _list_entries(recipe: Recipe, truth_kinds: Mapping[str, str]) -> list[Entry]:
    """List what is measured on a recipe's models."""
    return [
        Entry(contender, model, group)
        for kind, model, group in recipe.names
        for contender in truth_kinds
        if truth_kinds[contender] == kind
    ]


def measure_recipe(
    _: None, *, recipe: Recipe, truth_kinds: Mapping[str, str], seed: int, done: FinishedParts, progress: Progress
) -> None:
    """Make a recipe's models and measure every contender on them that is not done (one part of the work)."""
    results: dict[int, Results] = {}
    for model in recipe.make(set(truth_kinds.values()), seed):
        entries = [entry for entry in _list_entries(recipe, truth_kinds) if entry.model == model.name]
        for entry in progress(entries, f"model {model.name}"):
            if entry.output_name not in done:
                model_results = results.setdefault(id(model.lm), {})
                done[entry.output_name] = measure_contender(entry.contender, model, seed, model_results)
    empty = np.empty((0, len(MEASURES))), np.full(len(COSTS), np.nan), np.empty(0, str)
    for entry in _list_entries(recipe, truth_kinds):
        # None of the model's functions is where the truth says.
        if entry.output_name not in done:
            done[entry.output_name] = empty


def measure_contender(
    name: str, model: BenchmarkModel, seed: int, results: Results
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Measure a contender. Returns MEASURES [subject, measure]; seconds, forward and backward passes; the subjects."""
    contender = contenders()[name]
    with _without_messages():
        scores, (seconds, *passes) = score_heads(contender, model, seed, results)
    values = [_score_map(scores[s], exam, role_threshold(contender)) for s, exam in model.exams.items()]
    examples = [e for f in FUNCTIONS for e in planted_task(f, 1, 32, seed).held_out]
    # One token per word, and the one that begins a sequence.
    mean_tokens = float(np.mean([len(str(e.prompt).split()) + 1 for e in examples]))
    costs = [seconds, *(count / mean_tokens / len(scores) for count in passes)]
    return np.array(values), np.array(costs), np.array(list(model.exams), str)


def _score_map(scores: np.ndarray, exam: Exam, threshold: float | None) -> tuple[float, ...]:
    """Return the MEASURES of a map [layer, head]. threshold: the score from which a head has its role, if declared."""
    marked = set(top_heads(scores, exam.marks or len(exam.heads)))
    head_scores = np.array([scores[head] for head in exam.heads])
    graded = spearmanr(head_scores, exam.strength).statistic if len(set(head_scores)) > 1 and exam.strength else np.nan
    return (
        *recovery(scores, exam.heads, exam.unsure),
        len(marked & set(exam.heads)) / len(exam.heads),
        np.nan if threshold is None else float((head_scores >= threshold).mean()),
        float(graded),
    )


@contextmanager
def _without_messages() -> Iterator[None]:
    """Suppress the messages that methods log about every task."""
    loggers = [logging.getLogger(f"headatlas.{name}") for name in ("methods", "tasks")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def combine(
    _: None,
    *,
    truth_kinds: Mapping[str, str],
    entries: Sequence[Entry],
    real_part: str,
    done: FinishedParts,
    progress: Progress,
) -> xr.Dataset:
    """Combine what the parts measured, with means over models. real_part: name of the atlas's part, or ''."""
    groups = {entry.model: entry.group for entry in entries}
    names = list(truth_kinds)
    models = list(groups)
    subjects = list(dict.fromkeys(str(s) for entry in entries for s in done[entry.output_name][2]))
    values = np.full((len(names), len(models), len(subjects), len(MEASURES)), np.nan)
    costs = np.full((len(names), len(models), len(COSTS)), np.nan)
    for entry in entries:
        index = names.index(entry.contender), models.index(entry.model)
        value, costs[index], entry_subjects = done[entry.output_name]
        values[index][[subjects.index(str(s)) for s in entry_subjects]] = value
    dims = ("contender", "model", "subject")
    variables: dict[str, Any] = {name: (dims, values[..., i]) for i, name in enumerate(MEASURES)}
    variables |= {n: (dims[:2], costs[..., i]) for i, n in enumerate(COSTS)}
    result = xr.Dataset(variables, coords={"contender": names, "model": models, "subject": subjects})
    result = result.assign_coords(
        group=("model", list(groups.values())), truth=("contender", list(truth_kinds.values()))
    )
    result = add_means(result)
    return result.merge(real_model_dataset(*done[real_part]), combine_attrs="no_conflicts") if real_part else result


def add_means(result: xr.Dataset) -> xr.Dataset:
    """Add means over models and subjects with 95 % intervals, by group of models: (contender, over)."""
    names = result.contender.values
    groups = list(dict.fromkeys(result.group.values.tolist()))
    for measure in MEASURES:
        means = np.full((len(names), len(groups), 3), np.nan)
        for i, j in np.ndindex(means.shape[:2]):
            values = result[measure].sel(contender=names[i], model=result.group == groups[j])
            means[i, j] = mean_interval(values.values.ravel())
        parts = zip(("mean", "low", "high"), np.moveaxis(means, -1, 0), strict=True)
        result = result.assign({f"{measure}_{part}": (("contender", "over"), v) for part, v in parts})
    return result.assign_coords(over=groups)
