"""Where no truth is known: agreement, stability and removal tests of the maps of an atlas."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
import xarray as xr

from headatlas.atlas import Atlas
from headatlas.results.charts import MEASURES
from headatlas.models.heads import head_mask
from headatlas.models.lm import LM
from headatlas.models.targets import Asked, Sheet, make_sheet, measure
from headatlas.progress import Done, Progress, silent
from headatlas.tasks.names import BUILT_IN, FUNCTIONS
from headatlas.tasks.prompts import hash_tasks, held_out_sheets, load_tasks
from headatlas.tasks.questions import load_questions, with_answer
from headatlas.tasks.relations import load_relations
from headatlas.evidence.evidence import agreement_of, corrected, removal_test, stability_of
from headatlas.methods.maps.causal import relation_questions
from headatlas.evidence.removal import Heads

ASK, MOST_RELATIONS = 6, 8  # prompts of a removal test on a real model; relations that are tested


def hash_atlas(atlas: Atlas) -> str:
    keys = {name: found.attrs.get("key", "") for name, found in atlas.maps.items()}
    return hashlib.sha256(f"{atlas.info['model']['fingerprint']} {keys}".encode()).hexdigest()[:16]


def assess(atlas: Atlas, lm: LM, *, seed: int = 0, done: Done | None = None, progress: Progress = silent) -> xr.Dataset:
    """Agreement, stability and removal tests of each map of an atlas: dimension `real`, with the method and subject of each."""
    done = {} if done is None else done
    atlas.check_model(lm.weights, lm.name)
    maps = {name: found for name, found in atlas.maps.items() if name in ASKED}
    agree, again = agreement_of(maps), stability_of(maps)
    charts = [
        (name, str(subject), found[MEASURES[name][0][0]].sel({MEASURES[name][0][1]: subject}))
        for name, found in maps.items()
        for subject in _subjects(lm, name, found)
    ]
    rows = []
    for name, subject, score in progress(charts, "removal tests"):
        part = f"{hash_atlas(atlas)}: {name} {subject}"
        if part not in done:
            asked = ASKED[name](lm, subject)
            score = score.mean("seed") if "seed" in score.dims else score
            sheets = [make_sheet([a]) for a in asked]
            log_p = partial(_log_p, lm, sheets)
            done[part] = (np.array(removal_test(score.transpose("layer", "head").values, log_p, seed=seed)),)
        rows.append(done[part][0])
    lost, by_chance, p = np.array(rows).reshape(-1, 3).T
    labels = [(name, subject) for name, subject, _ in charts]
    columns = {
        "agreement": [agree.get(label, np.nan) for label in labels],
        "stability": [again.get(label, np.nan) for label in labels],
        "removal_loss": lost,
        "removal_random": by_chance,
        "removal_p": p,
        "removal_p_corrected": corrected(p),
    }
    coords = {"real_method": [_contender(n, maps[n]) for n, _ in labels], "real_subject": [s for _, s in labels]}
    return xr.Dataset(
        {k: ("real", v) for k, v in columns.items()}, {k: ("real", v) for k, v in coords.items()}
    ).assign_attrs(real=lm.name)


def _contender(name: str, found: xr.Dataset) -> str:
    """As the benchmark calls it: probes and removals come in kinds."""
    kind = {"probe": ("probe", "published"), "ablate": ("how", "zero")}.get(name)
    said = found.attrs.get(kind[0], kind[1]) if kind else ""
    return name if not kind or said == kind[1] else f"{name}-{said}"


def _subjects(lm: LM, name: str, found: xr.Dataset) -> list[str]:
    """What to test of a method: what is built in, so that it can be asked again; of relations, those with the best scores."""
    subjects = [str(s) for s in found[MEASURES[name][0][1]].values]
    if name == "probe":
        return [s for s in subjects if s in FUNCTIONS]
    if name != "maps":
        own = [s for s in subjects if s not in BUILT_IN]
        return [] if own or hash_tasks(load_tasks(lm, subjects)) != found.attrs.get("data") else subjects
    prompted = {r.name for r in load_relations() if r.prompt}
    best = {s: float(found.score.sel(relation=s).max()) for s in subjects if s in prompted}
    return sorted((s for s in best if best[s] > 0), key=lambda s: -best[s])[:MOST_RELATIONS]


def _log_p(lm: LM, sheets: list[Sheet], removed: Sequence[Heads]) -> np.ndarray:
    gates = torch.stack([1 - head_mask(heads, lm.anatomy).float() for heads in removed])
    return measure(lm, sheets, gates)[0].mean(1).numpy()


def _ask_task(lm: LM, subject: str) -> list[Asked]:
    """Training examples: the map was measured on held-out ones."""
    (task,) = load_tasks(lm, subject)
    task = replace(task, train=task.held_out, held_out=task.train)
    return [a for sheet in held_out_sheets(lm, task, ASK) for a in sheet.asked]


def _ask_fitted_task(lm: LM, subject: str) -> list[Asked]:
    """Held-out examples: the map was fitted to training ones."""
    (task,) = load_tasks(lm, subject)
    return [a for sheet in held_out_sheets(lm, task, ASK) for a in sheet.asked]


def _ask_function(lm: LM, subject: str) -> list[Asked]:
    """Validation questions: the probe was fitted to training ones, and its importance measured on test ones."""
    asked = [q for q in load_questions() if q.function == subject and q.split == "validation"]
    return [with_answer(lm, q, q.answer) for q in asked[:ASK]]


def _ask_relation(lm: LM, subject: str) -> list[Asked]:
    (relation,) = (r for r in load_relations() if r.name == subject)
    questions = relation_questions(lm, relation, ASK)
    return [Asked(tuple(p), (t,)) for p, t in zip(questions.prompts, questions.targets, strict=True)]


ASKED = {"probe": _ask_function, "maps": _ask_relation, "gate": _ask_fitted_task}
ASKED |= dict.fromkeys(("taylor", "ig", "ablate"), _ask_task)
