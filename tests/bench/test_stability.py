"""headatlas_bench.stability: its numbers against a direct computation, and its tables for a fixed run."""

import importlib
import json

import pytest
from scipy.stats import spearmanr

import headatlas as ha
from headatlas.errors import BadArgument
from headatlas.tasks.prompts import Example, Task, load_tasks
from headatlas.testing import tiny_lm, tiny_task
from headatlas_bench import stability as bench

TASKS = (tiny_task("a", 0), tiny_task("b", 1))


def row(method: str, over: str, examples: int | None, draw: int = 0, **spearman: float | None) -> dict:
    return {"method": method, "over": over, "examples": examples, "draw": draw, "spearman": spearman, "seconds": 1.0}


RUN = {
    "model": "m",
    "preset": "quick",
    "device": "cpu",
    "rows": [
        row("taylor", "half", 16, math=0.1, syntax=0.3),
        row("taylor", "half", 16, 1, math=0.3, syntax=0.5),
        row("taylor", "half", 64, math=0.5, syntax=0.9),
        row("ablate", "half", 16, math=0.9, syntax=0.85),
        row("gate", "half", None, math=0.6, syntax=0.8),
        row("gate", "seed", None, math=0.4, syntax=0.6),
        row("retrieval", "half", 6, facts=None) | {"error": "none answered"},
    ],
}


def test_halves_of_a_task_share_nothing() -> None:
    (math,) = load_tasks(None, "math")
    for draw in (0, 1):
        first, second = (bench.half_of(math, 40, draw, half) for half in (0, 1))
        assert len(first.held_out) == len(second.held_out) == 40
        examples_by_half = [{*half.train, *half.held_out} for half in (first, second)]
        assert not examples_by_half[0] & examples_by_half[1]
        assert not set(first.train) & set(first.held_out)
        for half in (first, second):
            counts = [sum(e.kind == kind for e in half.held_out) for kind in math.kinds]
            assert counts == [5] * 8
            assert all(sum(e.kind == kind for e in half.train) >= 5 for kind in math.kinds)
    assert bench.half_of(math, 8, 0, 0) != bench.half_of(math, 8, 1, 0)
    with pytest.raises(BadArgument, match="task 'math' has 264 examples per half, expected at least 300"):
        bench.half_of(math, 300, 0, 0)


def test_the_numbers_are_those_of_a_direct_computation(tmp_path) -> None:
    lm = tiny_lm()
    setup = bench.Setup(lm, tasks=TASKS)
    path = tmp_path / bench.FILE
    bench.measure_all(setup, bench.plan(["taylor"], [4, 8], 1), path, 1e9)
    run = json.loads(path.read_text())
    assert [(r["method"], r["over"], r["examples"]) for r in run["rows"]] == [("taylor", "half", n) for n in (4, 8)]
    for n, measured in zip((4, 8), run["rows"], strict=True):
        for task in TASKS:
            a, b = (
                ha.taylor(lm, bench.half_of(task, n // 2, 0, half), limit=n // 2).contribution.values.ravel()
                for half in (0, 1)
            )
            assert measured["spearman"][task.name] == pytest.approx(spearmanr(a, b).statistic)


def test_a_map_that_no_example_changes_is_stable() -> None:
    """Prompts that differ only in spaces are the same tokens, so both halves have the same prompts."""
    examples = tuple(Example(f"w1{' ' * i}w2 w3", " w4") for i in range(1, 17))
    setup = bench.Setup(tiny_lm(), tasks=(Task("same", examples[:8], examples[8:]),))
    assert bench.correlations_by_subject(setup, bench.Measurement("taylor", "half", 4)) == {"same": pytest.approx(1)}
    seeds = bench.correlations_by_subject(bench.Setup(tiny_lm()), bench.Measurement("pattern", "seed"))
    assert set(seeds) == {"induction", "previous", "duplicate", "sink", "self"}


def test_an_interrupted_run_goes_on(tmp_path, monkeypatch) -> None:
    setup, path = bench.Setup(tiny_lm(), tasks=TASKS), tmp_path / bench.FILE
    measurements = [
        bench.Measurement("taylor", "half", 4),
        bench.Measurement("taylor", "half", 8),
        bench.Measurement("taylor", "half", 80),
    ]
    calls = []
    monkeypatch.setattr(
        bench, "correlations_by_subject", lambda _, measurement: calls.append(measurement) or {"a": 0.5}
    )
    bench.measure_all(setup, iter(measurements[:1]), path, 1e9)
    bench.measure_all(setup, iter(measurements[:2]), path, 1e9)
    bench.measure_all(setup, iter(measurements), path, -1)  # the budget is spent
    assert calls == measurements[:2]
    assert len(json.loads(path.read_text())["rows"]) == 2
    monkeypatch.undo()
    bench.measure_all(setup, iter(measurements), path, 1e9)
    assert "examples per half, expected at least 40" in json.loads(path.read_text())["rows"][2]["error"]
    with pytest.raises(BadArgument, match=r"out holds .*, of model 'tiny' and preset 'quick'"):
        bench.measure_all(bench.Setup(tiny_lm(), "full"), iter(measurements), path, 1e9)


def test_the_plan_has_every_method_with_a_map_and_the_effects_first() -> None:
    measurements = list(bench.plan(bench.measured_methods(), [16, 128], 2))
    assert [(a.method, a.examples) for a in measurements[:4]] == [
        *((n, 16) for n in bench.EFFECT_METHODS),
        ("taylor", 128),
    ]
    assert {a.method for a in measurements} == {n for n, m in bench.methods().items() if m.measures}
    assert len(measurements) == len(set(measurements))
    with_seeds = {a.method for a in measurements if a.over == "seed"}
    assert with_seeds == {"contrast", "copying", "dissociate", "function_vector", "gate", "pattern", "probe"}


def test_tables_of_a_known_run() -> None:
    rows = {r["method"]: r for r in bench.table(RUN)}
    assert set(rows) == {"taylor", "ablate", "gate", "salient"}
    assert rows["taylor"] == {
        "method": "taylor",
        "examples": "16",
        "between halves": "0.30 (0.20 to 0.40)",
        "whole map": "0.46",  # 0.6 / 1.3
        "between seeds": "–",
        "0.8 between halves takes": "about 110 (extrapolated from 64)",  # 64 · 0.8 · 0.3 / (0.7 · 0.2)
    }
    assert rows["ablate"]["0.8 between halves takes"] == "–"
    assert (rows["gate"]["examples"], rows["gate"]["between halves"]) == ("all", "0.70 (0.60 to 0.80)")
    assert rows["gate"]["between seeds"] == "0.50 (0.40 to 0.60)"
    assert rows["salient"]["between halves"] == "exact"
    needed_examples = {(r["method"], r["subject"]): r["0.8 takes"] for r in bench.table_by_examples(RUN)}
    assert needed_examples == {("taylor", "math"): "about 260 (extrapolated from 64)", ("taylor", "syntax"): "64"}
    assert bench.examples_needed({16: 0.9}) == "at most 16"
    assert bench.examples_needed({16: -0.2}) == "more than 1,300 (extrapolated from 16)"


def test_the_page_says_what_was_measured() -> None:
    docs = importlib.import_module("docs_stability")
    assert "| taylor | 16 | 0.30 (0.20 to 0.40) | 0.46 |" in docs.block(RUN)
    assert "- retrieval: none answered" in docs.block(RUN)
    page = docs.PAGE.read_text()
    assert page.index(docs.BEGIN) < page.index(docs.END)
    if docs.RUN.exists():
        assert docs.BEGIN + docs.block(json.loads(docs.RUN.read_text())) + docs.END in page


def test_the_probe_gets_halves_of_the_built_in_questions(monkeypatch) -> None:
    """The halves share no main question, and are tested on the same ones."""
    options_by_half: list[dict] = []
    monkeypatch.setattr(bench.Setup, "map", lambda self, name, **options: options_by_half.append(options))
    bench.probe(bench.Setup(tiny_lm()), bench.Measurement("probe", "half", 8))
    first, second = ({json.dumps(q) for q in options["questions"]} for options in options_by_half)
    assert first
    assert not first & second
    assert options_by_half[0]["test"] == options_by_half[1]["test"]
    assert [options["limit"] for options in options_by_half] == [4, 4]
