"""What is measured: the methods that declare `truths`, and baselines. Each gives a map of every subject."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import xarray as xr

from headatlas.errors import CannotDo
from headatlas.methods import get_method, methods
from headatlas.methods._inline import result_of
from headatlas.methods.method import Method, Truth
from headatlas.models.hooks import count_tokens
from headatlas.models.lm import LM
from headatlas.tasks.bundles import held_out_bundles
from headatlas.tasks.prompts import Task
from headatlas_bench.asking import planted_questions, planted_task
from headatlas_bench.baselines import direct_effects, gradient_norms, output_norms
from headatlas_bench.names import BASELINES, KINDS
from headatlas_bench.recipes import Known

EXAMPLES, HELD_OUT = 128, 64  # of each function, for methods that fit and for those that only measure
MEASURED = 32  # held-out examples that baselines are measured on

Scores = dict[str, np.ndarray]
"""A map [layer, head] of every subject."""
Costs = tuple[float, float, float]
"""Seconds, and forward and backward passes of a token."""
T = TypeVar("T")


@dataclass(frozen=True)
class Contender:
    name: str
    truth: Truth
    method: str = ""  # none: a baseline


def contenders() -> dict[str, Contender]:
    """All by name, in the order of kinds of truth, the baselines first."""
    every = [Contender(name, Truth("functions", "")) for name in BASELINES]
    every += [Contender(name, truth, m.name) for m in methods().values() for name, truth in m.truths.items()]
    by_name: dict[str, Contender] = {}
    for kind in KINDS:
        for contender in every:
            if contender.truth.kind == kind:
                by_name.setdefault(contender.name, contender)
    return by_name


Results = dict[str, tuple[xr.Dataset, Costs]]
"""What a method gave on a model, by the method and its options, and what that took."""


def score(contender: Contender, known: Known, seed: int, results: Results) -> tuple[Scores, Costs]:
    """A contender's scores of the heads of a model, and what they took. Methods run here, in this process.

    results: of the same model and seed; contenders that read the same result share it.
    """
    if not contender.method:
        return costing(known.lm, lambda: _baseline(contender.name, known, seed))
    method, truth = get_method(contender.method), contender.truth
    key = f"{method.name} {sorted(truth.options.items())}"
    if key not in results:
        results[key] = costing(known.lm, lambda: result_of(method.name, known.lm, _options(method, truth, known, seed)))
    result, costs = results[key]
    maps = truth.sign * result[truth.measure]
    maps = maps.mean("seed") if "seed" in maps.dims else maps
    over = method.measures[0].over
    if truth.subject:
        meant = maps.sel({over: truth.subject}).transpose("layer", "head").values
        return dict.fromkeys(known.exams, meant), costs
    subjects = [str(s) for s in maps[over].values]
    if missing := set(known.exams) - set(subjects):
        raise CannotDo(f"method {method.name}: its {truth.measure} has no {over} {min(missing)!r}, which it was given")
    return {s: maps.isel({over: i}).transpose("layer", "head").values for i, s in enumerate(subjects)}, costs


def costing(lm: LM, work: Callable[[], T]) -> tuple[T, Costs]:
    """What `work` returns, and its seconds, and forward and backward passes of a token."""
    start = time.perf_counter()
    with count_tokens(lm) as passes:
        result = work()
    return result, (time.perf_counter() - start, float(passes.forward), float(passes.backward))


def from_which(contender: Contender) -> float | None:
    """The score from which a head is one of its map's own, where the method says so."""
    if not contender.method:
        return None
    measures = get_method(contender.method).measures
    return next((m for m in measures if m.name == contender.truth.measure), measures[0]).at_least


def _options(method: Method, truth: Truth, known: Known, seed: int) -> dict[str, Any]:
    """The truth's own options, the benchmark's data, and the rest and the number of seeds as the quick preset says."""
    options = method.in_preset("quick", _data(method, known, seed) | dict(truth.options))
    if "seed" in method.options:
        options["seed"] = seed
    if "seeds" in method.options:
        number = options.get("seeds", method.options["seeds"].default) or 1
        options["seeds"] = [number * seed + i for i in range(number)]
    return options


def _data(method: Method, known: Known, seed: int) -> dict[str, Any]:
    """By the argument's name: what the model was planted with, or tasks, texts (prompts of tasks) or questions."""
    if known.data:
        return {name: value for name, value in known.data.items() if name in method.options}
    if "tasks" in method.options:
        return {"tasks": _tasks(known, seed)}
    if "texts" in method.options:
        return {"texts": {task.name: [e.prompt for e in task.held_out] for task in _tasks(known, seed)}}
    return {"questions": planted_questions(EXAMPLES, seed, known.functions)} if "questions" in method.options else {}


def _tasks(known: Known, seed: int) -> list[Task]:
    return [planted_task(f, EXAMPLES, HELD_OUT, seed) for f in known.functions]


def _baseline(name: str, known: Known, seed: int) -> Scores:
    """random: any order. norm: how much a head writes, |z · W_O|. gradient: |∂ log P / ∂ z|. direct: what a head adds
    to the target's logit, by no other head or MLP."""
    lm = known.lm
    if name == "random":
        generator = np.random.default_rng([seed, *known.name.encode()])
        return {f: generator.random((lm.n_layers, lm.n_heads)) for f in known.functions}
    measure = {"norm": output_norms, "gradient": gradient_norms, "direct": direct_effects}[name]
    return {
        task.name: measure(lm, [a for bundle in held_out_bundles(lm, task, MEASURED) for a in bundle.examples])
        for task in _tasks(known, seed)
    }
