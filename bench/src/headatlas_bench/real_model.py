"""Assess the maps of a real model, where no truth is known: agreement, stability, removal and transfer tests."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import xarray as xr

from headatlas.comparison.pairs import spearman_matrix
from headatlas.comparison.repeats import map_reliability
from headatlas.errors import HeadAtlasError
from headatlas.evidence.control import (
    TOP_SHARE,
    Heads,
    Value,
    cached_by_heads,
    compare_with_random,
    correct_p,
    gates_without,
    same_layers,
    top_heads,
)
from headatlas.evidence.transfer import transfer_heads
from headatlas.methods import measures_of, methods
from headatlas.methods.method import Method
from headatlas.models.lm import LM
from headatlas.models.loading import load
from headatlas.models.log_probs import batched_log_probs
from headatlas.models.tokens import Bundle, TokenExample, make_bundle
from headatlas.progress import FinishedParts, Progress
from headatlas.results.atlas import Atlas, open_atlas
from headatlas.results.charts import stack_maps
from headatlas.tasks.built_in import BUILT_IN
from headatlas.tasks.few_shot import few_shot_tasks
from headatlas.tasks.prompts import Task, hash_tasks, load_tasks

MAX_DRAWS = 59
# Subjects tested per method.
MAX_SUBJECTS = 8
# Prompts of a removal test; a transfer test uses all prompts of the method.
REMOVAL_PROMPTS = 6
REMOVAL_COLUMNS = ("effect", "random_effect", "p")
TRANSFER_COLUMNS = ("follows", "random_follows", "disturbs", "transfer_p")
COLUMNS = ("agreement", "stability", *REMOVAL_COLUMNS, *TRANSFER_COLUMNS)


def hash_atlas(atlas: Atlas) -> str:
    keys = {name: result.attrs.get("key", "") for name, result in atlas.items()}
    return hashlib.sha256(f"{atlas.info['model']['fingerprint']} {keys}".encode()).hexdigest()[:16]


def agreement_by_map(results: Mapping[str, xr.Dataset]) -> dict[tuple[str, str], float]:
    """Return (method, subject) → mean Spearman correlation with the first measures of other methods on that subject."""
    charts = stack_maps(results)
    flat = charts.score.transpose("chart", "layer", "head").values.reshape(charts.sizes["chart"], -1)
    labels = list(zip(charts.method.values, charts.measure.values, charts.subject.values, strict=True))
    first_measures = [i for i, (method, measure, _) in enumerate(labels) if measures_of(method)[0].name == measure]
    rho = spearman_matrix(flat)
    means = {}
    for i in first_measures:
        others = [j for j in first_measures if j != i and labels[j][2] == labels[i][2]]
        if others:
            means[str(labels[i][0]), str(labels[i][2])] = float(np.nanmean(rho[i, others]))
    return means


def assess_atlas(
    _: None,
    *,
    label: str,
    folder: Path,
    source: LM | str,
    device: str,
    seed: int,
    done: FinishedParts,
    progress: Progress,
) -> None:
    """Assess an atlas, as one part of the benchmark.

    Writes (contenders, subjects, values [map, COLUMNS], the model's name) to `done` as `label`.
    """
    atlas = open_atlas(folder, "atlas")
    lm = source if isinstance(source, LM) else load(source, device)
    atlas.check_model(lm.weights, lm.name)
    results = {name: result for name, result in atlas.items() if name in methods() and methods()[name].ask}
    agreement, stability = agreement_by_map(results), map_reliability(results)
    tests = [
        (methods()[name], subject, prompts)
        for name, result in results.items()
        for subject, prompts in _subjects(lm, methods()[name], result)
    ]
    rows = []
    for method, subject, prompts in progress(tests, "removal and transfer tests"):
        test_name = f"{label}, {method.name} {subject}"
        if test_name not in done:
            scores = _map(method, results[method.name], subject).values
            bundles = [make_bundle([prompt]) for prompt in _spread_evenly(prompts, REMOVAL_PROMPTS)]
            removal = remove_top(scores, partial(_log_p, lm, bundles), seed=seed)
            done[test_name] = (np.array([*removal, *transfer_top(lm, prompts, scores, seed=seed)]),)
        subject_key = method.name, subject
        rows.append([agreement.get(subject_key, np.nan), stability.get(subject_key, np.nan), *done[test_name][0]])
    names = [_contender_name(method, results[method.name]) for method, _, _ in tests]
    values = np.array(rows).reshape(-1, len(COLUMNS))
    done[label] = (np.array(names, str), np.array([s for _, s, _ in tests], str), values, np.array(lm.name))


def real_model_dataset(names: np.ndarray, subjects: np.ndarray, values: np.ndarray, model: np.ndarray) -> xr.Dataset:
    """Label what `assess_atlas` wrote: dimension `real`, with the contender and the subject of each map."""
    columns = dict(zip(COLUMNS, values.T, strict=True))
    columns |= {f"{name}_corrected": correct_p(columns[name]) for name in ("p", "transfer_p")}
    coords = {"real_method": ("real", names), "real_subject": ("real", subjects)}
    return xr.Dataset({k: ("real", v) for k, v in columns.items()}, coords).assign_attrs(real=str(model))


def remove_top(
    scores: np.ndarray, quality: Value[Heads], *, draws: int = MAX_DRAWS, seed: int = 0
) -> tuple[float, float, float]:
    """Remove the top 5 % of a map [layer, head]. Returns the effect, the mean effect of random heads, p."""
    draw = same_layers(scores.shape[1], np.random.default_rng(seed))
    removal = compare_with_random(
        cached_by_heads(quality), [_top(scores)], draw, draws=draws, draws_per_round=10, reference=[]
    )
    return float(removal.effect[0]), float(np.nanmean(removal.random_effect)), float(removal.p[0])


def transfer_top(
    lm: LM, prompts: Sequence[TokenExample], scores: np.ndarray, *, draws: int = MAX_DRAWS, seed: int = 0
) -> tuple[float, float, float, float]:
    """Transfer the outputs of the top 5 % of a map [layer, head] between prompts.

    Returns how far the answer follows, how far it follows random heads of the same layers on average, how far the same
    answer is disturbed, p. NaN if no two answers differ.
    """
    transfer = transfer_heads(lm, prompts, _top(scores), draws=draws, seed=seed)
    random = float(transfer.random_follows.mean()) if transfer.other_pairs else np.nan
    return transfer.follows, random, transfer.disturbs, transfer.p


def _top(scores: np.ndarray) -> Heads:
    return top_heads(scores, max(1, round(TOP_SHARE * np.isfinite(scores).sum())))


def _spread_evenly(prompts: list[TokenExample], n: int) -> list[TokenExample]:
    """Select n prompts, evenly spaced, because prompts of one kind are adjacent."""
    return [prompts[i * len(prompts) // n] for i in range(n)] if len(prompts) > n else prompts


def _log_p(lm: LM, bundles: list[Bundle], removed: Sequence[Heads]) -> np.ndarray:
    return batched_log_probs(lm, bundles, gates_without(removed, (lm.n_layers, lm.n_heads)))[0].mean(1).numpy()


def _map(method: Method, result: xr.Dataset, subject: str) -> xr.DataArray:
    measure = method.measures[0]
    scores = result[measure.name].sel({measure.over: subject})
    return (scores.mean("seed") if "seed" in scores.dims else scores).transpose("layer", "head")


def _subjects(lm: LM, method: Method, result: xr.Dataset) -> Iterator[tuple[str, list[TokenExample]]]:
    """Yield the subjects to test with their prompts: those that the method has prompts for, highest scores first."""
    over = method.measures[0].over
    subjects = [str(s) for s in result[over].values]
    if over == "task" and not _is_built_in(lm, subjects, result):
        return
    max_scores = {s: float(_map(method, result, s).max()) for s in subjects}
    n_tested = 0
    for subject in sorted((s for s in subjects if max_scores[s] > 0), key=lambda s: -max_scores[s]):
        prompts = _prompts(lm, method, subject)
        if prompts and n_tested < MAX_SUBJECTS:
            n_tested += 1
            yield subject, prompts


def _is_built_in(lm: LM, names: list[str], result: xr.Dataset) -> bool:
    """Check that these are the built-in tasks or few-shot relations of those names, not the user's."""
    try:
        return hash_tasks(_tasks(lm, names, result)) == result.attrs.get("data")
    except HeadAtlasError:
        return False


def _tasks(lm: LM, names: list[str], result: xr.Dataset) -> list[Task]:
    if "shots" not in result.attrs:
        return load_tasks(lm, names)
    relations, tasks = ([n for n in names if (n in BUILT_IN) == built_in] or None for built_in in (False, True))
    return few_shot_tasks(lm, relations, tasks, shots=int(result.attrs["shots"]))


def _prompts(lm: LM, method: Method, subject: str) -> list[TokenExample]:
    assert method.ask is not None
    try:
        return method.ask(lm, subject)
    except HeadAtlasError:
        # The subject is not built in.
        return []


def _contender_name(method: Method, result: xr.Dataset) -> str:
    """Return the benchmark's name of a result: the method's first truth with the same options (kind, input, …)."""
    truths = method.truths.values()
    for name, truth in method.truths.items():
        for option in method.options.values():
            value = truth.options.get(option.name, option.default)
            differs = any(t.options.get(option.name, option.default) != value for t in truths)
            if differs and result.attrs.get(option.name, option.default) != value:
                break
        else:
            return name
    return method.name
