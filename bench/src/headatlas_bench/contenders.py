"""The contenders of the benchmark: methods that declare `truths`, and baselines. Each gives a map of every subject."""

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
from headatlas_bench.baselines import direct_effects, gradient_norms, output_norms
from headatlas_bench.names import BASELINES, TRUTH_KINDS
from headatlas_bench.prompts import planted_questions, planted_task
from headatlas_bench.recipes import BenchmarkModel

# Examples of each function: for methods that fit, and for those that only measure.
EXAMPLES, HELD_OUT = 128, 64
BASELINE_EXAMPLES = 32

Scores = dict[str, np.ndarray]
"""A map [layer, head] of every subject."""
Costs = tuple[float, float, float]
"""Seconds; forward and backward passes, counted in tokens."""
T = TypeVar("T")


@dataclass(frozen=True)
class Contender:
    """A method, or a baseline if `method` is empty, and the truth that its map is compared with."""

    name: str
    truth: Truth
    method: str = ""


def contenders() -> dict[str, Contender]:
    """Return all contenders by name, in the order of kinds of truth, baselines first."""
    all_contenders = [Contender(name, Truth("functions", "")) for name in BASELINES]
    all_contenders += [Contender(name, truth, m.name) for m in methods().values() for name, truth in m.truths.items()]
    by_name: dict[str, Contender] = {}
    for kind in TRUTH_KINDS:
        for contender in all_contenders:
            if contender.truth.kind == kind:
                by_name.setdefault(contender.name, contender)
    return by_name


Results = dict[str, tuple[xr.Dataset, Costs]]
"""Results of methods on one model and their costs, by method and options."""


def score_heads(contender: Contender, model: BenchmarkModel, seed: int, results: Results) -> tuple[Scores, Costs]:
    """Return a contender's maps of a model, by subject, and their costs. Methods run in this process.

    results: results of the same model and seed so far; contenders that read the same result share it.
    """
    if not contender.method:
        return measure_cost(model.lm, lambda: _baseline_maps(contender.name, model, seed))
    method = get_method(contender.method)
    truth = contender.truth
    key = f"{method.name} {sorted(truth.options.items())}"
    if key not in results:
        results[key] = measure_cost(
            model.lm, lambda: result_of(method.name, model.lm, _method_options(method, truth, model, seed))
        )
    result, costs = results[key]
    maps = truth.sign * result[truth.measure]
    maps = maps.mean("seed") if "seed" in maps.dims else maps
    over = method.measures[0].over
    # A map of one subject is compared with the truth of every subject.
    if truth.subject:
        subject_map = maps.sel({over: truth.subject}).transpose("layer", "head").values
        return dict.fromkeys(model.exams, subject_map), costs
    subjects = [str(s) for s in maps[over].values]
    if missing := set(model.exams) - set(subjects):
        raise CannotDo(f"method {method.name}: its {truth.measure} has no {over} {min(missing)!r}, which it was given")
    return {s: maps.isel({over: i}).transpose("layer", "head").values for i, s in enumerate(subjects)}, costs


def measure_cost(lm: LM, work: Callable[[], T]) -> tuple[T, Costs]:
    """Call `work`. Returns its value and its costs."""
    start = time.perf_counter()
    with count_tokens(lm) as passes:
        result = work()
    return result, (time.perf_counter() - start, float(passes.forward), float(passes.backward))


def role_threshold(contender: Contender) -> float | None:
    """Return the score from which the method counts a head as having its role; None if it declares none."""
    if not contender.method:
        return None
    measures = get_method(contender.method).measures
    return next((m for m in measures if m.name == contender.truth.measure), measures[0]).at_least


def _method_options(method: Method, truth: Truth, model: BenchmarkModel, seed: int) -> dict[str, Any]:
    """Return the truth's options and the benchmark's data; other options are those of the quick preset."""
    options = method.in_preset("quick", _method_data(method, model, seed) | dict(truth.options))
    if "seed" in method.options:
        options["seed"] = seed
    if "seeds" in method.options:
        n_seeds = options.get("seeds", method.options["seeds"].default) or 1
        options["seeds"] = [n_seeds * seed + i for i in range(n_seeds)]
    return options


def _method_data(method: Method, model: BenchmarkModel, seed: int) -> dict[str, Any]:
    """Return data by argument name: the model's own, or tasks, texts (prompts of tasks) or questions."""
    if model.data:
        return {name: value for name, value in model.data.items() if name in method.options}
    if "tasks" in method.options:
        return {"tasks": _tasks(model, seed)}
    if "texts" in method.options:
        return {"texts": {task.name: [e.prompt for e in task.held_out] for task in _tasks(model, seed)}}
    return {"questions": planted_questions(EXAMPLES, seed, model.functions)} if "questions" in method.options else {}


def _tasks(model: BenchmarkModel, seed: int) -> list[Task]:
    return [planted_task(f, EXAMPLES, HELD_OUT, seed) for f in model.functions]


def _baseline_maps(name: str, model: BenchmarkModel, seed: int) -> Scores:
    """Return a baseline's map of every function.

    random: random scores. norm: size of the head's output, |z · W_O|. gradient: |∂ log P / ∂ z|. direct: what the head
    adds to the target's logit without passing another head or MLP.
    """
    lm = model.lm
    if name == "random":
        generator = np.random.default_rng([seed, *model.name.encode()])
        return {f: generator.random((lm.n_layers, lm.n_heads)) for f in model.functions}
    measure = {"norm": output_norms, "gradient": gradient_norms, "direct": direct_effects}[name]
    return {
        task.name: measure(lm, [a for bundle in held_out_bundles(lm, task, BASELINE_EXAMPLES) for a in bundle.examples])
        for task in _tasks(model, seed)
    }
