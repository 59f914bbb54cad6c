"""What is measured: methods and baselines, each as a function from a model whose heads are known to a map of every subject."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr

from headatlas.planted.baselines import gradient_norms, output_norms
from headatlas.methods.dissociate.fits import PRESETS as SETTINGS
from headatlas.methods.dissociate.fits import fit, reference
from headatlas.methods.gate.fits import PRESETS, gate_tasks
from headatlas.methods.maps.reading import Input
from headatlas.models.lm import LM
from headatlas.planted.asking import planted_questions, planted_task
from headatlas.planted.functions import FUNCTIONS
from headatlas.planted.known import Heads
from headatlas.methods.maps import maps
from headatlas.methods.probe import probe
from headatlas.methods._effects import ablate, ig, taylor
from headatlas.tasks.labelled import load_labelled
from headatlas.tasks.prompts import Task, held_out_sheets
from headatlas.tasks.relations import Relation

EXAMPLES, HELD_OUT = 128, 64  # of each function, for methods that fit and for those that only measure
MEASURED = 32


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
        settings = PRESETS["quick"]
        seeds = [settings.seeds * seed + i for i in range(settings.seeds)]
        return _of(gate_tasks(known.lm, _tasks(seed), seeds, settings)[role], "task")  # without its switching-off proof

    return score


def _dissociate(known: Known, seed: int) -> Scores:
    settings = replace(SETTINGS["quick"], own=6, seeds=2)
    data = load_labelled(known.lm, _tasks(seed))
    whole = reference(known.lm, data)
    seeds = [settings.seeds * seed + i for i in range(settings.seeds)]
    return {  # without its proof
        name: 1 - fit(known.lm, data, whole, f, seeds, settings).mean(0).numpy() for f, name in enumerate(data.names)
    }


def _probe(kind: str) -> Callable[[Known, int], Scores]:
    def score(known: Known, seed: int) -> Scores:
        found = probe(known.lm, planted_questions(EXAMPLES, seed), probe=kind, proof="none", seed=seed)
        return _of(found.importance, "function")

    return score


def _maps(measure: str, input: Input = "stream") -> Callable[[Known, int], Scores]:
    def score(known: Known, seed: int) -> Scores:
        return _of(maps(known.lm, known.relations, input=input, baselines=False, seed=seed)[measure], "relation")

    return score


CONTENDERS = {
    "random": Contender("functions", _random),  # baseline: a random order
    "norm": Contender("functions", _measured(output_norms)),  # baseline: how much a head writes, |z · W_O|
    "gradient": Contender("functions", _measured(gradient_norms)),  # baseline: |∂ log P / ∂ z|
    "taylor": Contender("functions", _yardstick(taylor, "importance")),  # |∂ log P / ∂ gate|
    "ig": Contender("functions", _yardstick(ig, "effect")),  # ∂ log P / ∂ gate, integrated from 0 to 1
    "ablate": Contender("functions", _yardstick(ablate, "effect")),
    "ablate-mean": Contender("functions", _yardstick(ablate, "effect", how="mean")),
    "ablate-resample": Contender("functions", _yardstick(ablate, "effect", how="resample")),
    "gate": Contender("functions", _gate("facilitation")),
    "dissociate": Contender("functions", _dissociate),
    "probe": Contender("functions", _probe("published")),
    "probe-per-head": Contender("functions", _probe("per-head")),  # a classifier for each head
    "probe-written": Contender("functions", _probe("written")),  # what heads write for one function alone
    "gate-interference": Contender("interference", _gate("interference")),
    "ablate-interference": Contender("interference", _yardstick(ablate, "effect", sign=-1)),  # removal that helps
    "maps": Contender("relations", _maps("score")),
    "maps-published": Contender("relations", _maps("score", "published")),  # block 0's MLP of the embedding, no norms
    "maps-suppression": Contender("suppression", _maps("suppression")),
}
