"""Tests of made-up maps, as a run stores them: with the four outcomes in turn."""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from headatlas.evidence.heads_test import TEST_VARIABLES, number_of_heads, stack_tests
from headatlas.results.stored_tests import name_of_test, with_outcomes

MEASURES = {
    "probe": "importance",
    "maps": "score",
    "gate": "facilitation",
    "ablate": "contribution",
    "dissociate": "importance",
}
OUTCOMES = ("supported", "not supported", "undecided", "no ability")
DRAWS, PROMPTS = 199, 48
ANSWERS = {  # by outcome: change of log P with each replacement, p, detectable change, accuracy and its lower end
    "supported": ([-1.2, -1.0, -0.8], 0.005, 0.3, (0.6, 0.5)),
    "not supported": ([-0.1, -0.1, 0.05], 0.4, 0.3, (0.6, 0.5)),
    "undecided": ([-0.2, -0.1, -0.1], 0.3, 0.7, (0.6, 0.5)),
    "no ability": ([np.nan] * 3, np.nan, np.nan, (0.13, 0.05)),
}
TEXTS = {"claim": "needed", "removal": "from the last token on", "missing": "", "matched": "same layers"}


def make_tests(results: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """The tests of all maps of these results: of each method, outcomes in turn."""
    made = {}
    keys = []
    for method, result in results.items():
        measure = MEASURES.get(method)
        if measure not in result:
            continue
        score = result[measure].transpose(..., "layer", "head")
        score = score.mean(list(score.dims[1:-2]))
        subjects = [str(name) for name in score[score.dims[0]].values]
        for i, subject in enumerate(subjects):
            others = [*[name for name in subjects if name != subject][:4], "plain text"]
            made[name_of_test(method, measure, subject)] = one_test(
                subject, score[i].values, OUTCOMES[i % 4], others, seed=i
            )
            keys.append((method, measure, str(result.attrs.get("key", ""))))
    method, measure, key = zip(*keys, strict=True)
    coords = {"method": list(method), "map_measure": list(measure), "map_key": list(key)}
    return stack_tests(made).assign_coords({name: ("test", values) for name, values in coords.items()})


def one_test(subject: str, score: np.ndarray, outcome: str, others: list[str], seed: int) -> tuple[np.ndarray, ...]:
    """The arrays of a test with this outcome."""
    rng = np.random.default_rng(seed)
    effect, p, detectable, (accuracy, accuracy_low) = ANSWERS[outcome]
    done = outcome != "no ability"
    n = min(number_of_heads(int(np.isfinite(score).sum())), int(np.isfinite(score).sum()))
    selected = np.zeros(score.shape, bool)
    best = np.argsort(np.where(np.isfinite(score), -score, np.inf), axis=None, kind="stable")[:n]
    selected.flat[best] = True
    sizes = {"replacement": 3, "measure": 3, "draw": DRAWS, "example": PROMPTS, "other": len(others), "share": 5}
    shapes = {name: [sizes.get(dim, 0) for dim in dims] for name, (dims, *_) in TEST_VARIABLES.items()}
    values = {name: np.full(shape, np.nan) for name, shape in shapes.items() if name not in TEXTS}
    values |= {name: np.array(text) for name, text in TEXTS.items()}
    numbers = {"n_heads": n, "prompts": PROMPTS, "guess": 0.27, "accuracy": accuracy, "accuracy_low": accuracy_low}
    numbers |= {"detectable": detectable, "matched_sets": 1e6}
    values |= {name: np.array(float(number)) for name, number in numbers.items()}
    values |= {"subject": np.array(subject), "other_subject": np.array(others), "selected": selected}
    values |= {"cluster": np.arange(float(PROMPTS)), "significant": np.full(3, outcome == "supported")}
    if done:
        change = np.array(effect)[:, None] * [1, 0.5, 0.2]
        random = -0.1 + 0.05 * rng.standard_normal((3, DRAWS, 3))
        beyond = change - random.mean(1)
        values |= {"effect": change, "random_effect": random, "beyond_random": beyond, "n_drawn": np.full(3, DRAWS)}
        values |= {"low": beyond - 0.3, "high": beyond + 0.3, "p_measure": np.full((3, 3), p)}
        values |= {"other_effect": np.full((len(others), 3), -0.05), "other_size": np.full(len(others), 0.06)}
        numbers = {"selectivity": -effect[0] - 0.06, "p_selectivity": p}
        numbers |= {"selectivity_low": -effect[0] - 0.3, "selectivity_high": -effect[0] + 0.2}
        values |= {name: np.array(number) for name, number in numbers.items()}
        counts = np.array([max(1, round(n * share)) for share in (0.25, 0.5, 1, 2, 4)], float)
        values |= {"curve_heads": counts, "curve_effect": np.array(effect[0]) * counts[:, None] / n * np.ones(3)}
    return tuple(np.asarray(values[name]) for name in TEST_VARIABLES)


def with_tests(results: Mapping[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """These results with the outcomes of their tests."""
    return with_outcomes(results, make_tests(results))
