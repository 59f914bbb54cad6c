"""`ha.benchmark`: every method against models whose heads are known (docs/benchmark.md).

Three kinds of truth: trained models whose functions live in chosen heads; the same models with noise in spare heads, which
interferes; and random models with relations written into chosen heads.
"""

import hashlib
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from headatlas.errors import BadArgument, did_you_mean
from headatlas.headmap.files import check_folder
from headatlas.headmap.provenance import describe_run, flat
from headatlas.headmap.store import Finished
from headatlas.methods.baselines import gradient_norms, output_norms
from headatlas.models.cache import cache_folder
from headatlas.models.lm import LM
from headatlas.models.loading import load
from headatlas.models.passes import counted
from headatlas.planted.asking import LONGEST, SHORTEST, planted_questions, planted_task
from headatlas.planted.functions import FUNCTIONS
from headatlas.planted.interference import plant_interference
from headatlas.planted.known import SHIPPED, Heads, accept, measure_functions, planted_folder, read_truth
from headatlas.planted.relations import NOISE, plant_relations
from headatlas.planted.training import plant
from headatlas.progress import Progress, silent
from headatlas.public.common import Job, method
from headatlas.public.gate import gate
from headatlas.public.maps import maps
from headatlas.public.probe import probe
from headatlas.public.yardsticks import ablate, ig, taylor
from headatlas.tasks.prompts import Task, held_out_sheets
from headatlas.tasks.relations import Relation
from headatlas.validation.truth import mean_interval, recovery

EXAMPLES, HELD_OUT = 128, 64  # of each function, for methods that fit and for those that only measure
MEASURED = 32
RELATION_SEEDS = (0, 1)


@dataclass(frozen=True)
class Known:
    """A model, and which heads serve which subject. `unsure` heads are neither right nor wrong."""

    name: str
    group: str  # what its results are averaged with
    lm: LM
    heads: dict[str, Heads]
    unsure: Heads
    relations: list[Relation]


Scores = dict[str, np.ndarray]
"""A map [layer, head] of every subject."""


@dataclass(frozen=True)
class Contender:
    truth: str  # the kind of truth it is measured against
    says: str
    score: Callable[[Known, int], Scores]


def _tasks(seed: int) -> list[Task]:
    return [planted_task(f, EXAMPLES, HELD_OUT, seed) for f in FUNCTIONS]


def _of(found: xr.DataArray, dim: str) -> Scores:
    found = found.mean("seed") if "seed" in found.dims else found
    return {str(s): found.isel({dim: i}).transpose("layer", "head").values for i, s in enumerate(found[dim].values)}


def _measured(measure: Callable[[LM, Any], np.ndarray]) -> Callable[[Known, int], Scores]:
    def score(known: Known, seed: int) -> Scores:
        sheets = {t.name: held_out_sheets(known.lm, t, MEASURED) for t in _tasks(seed)}
        return {f: measure(known.lm, [a for sheet in on for a in sheet.asked]) for f, on in sheets.items()}

    return score


def _random(known: Known, seed: int) -> Scores:
    generator = np.random.default_rng([seed, *known.name.encode()])
    return {f: generator.random((known.lm.n_layers, known.lm.n_heads)) for f in FUNCTIONS}


def _yardstick(
    call: Callable[..., xr.Dataset], measure: str, sign: int = 1, **options: Any
) -> Callable[[Known, int], Scores]:
    def score(known: Known, seed: int) -> Scores:
        return _of(sign * call(known.lm, _tasks(seed), examples=MEASURED, **options)[measure], "task")

    return score


def _gate(role: str) -> Callable[[Known, int], Scores]:
    def score(known: Known, seed: int) -> Scores:
        return _of(gate(known.lm, _tasks(seed), seeds=[3 * seed + i for i in range(3)])[role], "task")

    return score


def _probe(kind: str) -> Callable[[Known, int], Scores]:
    def score(known: Known, seed: int) -> Scores:
        found = probe(known.lm, planted_questions(EXAMPLES, seed), probe=kind, proof="none", seed=seed)
        return _of(found.importance, "function")

    return score


def _maps(measure: str) -> Callable[[Known, int], Scores]:
    def score(known: Known, seed: int) -> Scores:
        return _of(maps(known.lm, known.relations, baselines=False, seed=seed)[measure], "relation")

    return score


CONTENDERS = {
    "random": Contender("functions", "baseline: a random order", _random),
    "norm": Contender("functions", "baseline: how much a head writes, |z · W_O|", _measured(output_norms)),
    "gradient": Contender("functions", "baseline: |∂ log P / ∂ z|", _measured(gradient_norms)),
    "taylor": Contender("functions", "|∂ log P / ∂ gate|", _yardstick(taylor, "importance")),
    "ig": Contender("functions", "∂ log P / ∂ gate, integrated from 0 to 1", _yardstick(ig, "effect")),
    "ablate": Contender("functions", "a head removed", _yardstick(ablate, "effect")),
    "ablate-mean": Contender(
        "functions", "a head's output replaced by its mean", _yardstick(ablate, "effect", how="mean")
    ),
    "ablate-resample": Contender(
        "functions", "… by that on another prompt", _yardstick(ablate, "effect", how="resample")
    ),
    "gate": Contender("functions", "facilitation, mean of 3 seeds", _gate("facilitation")),
    "probe": Contender("functions", "the published probe", _probe("published")),
    "probe-per-head": Contender("functions", "a classifier for each head", _probe("per-head")),
    "probe-written": Contender("functions", "what heads write for one function alone", _probe("written")),
    "gate-interference": Contender("interference", "interference, mean of 3 seeds", _gate("interference")),
    "ablate-interference": Contender("interference", "removal that helps", _yardstick(ablate, "effect", sign=-1)),
    "maps": Contender("relations", "score", _maps("score")),
    "maps-suppression": Contender("suppression", "suppression", _maps("suppression")),
}
TRUTHS = ("functions", "interference", "relations", "suppression")


@method
def benchmark(
    methods: Sequence[str] | None = None,
    models: Sequence[str | Path] = SHIPPED,
    *,
    seed: int = 0,
    device: str = "auto",
    out: str | Path | None = None,
    progress: Progress = silent,
) -> Job:
    """AUROC and average precision of every method, on models whose heads are known: auroc(contender, model, subject).

    methods: which; all without any. models: 'one' and 'two' come with the package; folders that `headatlas plant` wrote;
    'seed:3' (or 'seed:3/4' with 4 KV heads) is trained now, unless it was before, which wants a GPU.
    seed: of the prompts and of what is random in the methods. out: a folder for benchmark.nc; interrupted work goes on there.
    """
    check_folder(out)
    chosen = list(CONTENDERS if methods is None else methods)
    for name in chosen:
        if name not in CONTENDERS:
            raise BadArgument(
                f"method is {name!r}, expected one of {', '.join(CONTENDERS)}.{did_you_mean(name, CONTENDERS)}"
            )
    if not chosen or not models:
        raise BadArgument(f"{'models' if chosen else 'methods'} is empty: name at least one")
    folders = {str(m): _folder(str(m), device, progress) for m in models}
    wanted = {CONTENDERS[name].truth for name in chosen}

    def work(done: Finished, progress: Progress) -> xr.Dataset:
        found = []
        for known in _models(folders, wanted, seed, device, progress):
            for name in chosen:
                if CONTENDERS[name].truth == known[0]:
                    part = f"{known[1].name}: {name}"
                    if part not in done:
                        done[part] = _measure(name, known[1], seed)
                    values, cost = done[part]
                    found.append((name, known[1], values, cost))
        return _as_dataset(chosen, found)

    versions = {k: v for k, v in flat(describe_run()).items() if k != "time"}
    weights = {
        name: hashlib.sha256((f / "model.safetensors").read_bytes()).hexdigest()[:16] for name, f in folders.items()
    }
    stamp = {"model": ", ".join(folders), "fingerprint": ", ".join(weights.values()), "likeness": "", "read_from": ""}
    return Job(
        "benchmark",
        f"{len(chosen)} methods on {', '.join(folders)}",
        stamp | {"seed": seed} | versions,
        work,
        {"methods": ", ".join(chosen)},
        None if out is None else Path(out),
        progress,
    )


def _folder(model: str, device: str, progress: Progress) -> Path:
    """Where a planted model lies; 'seed:N' is planted first."""
    if recipe := re.fullmatch(r"seed:(\d+)(?:/(\d+))?", model):
        seed, kv_heads = int(recipe[1]), int(recipe[2] or 8)
        folder = cache_folder() / "planted" / f"seed-{seed}-{kv_heads}"
        if not folder.exists():
            plant(folder, seed, kv_heads, device=device, progress=progress)
        return folder
    return planted_folder(model)


def _models(folders: dict[str, Path], wanted: set[str], seed: int, device: str, progress: Progress) -> Any:
    """(kind of truth, model), one at a time."""
    for name, folder in folders.items():
        lm, truth = load(folder, device), read_truth(folder)
        if problems := accept(measure_functions(lm, truth)):
            raise BadArgument(f"model {name!r} is not what its truth says: {problems[0]}")
        if "functions" in wanted:
            yield "functions", Known(name, "functions", lm, truth.functions, [], [])
        if "interference" in wanted:
            noisy, interferes, heads = plant_interference(lm, truth, seed)
            yield "interference", Known(f"{name}, noisy", "interference", noisy, interferes, heads, [])
    for noise in NOISE if wanted & {"relations", "suppression"} else ():
        for i in RELATION_SEEDS:
            planted = plant_relations(noise, len(RELATION_SEEDS) * seed + i)
            for truth_of, known_heads in (("relations", planted.writers), ("suppression", planted.suppressors)):
                if truth_of in wanted:
                    group = f"{truth_of}, noise {noise:g}"
                    yield truth_of, Known(f"{group}, {i}", group, planted.lm, known_heads, [], planted.relations)


def _measure(name: str, known: Known, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """AUROC and average precision of each subject [subject, 2], and what they cost: seconds, forward, backward passes a subject."""
    start = time.perf_counter()
    with counted(known.lm) as passes:
        scores = CONTENDERS[name].score(known, seed)
    seconds = time.perf_counter() - start
    values = [recovery(scores[s], heads, known.unsure) for s, heads in known.heads.items()]
    example = (SHORTEST + LONGEST) / 2
    each = [seconds, *(count / example / len(scores) for count in (passes.forward, passes.backward))]
    return np.array(values), np.array(each)


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
