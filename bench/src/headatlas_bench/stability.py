"""How stable maps are: every method asked twice, of disjoint halves of its data and from other seeds.

    python -m headatlas_bench.stability smollm2 --out stability [--methods taylor ablate] [--examples 16 32 64]

Of each two maps, the Spearman correlation over heads, subject by subject (task, function, relation, …). A map "of n
examples" is compared with itself by two maps of n / 2 examples each. `taylor`, `ablate` and `ig` get two halves of a
built-in task that share nothing, worked examples neither; others the halves that their results keep, or halves of their
questions, pairs or training examples. Fits to a half have seeds of their own. Proofs are left out. Maps are made in
float32.

Results lie in DIR/stability.json as they come: run again, it goes on. --budget: seconds after which nothing new starts.
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
from headatlas.comparison.reliability import (
    MIN_CORRELATION,
    STABLE_CORRELATION,
    between_repeats,
    data_factor_needed,
    round_up_in_words,
    spearman_brown,
)
from headatlas.errors import BadArgument, HeadAtlasError
from headatlas.methods import methods
from headatlas.methods.method import Method
from headatlas.runs.run import compute
from headatlas.tasks.built_in import BUILT_IN
from headatlas.tasks.prompts import Task, aba_abb, load_tasks
from headatlas.tasks.relations import load_relations

FILE = "stability.json"
EFFECTS = ("taylor", "ablate", "ig")  # first of all: their maps are means over examples
MORE = {"function_vector": (12, 32, 64), "copying": (32, 128), "streaming": (2, 8, 32), "retrieval": (6, 20)}
MORE |= {"influence": (6, 8), "pattern": (8,), "dissociate": (40, 160)}
WORKED = 4  # examples of a kind that are left to show, beside those that a prompt shows
UNPROVEN: Mapping[str, Mapping[str, Any]] = {
    "gate": {"proof": False},
    "dissociate": {"proof": False},
    "probe": {"proof": "none"},
    "retrieval": {"causal": 0},
    "streaming": {"held_out": 0},
    "function_vector": {"draws": 1},
    "maps": {"baselines": False},
}
SMALL = 64  # examples up to which all three effects are measured before anything else
CHEAP_FIRST = [
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
NO_SEED = ("maps", "retrieval")  # theirs is of controls alone
Maps = tuple[xr.DataArray, xr.DataArray]


@dataclass(frozen=True)
class Asked:
    """One measurement. over: 'half' or 'seed'. examples: of both halves together; None: all that the preset uses."""

    method: str
    over: str
    examples: int | None = None
    draw: int = 0


@dataclass(frozen=True)
class Asking:
    """A model, and the settings that all measurements share. options: of each method, instead of the preset's."""

    lm: ha.LM
    preset: str = "quick"
    tasks: tuple[str, ...] = tuple(BUILT_IN)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: UNPROVEN)

    def result(self, name: str, **options: Any) -> xr.Dataset:
        return compute(methods()[name], self.lm, {**self.options.get(name, {}), **options}, preset=self.preset)

    def map(self, name: str, **options: Any) -> xr.DataArray:
        """The first measure, as it is before it is cleared of what is not proven; over seeds, if it has several."""
        measure = methods()[name].measures[0]
        fitted = measure.repeats[0] if measure.repeats and measure.repeats[1] == "seed" else measure.name
        return self.result(name, **options)[fitted]

    def fits(self, name: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> Maps:
        """Means over seeds of two fits, the second from other seeds than the first."""
        one = self.map(name, **first)
        n = one.sizes["seed"]
        return one.mean("seed"), self.map(name, **second, seeds=list(range(n, 2 * n))).mean("seed")


# --- halves of the data


def half_of(task: Task, n: int, draw: int, half: int) -> Task:
    """A task with `n` examples to measure, as many of each kind as can be, out of one half of all its examples.

    The halves share no example, and no worked example. draw: how the examples are dealt to them.
    """
    generator = np.random.default_rng(draw)
    every = (*task.held_out, *task.train)
    kinds: dict[str, list[Any]] = {}
    for i in generator.permutation(len(every)).tolist():
        kinds.setdefault(every[i].kind, []).append(every[i])
    own = {kind: examples[half::2] for kind, examples in sorted(kinds.items())}
    left = task.shots + WORKED if task.shots else 1
    turns = sorted((i, kind) for kind, examples in own.items() for i in range(len(examples) - left))
    if len(turns) < n:
        raise BadArgument(f"task {task.name!r} has {len(turns)} examples in a half, {n} are asked for")
    measured = [own[kind][i] for i, kind in turns[:n]]
    train = [e for examples in own.values() for e in examples if e not in set(measured)]
    return replace(task, train=tuple(train), held_out=tuple(measured))


def effects(asking: Asking, asked: Asked) -> Maps:
    n = (asked.examples or 16) // 2
    pools = [aba_abb(asking.lm, asked.draw) if t == "aba_abb" else load_tasks(asking.lm, t)[0] for t in asking.tasks]
    first, second = (
        asking.map(asked.method, tasks=[half_of(t, n, asked.draw, half) for t in pools], limit=n) for half in (0, 1)
    )
    return first, second


def training_halves(asking: Asking, asked: Asked) -> Maps:
    """Tasks cut into halves of their training examples; examples: of each task."""
    tasks = methods()[asked.method].options["tasks"].default or asking.tasks
    options = {} if asked.examples is None else {"limit": len(tasks) * asked.examples // 2}
    parts = zip(*(t.halves() for t in load_tasks(asking.lm, tasks)), strict=True)
    first, second = ({"tasks": list(part), **options} for part in parts)
    return asking.fits(asked.method, first, second)


def matched_tasks(lm: ha.LM) -> tuple[Task, Task]:
    """The same countries asked for their capital, and for their language."""
    relations = {r.name: r for r in load_relations()}
    capital, language = (relations[f"country_to_{what}"] for what in ("capital", "language"))
    countries = [c for c in dict(capital.pairs) if c in dict(language.pairs)]
    asked = {"capitals": ("The capital of {} is", capital), "languages": ("People in {} mostly speak", language)}
    keep, lose = (
        load_tasks(lm, {name: [(prompt.format(c), f" {dict(of.pairs)[c]}") for c in countries]})[0]
        for name, (prompt, of) in asked.items()
    )
    return keep, lose


def contrast(asking: Asking, asked: Asked) -> Maps:
    keep, lose = (task.halves() for task in matched_tasks(asking.lm))
    first, second = ({"keep": a, "lose": b} for a, b in zip(keep, lose, strict=True))
    return asking.fits("contrast", first, second)


def probe(asking: Asking, asked: Asked) -> Maps:
    """Every other main question; the test questions are the same, for the map is not made of them."""
    folder = files("headatlas.tasks") / "data" / "stories"
    train, test = (json.loads((folder / f"{n}.json").read_text(encoding="utf-8")) for n in ("train", "test"))
    limit = None if asked.examples is None else asked.examples // 2
    first, second = (
        asking.map("probe", questions=train[half::2], test=test, limit=limit, seed=half) for half in (0, 1)
    )
    return first, second


def maps(asking: Asking, asked: Asked) -> Maps:
    """Every other pair of each relation; a relation needs half as many as usual."""
    parts = [[replace(r, pairs=r.pairs[half::2]) for r in load_relations()] for half in (0, 1)]
    first, second = (asking.map("maps", relations=part, min_pairs=15) for part in parts)
    return first, second


def pattern(asking: Asking, asked: Asked) -> Maps:
    """Other random tokens."""
    first, second = (asking.map("pattern", sequences=(asked.examples or 8) // 2, seed=seed) for seed in (0, 1))
    return first, second


def own_halves(asking: Asking, asked: Asked) -> Maps:
    """The halves that the result keeps."""
    measure = methods()[asked.method].measures[0]
    if measure.repeats is None or measure.repeats[1] != "half":
        raise BadArgument(f"method is {asked.method!r}, whose results keep no halves")
    option = {} if asked.examples is None or measure.examples is None else {measure.examples[1]: asked.examples}
    both = asking.result(asked.method, **option)[measure.repeats[0]]
    return both.isel(half=0, drop=True), both.isel(half=1, drop=True)


HALVES: Mapping[str, Callable[[Asking, Asked], Maps]] = {
    **dict.fromkeys(EFFECTS, effects),
    **dict.fromkeys(("gate", "dissociate"), training_halves),
    "contrast": contrast,
    "probe": probe,
    "maps": maps,
    "pattern": pattern,
}


# --- seeds


def seeds(asking: Asking, asked: Asked) -> xr.DataArray:
    """The map from every seed, over `seed`: those that the preset fits, or 0 and 1 where it has one."""
    method = methods()[asked.method]
    data = dict(zip(("keep", "lose"), matched_tasks(asking.lm), strict=True)) if "keep" in method.options else {}
    if "seeds" in method.options:
        measure = method.measures[0]
        assert measure.repeats is not None
        repeated = asking.result(asked.method, **data)[measure.repeats[0]]
        if repeated.sizes["seed"] > 1:
            return repeated
        return asking.result(asked.method, **data, seeds=2)[measure.repeats[0]]
    first, second = xr.align(*(asking.map(asked.method, seed=seed) for seed in (0, 1)), join="inner")
    return xr.concat([first, second], "seed")


def agreement_of(asking: Asking, asked: Asked) -> dict[str, float | None]:
    """subject → Spearman correlation of the two maps, or the mean over every two seeds."""
    over = methods()[asked.method].measures[0].over
    if asked.over == "seed":
        repeated = seeds(asking, asked)
    else:
        first, second = xr.align(*HALVES.get(asked.method, own_halves)(asking, asked), join="inner")
        repeated = xr.concat([first, second], "half")
    again = between_repeats(repeated, asked.over).spearman
    return {str(s): None if np.isnan(r) else float(r) for s, r in zip(again[over].values, again.values, strict=True)}


# --- what is asked, in which order


def plan(chosen: list[str], examples: list[int], draws: int) -> Iterator[Asked]:
    """The most important first, each once: few examples of the effects, `taylor` with more, every other method, the
    effects with more. Then other halves of the effects, and others with more."""
    effect, others = ([n for n in chosen if (n in EFFECTS) == wanted] for wanted in (True, False))
    asked = [Asked(name, "half", n) for n in examples if n <= SMALL for name in effect]
    asked += [Asked("taylor", "half", n) for n in examples if "taylor" in effect]
    for name in others:
        asked.append(Asked(name, "half", 900 if name == "probe" else MORE.get(name, (None,))[0]))
        asked += [Asked(name, "seed")] if has_seed(methods()[name]) else []
    asked += [Asked(name, "half", n) for n in examples for name in effect]
    for draw in range(1, draws):
        asked += [Asked(name, "half", n, draw) for n in examples for name in effect]
    asked += [Asked(name, "half", n) for name in others for n in MORE.get(name, ())[1:]]
    yield from dict.fromkeys(asked)


def has_seed(method: Method) -> bool:
    return method.name not in NO_SEED and bool({"seed", "seeds"} & set(method.options))


def measured_methods() -> list[str]:
    """Every method with a map: the effects, then the cheapest of those known here, then others."""
    known = [*EFFECTS, *CHEAP_FIRST]
    named = [name for name, method in methods().items() if method.measures]
    return sorted(named, key=lambda n: known.index(n) if n in known else len(known))


def measure_all(asking: Asking, asked: Iterator[Asked], path: Path, budget: float) -> None:
    """Every measurement that is not in the file yet, each written as it comes."""
    run = json.loads(path.read_text()) if path.is_file() else {"rows": []}
    about = {"model": asking.lm.name, "fingerprint": asking.lm.fingerprint(), "preset": asking.preset}
    if any(run.get(k, v) != v for k, v in about.items()):
        raise BadArgument(f"out holds {path}, of model {run.get('model')!r} and preset {run.get('preset')!r}")
    done = {tuple(row[k] for k in asdict(Asked("", ""))) for row in run["rows"]}
    start = time.monotonic()
    for one in asked:
        if tuple(asdict(one).values()) in done:
            continue
        if time.monotonic() - start > budget:
            print(f"the budget of {budget:.0f} s is spent: run again to go on")
            break
        row, began = asdict(one), time.monotonic()
        try:
            row["spearman"] = agreement_of(asking, one)
        except HeadAtlasError as e:
            row |= {"spearman": {}, "error": str(e)}
        row["seconds"] = round(time.monotonic() - began, 2)
        run = about | {"device": str(asking.lm.device), "rows": [*run["rows"], row]}
        aside = path.with_suffix(".partial")
        aside.write_text(json.dumps(run, indent=1) + "\n")
        aside.replace(path)
        values = ", ".join(f"{s} {r:.2f}" for s, r in row["spearman"].items() if r is not None)
        print(one.method, one.over, one.examples or "", f"{row['seconds']} s:", row.get("error", values), flush=True)


# --- tables


def curve(run: Mapping[str, Any], method: str, subject: str | None = None) -> dict[int | None, float]:
    """examples → Spearman between halves, mean over draws, and over subjects unless one is named."""
    points: dict[int | None, list[float]] = {}
    for row in run["rows"]:
        if (row["method"], row["over"]) == (method, "half"):
            values = [r for s, r in row["spearman"].items() if r is not None and subject in (None, s)]
            points.setdefault(row["examples"], []).extend(values)
    return {n: float(np.mean(values)) for n, values in points.items() if values}


def needed(points: Mapping[int | None, float]) -> str:
    """How many examples halves need to agree to 0.8: the fewest measured, or extrapolated from the most measured."""
    counted = sorted((n, r) for n, r in points.items() if n is not None)
    if not counted:
        return "–"
    enough = next((n for n, r in counted if r >= STABLE_CORRELATION), None)
    if enough is not None:
        return f"{'at most ' * (enough == counted[0][0])}{enough}"
    n, r = counted[-1]
    bound = "more than" if r <= MIN_CORRELATION else "about"
    factor = data_factor_needed(max(r, MIN_CORRELATION), STABLE_CORRELATION)
    return f"{bound} {round_up_in_words(n * factor)} (extrapolated from {n})"


def table(run: Mapping[str, Any]) -> list[dict[str, str]]:
    """A row per method: with as many examples as its quick preset uses, between halves, the whole map, and seeds."""
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
                "0.8 between halves takes": needed(points) if points[first] < STABLE_CORRELATION else "–",
            }
        )
    return rows


def _with_range(run: Mapping[str, Any], method: str, over: str, examples: int | None) -> str:
    """The mean over subjects and draws, and the range over subjects."""
    by_subject: dict[str, list[float]] = {}
    for row in run["rows"]:
        if (row["method"], row["over"], row["examples"]) == (method, over, examples):
            for subject, r in row["spearman"].items():
                if r is not None:
                    by_subject.setdefault(subject, []).append(r)
    if not by_subject:
        return "–"
    means = [float(np.mean(values)) for values in by_subject.values()]
    within = f" ({min(means):.2f} to {max(means):.2f})" if len(means) > 1 else ""
    return f"{np.mean(means):.2f}{within}"


def table_by_examples(run: Mapping[str, Any]) -> list[dict[str, str]]:
    """A row per method and task of those that were asked with several numbers of examples."""
    rows = []
    for name in methods():
        counts = sorted(n for n in curve(run, name) if n is not None)
        if len(counts) < 2:
            continue
        named = (row["spearman"] for row in run["rows"] if (row["method"], row["over"]) == (name, "half"))
        for subject in dict.fromkeys(s for values in named for s in values):
            points = curve(run, name, subject)
            cells = "; ".join(f"{n}: {points[n]:.2f}" for n in counts if n in points)
            rows.append({"method": name, "subject": subject, "between halves of so many examples": cells})
            rows[-1]["0.8 takes"] = needed(points)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--methods", nargs="+", choices=measured_methods(), default=measured_methods())
    parser.add_argument("--examples", nargs="+", type=int, default=[16, 32, 64, 128, 256, 448])
    parser.add_argument("--tasks", nargs="+", choices=list(BUILT_IN), default=list(BUILT_IN))
    parser.add_argument("--draws", type=int, default=3, help="times that halves are drawn, for taylor, ablate and ig")
    parser.add_argument("--preset", choices=["quick", "full"], default="quick")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds after which nothing new starts")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    asking = Asking(ha.load(options.model, options.device, "float32"), options.preset, tuple(options.tasks))
    asked = plan([n for n in measured_methods() if n in options.methods], sorted(options.examples), options.draws)
    path = options.out / FILE
    measure_all(asking, asked, path, options.budget - (time.monotonic() - began))
    run = json.loads(path.read_text())
    for rows in (table(run), table_by_examples(run)):
        print(f"\n{pd.DataFrame(rows).fillna('–').to_string(index=False)}" if rows else "")


if __name__ == "__main__":
    main()
