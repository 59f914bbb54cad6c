"""How far the test of heads can be trusted: placebos, coverage of its intervals, and whether verdicts repeat.

Placebos are subjects that cannot have heads of their own: one task dealt into two random halves as if they were two
tasks. Their heads are the top ones of the difference of two gradient maps, as a method that looks for heads of one task
and not the other would choose them. Nothing here may be selective.

    python benchmarks/evidence.py smollm2 --runs 40 --out build/evidence
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import headatlas as ha
from headatlas.evidence.control import Heads, top_heads
from headatlas.evidence.decide import SUPPORTED, UNDECIDED
from headatlas.evidence.fresh_prompts import PromptSet, load_prompts
from headatlas.evidence.heads_test import Removal, number_of_heads, run_test, stack_tests, to_arrays
from headatlas.evidence.inference import interval
from headatlas.evidence.matching import match
from headatlas.models.gradients import gate_gradients
from headatlas.models.lm import LM
from headatlas.runs.map_tests import survey_of
from headatlas.tasks.built_in import BUILT_IN
from headatlas.tasks.relations import load_relations
from headatlas.tasks.used import Used

MAX_PROMPTS = 320  # of a subject: the rest are few-shot examples
COVERAGE_DRAWS = 60
SAMPLES = 200
TEMPLATES = ("{}:", "Question: which word goes with {}?\nAnswer:")  # in addition to a relation's own


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--runs", type=int, default=40, help="placebos of each kind")
    parser.add_argument("--prompts", type=int, default=48)
    parser.add_argument("--draws", type=int, default=59)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--out", type=Path, default=Path("build/evidence"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    lm = ha.load(options.model, options.device, options.dtype)
    removal = Removal(lm, survey_of(lm, {name: name for name in BUILT_IN}))
    subjects = answered_subjects(lm, removal)
    print(f"subjects with ability: {', '.join(subjects)}", flush=True)
    rows: dict[str, Any] = {"model": lm.name, "subjects": list(subjects)}
    experiments = {"halves": placebo_halves, "templates": placebo_templates, "repeats": repeated, "coverage": coverage}
    for name, experiment in experiments.items():
        start = time.perf_counter()
        rows[name] = experiment(removal, subjects, options)
        print(f"{name}: {json.dumps(rows[name])} ({time.perf_counter() - start:.0f} s)", flush=True)
        (options.out / "evidence.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def answered_subjects(lm: LM, removal: Removal) -> dict[str, PromptSet]:
    """Return all prompts of the built-in tasks and relations that the model can do."""
    names = [*BUILT_IN, *(relation.name for relation in load_relations() if relation.prompt)]
    subjects = {}
    for name in names:
        prompts = load_prompts(lm, name, Used(), MAX_PROMPTS)
        right = removal.answers(prompts.first(200), [[]])[0, :, 2].mean() if len(prompts) >= 96 else 0.0
        if right > max(0.2, 1.5 * prompts.guess):
            subjects[name] = prompts
    return subjects


def some(prompts: PromptSet, numbers: Sequence[int]) -> PromptSet:
    """Return some of the prompts."""
    return replace(
        prompts,
        examples=tuple(prompts.examples[i] for i in numbers),
        candidates=tuple(prompts.candidates[i] for i in numbers),
        cluster=tuple(prompts.cluster[i] for i in numbers),
        missing="",
    )


def outcome_of(
    removal: Removal, heads: Heads, prompts: PromptSet, others: Sequence[PromptSet], draws: int, seed: int
) -> Any:
    """Return one decided test."""
    test = run_test(removal, heads, prompts, others, draws=draws, seed=seed)
    return stack_tests({"": to_arrays(test)}).isel(test=0)


def placebo_halves(removal: Removal, subjects: dict[str, PromptSet], options: argparse.Namespace) -> dict[str, Any]:
    """Deal a task into two halves; heads of their difference must not be selective for one of them."""
    return placebos(removal, list(_halves(removal.lm, subjects, options)), options.draws)


def _halves(
    lm: LM, subjects: dict[str, PromptSet], options: argparse.Namespace
) -> Iterator[tuple[Heads, PromptSet, PromptSet]]:
    large = {name: prompts for name, prompts in subjects.items() if len(prompts) >= 4 * options.prompts // 2}
    per_subject = -(-options.runs // max(1, len(large)))
    for name, prompts in large.items():
        gradients = gate_gradients(lm, prompts.examples[:400]).numpy()
        generator = np.random.default_rng([*name.encode()])
        for _ in range(per_subject):
            order = generator.permutation(len(gradients))
            quarter = min(len(order) // 4, options.prompts)
            test_a, test_b, made = order[:quarter], order[quarter : 2 * quarter], order[2 * quarter :]
            difference = gradients[made[::2]].mean(0) - gradients[made[1::2]].mean(0)
            yield best(difference), some(prompts, test_a), some(prompts, test_b)


def placebo_templates(removal: Removal, subjects: dict[str, PromptSet], options: argparse.Namespace) -> dict[str, Any]:
    """Ask the pairs of a relation in two wordings, as if they were two subjects."""
    cases = []
    for relation in load_relations():
        if relation.name not in subjects:
            continue
        for template in TEMPLATES:
            original = subjects[relation.name]
            other = load_prompts(
                removal.lm, replace(relation, prompt=template), Used(), MAX_PROMPTS, name=relation.name
            )
            n = min(len(original), len(other))
            test, made = list(range(0, n, 2))[: options.prompts], list(range(1, n, 2))
            maps = [
                gate_gradients(removal.lm, [p.examples[i] for i in made]).numpy().mean(0) for p in (original, other)
            ]
            cases.append((best(maps[0] - maps[1]), some(original, test), some(other, test)))
    return placebos(removal, cases, options.draws)


def placebos(removal: Removal, cases: Sequence[tuple[Heads, PromptSet, PromptSet]], draws: int) -> dict[str, Any]:
    """Count the placebos that pass."""
    tests = [outcome_of(removal, heads, own, [other], draws, seed) for seed, (heads, own, other) in enumerate(cases)]
    selective = [test.selective.item() == SUPPORTED for test in tests]
    return {
        "runs": len(tests),
        "needed": sum(test.outcome.item() == SUPPORTED for test in tests),
        "undecided": sum(test.outcome.item() == UNDECIDED for test in tests),
        "selective": sum(selective),
        "share selective": float(np.mean(selective)) if selective else None,
    }


def repeated(removal: Removal, subjects: dict[str, PromptSet], options: argparse.Namespace) -> dict[str, Any]:
    """Test the same heads on two disjoint sets of prompts: do the outcomes agree?"""
    outcomes = []
    for prompts in subjects.values():
        n = min(options.prompts, len(prompts) // 3)
        order = np.random.default_rng(0).permutation(len(prompts))
        gradients = gate_gradients(removal.lm, [prompts.examples[i] for i in order[2 * n :]][:128]).numpy()
        ranking = top_heads(gradients.mean(0), gradients[0].size)
        size = number_of_heads(len(ranking))
        # sets from the best to middling ones, so that not all outcomes are alike
        for first in (0, size, 3 * size, 8 * size):
            heads = ranking[first : first + size]
            halves = (some(prompts, order[:n]), some(prompts, order[n : 2 * n]))
            outcomes.append([outcome_of(removal, heads, half, [], options.draws, 0).outcome.item() for half in halves])
    decided = [pair for pair in outcomes if UNDECIDED not in pair]
    return {
        "pairs": len(outcomes),
        "agree": float(np.mean([a == b for a, b in outcomes])),
        "decided": len(decided),
        "agree where decided": float(np.mean([a == b for a, b in decided])) if decided else None,
        "supported": float(np.mean([outcome == SUPPORTED for pair in outcomes for outcome in pair])),
    }


def coverage(removal: Removal, subjects: dict[str, PromptSet], options: argparse.Namespace) -> dict[str, Any]:
    """How often the interval from some prompts holds the mean over the others.

    The mean over the others has an error too, so the interval is widened to that of a difference.
    """
    held = []
    generator = np.random.default_rng(0)
    for prompts in subjects.values():
        if len(prompts) < 4 * options.prompts:
            continue
        heads = best(gate_gradients(removal.lm, prompts.examples[:64]).numpy().mean(0))
        matched = match(heads, removal.survey.influence, removal.lm.n_kv_heads, generator)
        sets = [heads, *(matched.draw(generator) for _ in range(COVERAGE_DRAWS))]
        change = removal.change(prompts, sets, "zero")[:, :, 0]
        beyond = change[0] - change[1:].mean(0)
        cluster = np.array(prompts.cluster)
        for _ in range(SAMPLES):
            order = generator.permutation(len(beyond))
            drawn, rest = order[: options.prompts], order[options.prompts :]
            low, high = interval(beyond[drawn], cluster[drawn])
            wider = np.sqrt(1 + len(drawn) / len(rest))
            held.append(bool(abs(beyond[rest].mean() - beyond[drawn].mean()) <= wider * (high - low) / 2))
    return {"samples": len(held), "coverage": float(np.mean(held)) if held else None}


def best(score: np.ndarray) -> Heads:
    """Return the top heads of a map, as many as a test takes."""
    return top_heads(score, number_of_heads(score.size))


if __name__ == "__main__":
    main()
