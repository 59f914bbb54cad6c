"""What is measured: the methods that declare `truths`, and baselines. Each gives a map of every subject."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from headatlas.errors import CannotDo
from headatlas.methods import get_method, methods
from headatlas.methods._inline import result_of
from headatlas.methods.method import Method, Truth
from headatlas.planted.asking import planted_questions, planted_task
from headatlas.planted.baselines import gradient_norms, output_norms
from headatlas.planted.functions import FUNCTIONS
from headatlas.planted.names import BASELINES, KINDS
from headatlas.planted.recipes import Known
from headatlas.tasks.bundles import held_out_bundles
from headatlas.tasks.prompts import Task

EXAMPLES, HELD_OUT = 128, 64  # of each function, for methods that fit and for those that only measure
MEASURED = 32  # held-out examples that baselines are measured on

Scores = dict[str, np.ndarray]
"""A map [layer, head] of every subject."""


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


def score(contender: Contender, known: Known, seed: int) -> Scores:
    """A contender's scores of the heads of a model. Methods run here, in this process."""
    if not contender.method:
        return _baseline(contender.name, known, seed)
    method, truth = get_method(contender.method), contender.truth
    result = result_of(method.name, known.lm, _options(method, truth, known, seed))
    maps = truth.sign * result[truth.measure]
    maps = maps.mean("seed") if "seed" in maps.dims else maps
    over = method.measures[0].over
    if truth.subject:
        meant = maps.sel({over: truth.subject}).transpose("layer", "head").values
        return dict.fromkeys(known.heads, meant)
    subjects = [str(s) for s in maps[over].values]
    if missing := set(known.heads) - set(subjects):
        raise CannotDo(f"method {method.name}: its {truth.measure} has no {over} {min(missing)!r}, which it was given")
    return {s: maps.isel({over: i}).transpose("layer", "head").values for i, s in enumerate(subjects)}


def _options(method: Method, truth: Truth, known: Known, seed: int) -> dict[str, Any]:
    """The truth's own options, the benchmark's data, and as many seeds as the truth or the option's default says."""
    options = _data(method, known, seed) | dict(truth.options)
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
        return {"tasks": _tasks(seed)}
    if "texts" in method.options:
        return {"texts": {task.name: [e.prompt for e in task.held_out] for task in _tasks(seed)}}
    return {"questions": planted_questions(EXAMPLES, seed)} if "questions" in method.options else {}


def _tasks(seed: int) -> list[Task]:
    return [planted_task(f, EXAMPLES, HELD_OUT, seed) for f in FUNCTIONS]


def _baseline(name: str, known: Known, seed: int) -> Scores:
    """random: any order. norm: how much a head writes, |z · W_O|. gradient: |∂ log P / ∂ z|."""
    lm = known.lm
    if name == "random":
        generator = np.random.default_rng([seed, *known.name.encode()])
        return {f: generator.random((lm.n_layers, lm.n_heads)) for f in FUNCTIONS}
    measure = {"norm": output_norms, "gradient": gradient_norms}[name]
    return {
        task.name: measure(lm, [a for bundle in held_out_bundles(lm, task, MEASURED) for a in bundle.examples])
        for task in _tasks(seed)
    }
