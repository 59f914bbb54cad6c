"""Measure how stable maps are: run every method twice, on disjoint halves of its data or from different seeds.

    python -m headatlas_bench.stability smollm2 --out stability [--methods taylor ablate] [--examples 16 32 64]

Each pair of maps is compared by the Spearman correlation over heads, for each subject (task, function, relation, …). A
map "of n examples" is measured by two maps of n / 2 examples each. `taylor`, `ablate` and `ig` get two halves of a
built-in task that share neither examples nor few-shot examples; other methods get halves of their questions, pairs or
training examples, or store the maps of halves in their results. Fits to each half have different seeds. Tests are
skipped. Maps are made in float32.

Results are added to DIR/stability.json as they are measured; a second run resumes. --budget: seconds after which no new
measurement starts.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

import headatlas as ha
from headatlas.comparison.repeats import (
    MIN_CORRELATION,
    between_repeats,
    data_factor_needed,
    round_up_in_words,
)
from headatlas.errors import BadArgument, HeadAtlasError
from headatlas.evidence.reliability import RELIABLE, spearman_brown
from headatlas.methods import methods
from headatlas.methods.method import Method
from headatlas.results.stored_reliability import reliability_of
from headatlas.runs.run import compute
from headatlas.tasks.built_in import BUILT_IN
from headatlas.tasks.prompts import Task, aba_abb, load_tasks
from headatlas.tasks.relations import load_relations

FILE = "stability.json"
# Measured first: their maps are means over examples.
EFFECT_METHODS = ("taylor", "ablate", "ig")
# Numbers of examples for methods with another unit than the effects.
EXAMPLES_BY_METHOD = {
    "function_vector": (12, 32, 64),
    "copying": (32, 128),
    "streaming": (2, 8, 32),
    "retrieval": (6, 20),
}
EXAMPLES_BY_METHOD |= {"influence": (6, 8), "pattern": (8,), "dissociate": (40, 160)}
# Few-shot examples of a kind that are reserved in addition to those in a prompt.
SPARE_WORKED_EXAMPLES = 4
# Tests do not change the maps, and take most of the time.
OPTIONS_WITHOUT_TESTS: Mapping[str, Mapping[str, Any]] = {
    "probe": {"published_tests": False, "held_out": 0},
    "streaming": {"held_out": 0},
    "function_vector": {"draws": 1},
    "maps": {"baselines": False, "held_out": 0.0},
}
# Up to this number of examples, the effects are measured before other methods.
FEW_EXAMPLES = 64
METHODS_BY_COST = [
    "maps",
    "pattern",
    "influence",
    "streaming",
    "copying",
    "retrieval",
    "function_vector",
    "contrast",
    "gate",
    "probe",
    "dissociate",
]
# The seed of these methods decides only the controls.
METHODS_WITHOUT_SEED = ("maps",)
Maps = tuple[xr.DataArray, xr.DataArray]


@dataclass(frozen=True)
class Measurement:
    """One measurement.

    over: 'half' or 'seed'. examples: number in both halves together (None: all that the preset uses). draw: seed of the
    split into halves.
    """

    method: str
    over: str
    examples: int | None = None
    draw: int = 0


@dataclass(frozen=True)
class Setup:
    """A model, and the settings that all measurements share. options: options by method that replace the preset's."""

    lm: ha.LM
    preset: str = "quick"
    tasks: tuple[str, ...] = tuple(BUILT_IN)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: OPTIONS_WITHOUT_TESTS)

    def result(self, name: str, **options: Any) -> xr.Dataset:
        """Run a method."""
        return compute(methods()[name], self.lm, {**self.options.get(name, {}), **options}, preset=self.preset)

    def map(self, name: str, **options: Any) -> xr.DataArray:
        """Run a method and return its first measure, without masking by tests: [seed, …] if it fits several seeds."""
        measure = methods()[name].measures[0]
        variable = measure.repeats[0] if measure.repeats[1:] == ("seed",) else measure.name
        return self.result(name, **options)[variable]

    def fits(self, name: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> Maps:
        """Fit twice from different seeds, and return the two means over seeds."""
        first_fits = self.map(name, **first)
        n = first_fits.sizes["seed"]
        return first_fits.mean("seed"), self.map(name, **second, seeds=list(range(n, 2 * n))).mean("seed")


# --- halves of the data


def half_of(task: Task, n: int, draw: int, half: int) -> Task:
    """Return a task with `n` held-out examples from one half of all its examples, balanced over kinds.

    The halves share no example and no few-shot example. draw: seed of the split.
    """
    generator = np.random.default_rng(draw)
    examples_of_task = (*task.held_out, *task.train)
    all_by_kind: dict[str, list[Any]] = {}
    for i in generator.permutation(len(examples_of_task)).tolist():
        all_by_kind.setdefault(examples_of_task[i].kind, []).append(examples_of_task[i])
    examples_by_kind = {kind: examples[half::2] for kind, examples in sorted(all_by_kind.items())}
    # These examples of each kind are not held out: prompts show them.
    n_reserved = task.shots + SPARE_WORKED_EXAMPLES if task.shots else 1
    order = sorted((i, kind) for kind, examples in examples_by_kind.items() for i in range(len(examples) - n_reserved))
    if len(order) < n:
        raise BadArgument(f"task {task.name!r} has {len(order)} examples per half, expected at least {n}")
    held_out = [examples_by_kind[kind][i] for i, kind in order[:n]]
    train = [e for examples in examples_by_kind.values() for e in examples if e not in set(held_out)]
    return replace(task, train=tuple(train), held_out=tuple(held_out))


def effects(setup: Setup, measurement: Measurement) -> Maps:
    """Measure two halves of built-in tasks."""
    n = (measurement.examples or 16) // 2
    tasks = [aba_abb(setup.lm, measurement.draw) if t == "aba_abb" else load_tasks(setup.lm, t)[0] for t in setup.tasks]
    first, second = (
        setup.map(measurement.method, tasks=[half_of(t, n, measurement.draw, half) for t in tasks], limit=n)
        for half in (0, 1)
    )
    return first, second


def training_halves(setup: Setup, measurement: Measurement) -> Maps:
    """Fit to two halves of the training examples of tasks; `examples` counts those of each task."""
    tasks = methods()[measurement.method].options["tasks"].default or setup.tasks
    options = {} if measurement.examples is None else {"limit": len(tasks) * measurement.examples // 2}
    parts = zip(*(t.halves() for t in load_tasks(setup.lm, tasks)), strict=True)
    first, second = ({"tasks": list(part), **options} for part in parts)
    return setup.fits(measurement.method, first, second)


def matched_tasks(lm: ha.LM) -> tuple[Task, Task]:
    """Make two tasks on the same countries: their capitals and their languages."""
    relations = {r.name: r for r in load_relations()}
    capital, language = (relations[f"country_to_{what}"] for what in ("capital", "language"))
    countries = [c for c in dict(capital.pairs) if c in dict(language.pairs)]
    prompts_and_relations = {
        "capitals": ("The capital of {} is", capital),
        "languages": ("People in {} mostly speak", language),
    }
    keep, lose = (
        load_tasks(lm, {name: [(prompt.format(c), f" {dict(relation.pairs)[c]}") for c in countries]})[0]
        for name, (prompt, relation) in prompts_and_relations.items()
    )
    return keep, lose


def contrast(setup: Setup, measurement: Measurement) -> Maps:
    """Fit to two halves of the countries."""
    keep, lose = (task.halves() for task in matched_tasks(setup.lm))
    first, second = ({"keep": a, "lose": b} for a, b in zip(keep, lose, strict=True))
    return setup.fits("contrast", first, second)


def probe(setup: Setup, measurement: Measurement) -> Maps:
    """Return maps of two halves of the main questions. Both have the same test questions, which do not affect a map."""
    folder = files("headatlas.tasks") / "data" / "stories"
    train, test = (json.loads((folder / f"{n}.json").read_text(encoding="utf-8")) for n in ("train", "test"))
    limit = None if measurement.examples is None else measurement.examples // 2
    first, second = (setup.map("probe", questions=train[half::2], test=test, limit=limit, seed=half) for half in (0, 1))
    return first, second


def maps(setup: Setup, measurement: Measurement) -> Maps:
    """Return maps of two halves of each relation's pairs, with half the usual minimum number of pairs."""
    parts = [[replace(r, pairs=r.pairs[half::2]) for r in load_relations()] for half in (0, 1)]
    first, second = (setup.map("maps", relations=part, min_pairs=15) for part in parts)
    return first, second


def pattern(setup: Setup, measurement: Measurement) -> Maps:
    """Return maps of two sets of random tokens."""
    first, second = (setup.map("pattern", sequences=(measurement.examples or 8) // 2, seed=seed) for seed in (0, 1))
    return first, second


def stored_reliability(setup: Setup, measurement: Measurement) -> dict[str, float]:
    """Return the reliability that a result stores, by subject."""
    measures = methods()[measurement.method].measures
    option = measures[0].examples
    options = {} if measurement.examples is None or option is None else {option[1]: measurement.examples}
    return reliability_of(setup.result(measurement.method, **options), measures[0], measures)


HALVES: Mapping[str, Callable[[Setup, Measurement], Maps]] = {
    **dict.fromkeys(EFFECT_METHODS, effects),
    **dict.fromkeys(("gate", "dissociate"), training_halves),
    "contrast": contrast,
    "probe": probe,
    "maps": maps,
    "pattern": pattern,
}


# --- seeds


def seeds(setup: Setup, measurement: Measurement) -> xr.DataArray:
    """Return the map of every seed that the preset fits, along `seed`; of seeds 0 and 1 if it fits one."""
    method = methods()[measurement.method]
    data = dict(zip(("keep", "lose"), matched_tasks(setup.lm), strict=True)) if "keep" in method.options else {}
    if "seeds" in method.options:
        measure = method.measures[0]
        assert not isinstance(measure.repeats, str)
        repeated = setup.result(measurement.method, **data)[measure.repeats[0]]
        if repeated.sizes["seed"] > 1:
            return repeated
        return setup.result(measurement.method, **data, seeds=2)[measure.repeats[0]]
    first, second = xr.align(*(setup.map(measurement.method, seed=seed) for seed in (0, 1)), join="inner")
    return xr.concat([first, second], "seed")


def correlations_by_subject(setup: Setup, measurement: Measurement) -> dict[str, float | None]:
    """Return subject → Spearman correlation of the two maps, or the mean over pairs of seeds."""
    over = methods()[measurement.method].measures[0].over
    if measurement.over == "seed":
        correlations = _by_subject(seeds(setup, measurement), "seed", over)
    elif measurement.method in HALVES:
        halves = xr.align(*HALVES[measurement.method](setup, measurement), join="inner")
        correlations = _by_subject(xr.concat(list(halves), "half"), "half", over)
    else:
        correlations = stored_reliability(setup, measurement)
    return {subject: None if np.isnan(r) else r for subject, r in correlations.items()}


def _by_subject(repeated: xr.DataArray, dim: str, over: str) -> dict[str, float]:
    correlations = between_repeats(repeated, dim).spearman
    return {str(s): float(r) for s, r in zip(correlations[over].values, correlations.values, strict=True)}


# --- measurements, in order


def plan(names: list[str], examples: list[int], draws: int) -> Iterator[Measurement]:
    """Yield every measurement once, the most important first.

    First the effects with few examples, then `taylor` with more, every other method, and the effects with more; then
    the effects on other halves, and other methods with more examples.
    """
    effect, others = ([n for n in names if (n in EFFECT_METHODS) == is_effect] for is_effect in (True, False))
    measurements = [Measurement(name, "half", n) for n in examples if n <= FEW_EXAMPLES for name in effect]
    measurements += [Measurement("taylor", "half", n) for n in examples if "taylor" in effect]
    for name in others:
        measurements.append(
            Measurement(name, "half", 900 if name == "probe" else EXAMPLES_BY_METHOD.get(name, (None,))[0])
        )
        measurements += [Measurement(name, "seed")] if has_seed(methods()[name]) else []
    measurements += [Measurement(name, "half", n) for n in examples for name in effect]
    for draw in range(1, draws):
        measurements += [Measurement(name, "half", n, draw) for n in examples for name in effect]
    measurements += [Measurement(name, "half", n) for name in others for n in EXAMPLES_BY_METHOD.get(name, ())[1:]]
    yield from dict.fromkeys(measurements)


def has_seed(method: Method) -> bool:
    return method.name not in METHODS_WITHOUT_SEED and bool({"seed", "seeds"} & set(method.options))


def measured_methods() -> list[str]:
    """List every method with a map: the effects, then METHODS_BY_COST, then others."""
    ordered_names = [*EFFECT_METHODS, *METHODS_BY_COST]
    names_with_map = [name for name, method in methods().items() if method.measures]
    return sorted(names_with_map, key=lambda n: ordered_names.index(n) if n in ordered_names else len(ordered_names))


def measure_all(setup: Setup, measurements: Iterator[Measurement], path: Path, budget: float) -> None:
    """Make every measurement that is not in the file yet; the file is written after each."""
    run = json.loads(path.read_text()) if path.is_file() else {"rows": []}
    header = {"model": setup.lm.name, "fingerprint": setup.lm.fingerprint(), "preset": setup.preset}
    if any(run.get(k, v) != v for k, v in header.items()):
        raise BadArgument(f"out holds {path}, of model {run.get('model')!r} and preset {run.get('preset')!r}")
    done = {tuple(row[k] for k in asdict(Measurement("", ""))) for row in run["rows"]}
    first_start = time.monotonic()
    for measurement in measurements:
        if tuple(asdict(measurement).values()) in done:
            continue
        if time.monotonic() - first_start > budget:
            print(f"the budget of {budget:.0f} s is spent: run again to resume")
            break
        row = asdict(measurement)
        start = time.monotonic()
        try:
            row["spearman"] = correlations_by_subject(setup, measurement)
        except HeadAtlasError as e:
            row |= {"spearman": {}, "error": str(e)}
        row["seconds"] = round(time.monotonic() - start, 2)
        run = header | {"device": str(setup.lm.device), "rows": [*run["rows"], row]}
        # The old file is replaced at once: an interruption leaves one of the two.
        temporary = path.with_suffix(".partial")
        temporary.write_text(json.dumps(run, indent=1) + "\n")
        temporary.replace(path)
        values = ", ".join(f"{s} {r:.2f}" for s, r in row["spearman"].items() if r is not None)
        print(
            measurement.method,
            measurement.over,
            measurement.examples or "",
            f"{row['seconds']} s:",
            row.get("error", values),
            flush=True,
        )


# --- tables


def curve(run: Mapping[str, Any], method: str, subject: str | None = None) -> dict[int | None, float]:
    """Return examples → Spearman correlation between halves, mean over draws, and over subjects unless one is named."""
    points: dict[int | None, list[float]] = {}
    for row in run["rows"]:
        if (row["method"], row["over"]) == (method, "half"):
            values = [r for s, r in row["spearman"].items() if r is not None and subject in (None, s)]
            points.setdefault(row["examples"], []).extend(values)
    return {n: float(np.mean(values)) for n, values in points.items() if values}


def examples_needed(points: Mapping[int | None, float]) -> str:
    """Return how many examples halves need to correlate at 0.8: the fewest measured, or extrapolated from the most."""
    measured_points = sorted((n, r) for n, r in points.items() if n is not None)
    if not measured_points:
        return "–"
    fewest = next((n for n, r in measured_points if r >= RELIABLE), None)
    if fewest is not None:
        return f"{'at most ' * (fewest == measured_points[0][0])}{fewest}"
    n, r = measured_points[-1]
    bound = "more than" if r <= MIN_CORRELATION else "about"
    factor = data_factor_needed(max(r, MIN_CORRELATION), RELIABLE)
    return f"{bound} {round_up_in_words(n * factor)} (extrapolated from {n})"


def table(run: Mapping[str, Any]) -> list[dict[str, str]]:
    """Make a row per method: correlation between halves, of whole maps and between seeds, with the fewest examples."""
    rows = []
    for name, method in methods().items():
        if not method.measures:
            if name == "salient":
                rows.append({"method": name, "examples": "no data", "between halves": "exact"})
            continue
        points = curve(run, name)
        if not points:
            continue
        first = min(points, key=lambda n: (n is None, n or 0))
        rows.append(
            {
                "method": name,
                "examples": "all" if first is None else str(first),
                "between halves": _with_range(run, name, "half", first),
                "whole map": f"{spearman_brown(points[first], 2):.2f}" if points[first] > -1 else "–",
                "between seeds": _with_range(run, name, "seed", None),
                "0.8 between halves takes": examples_needed(points) if points[first] < RELIABLE else "–",
            }
        )
    return rows


def _with_range(run: Mapping[str, Any], method: str, over: str, examples: int | None) -> str:
    """Format the mean over subjects and draws, and the range over subjects."""
    by_subject: dict[str, list[float]] = {}
    for row in run["rows"]:
        if (row["method"], row["over"], row["examples"]) == (method, over, examples):
            for subject, r in row["spearman"].items():
                if r is not None:
                    by_subject.setdefault(subject, []).append(r)
    if not by_subject:
        return "–"
    means = [float(np.mean(values)) for values in by_subject.values()]
    range_text = f" ({min(means):.2f} to {max(means):.2f})" if len(means) > 1 else ""
    return f"{np.mean(means):.2f}{range_text}"


def table_by_examples(run: Mapping[str, Any]) -> list[dict[str, str]]:
    """Make a row per method and subject that were measured with several numbers of examples."""
    rows = []
    for name in methods():
        counts = sorted(n for n in curve(run, name) if n is not None)
        if len(counts) < 2:
            continue
        correlations = (row["spearman"] for row in run["rows"] if (row["method"], row["over"]) == (name, "half"))
        for subject in dict.fromkeys(s for values in correlations for s in values):
            points = curve(run, name, subject)
            cells = "; ".join(f"{n}: {points[n]:.2f}" for n in counts if n in points)
            rows.append(
                {"method": name, "subject": subject, "correlation between halves, by number of examples": cells}
            )
            rows[-1]["0.8 takes"] = examples_needed(points)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="name or folder of the model")
    parser.add_argument("--out", type=Path, required=True, help="folder for stability.json")
    parser.add_argument(
        "--methods", nargs="+", choices=measured_methods(), default=measured_methods(), help="default: all with a map"
    )
    parser.add_argument(
        "--examples", nargs="+", type=int, default=[16, 32, 64, 128, 256, 448], help="numbers of examples"
    )
    parser.add_argument(
        "--tasks", nargs="+", choices=list(BUILT_IN), default=list(BUILT_IN), help="built-in tasks (default: all)"
    )
    parser.add_argument(
        "--draws", type=int, default=3, help="number of random splits into halves, for taylor, ablate and ig"
    )
    parser.add_argument("--preset", choices=["quick", "full"], default="quick", help="preset of all methods")
    parser.add_argument("--device", default="auto", help="device of the model")
    parser.add_argument(
        "--budget", type=float, default=float("inf"), help="seconds after which no new measurement starts"
    )
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    setup = Setup(ha.load(arguments.model, arguments.device, "float32"), arguments.preset, tuple(arguments.tasks))
    measurements = plan(
        [n for n in measured_methods() if n in arguments.methods], sorted(arguments.examples), arguments.draws
    )
    path = arguments.out / FILE
    measure_all(setup, measurements, path, arguments.budget - (time.monotonic() - start))
    run = json.loads(path.read_text())
    for rows in (table(run), table_by_examples(run)):
        print(f"\n{pd.DataFrame(rows).fillna('–').to_string(index=False)}" if rows else "")


if __name__ == "__main__":
    main()
