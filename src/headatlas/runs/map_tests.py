"""Tests of the maps of a run: what is tested with which prompts, as a plan like others.

Once the maps are there, the top heads of each are tested for each of its subjects (evidence/heads_test.py). Every test
is a part, so tests run on any number of workers and an interrupted run resumes. Outcomes are corrected for the number
of tests in the atlas.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr

from headatlas.errors import BadArgument
from headatlas.evidence.control import Heads, top_heads
from headatlas.evidence.fresh_prompts import PromptSet, load_prompts, text_prompts
from headatlas.evidence.heads_test import (
    CURVE_SHARES,
    DRAWS,
    MAX_OTHERS,
    OTHER_PROMPTS,
    PROMPTS,
    TEST_VARIABLES,
    Removal,
    number_of_heads,
    run_test,
    stack_tests,
    to_arrays,
)
from headatlas.evidence.replacing import ModelSurvey, survey
from headatlas.methods import get_method
from headatlas.methods.method import Measure, Part, Work
from headatlas.models.lm import LM
from headatlas.progress import FinishedParts, Progress
from headatlas.results.stored_tests import LABELS, TESTS, current_tests, name_of_test
from headatlas.runs.plan import Plan
from headatlas.tasks.built_in import BUILT_IN
from headatlas.tasks.used import Used

SURVEY = "survey"
MIXTURE_PROMPTS = 6  # prompts of each subject in the mixture that heads are surveyed on
TEXTS = 40  # plain texts for generic influence
PRESETS: dict[str, dict[str, int]] = {
    "quick": {"prompts": PROMPTS, "draws": 59, "max_subjects": 3, "max_others": 2, "other_prompts": 8},
    "full": {
        "prompts": 128,
        "draws": DRAWS,
        "max_subjects": 1_000,
        "max_others": MAX_OTHERS,
        "other_prompts": OTHER_PROMPTS,
    },
}
"""By preset of a run: prompts of a test, random sets of heads, subjects of a map that are tested, other subjects that
each is compared with, and prompts of these."""
Subjects = Mapping[str, Any]
"""What each subject is: a task, a relation, questions, or the name of one that is built in."""


@dataclass(frozen=True)
class MapToTest:
    """A map of one subject, before its test."""

    method: str
    measure: Measure
    subject: str
    ranking: Heads
    best: float


@dataclass(frozen=True)
class TestLabels:
    """What identifies a test in a file.

    Args:
        test: its name.
        method, map_measure: the method and the measure of its map.
        test_key: a hash of everything that it depends on: the map, the tested heads and the settings.
        map_key: the key of the map's file.
    """

    test: str
    method: str
    map_measure: str
    test_key: str
    map_key: str


@dataclass(frozen=True)
class PlannedTest:
    """A test, and the arguments of its part."""

    labels: TestLabels
    arguments: Mapping[str, Any]


def plan_tests(
    results: Mapping[str, xr.Dataset], plans: Mapping[str, Plan], preset: str, earlier: xr.Dataset | None = None
) -> Plan | None:
    """Return the tests of all maps that were made from known subjects; None where every map is tested.

    Args:
        results: the results in the folder, by method.
        plans: the plans of this run; a result that was not made by its plan is not tested.
        preset: of the tests.
        earlier: the tests in the folder. Those of maps that are still the same are kept, those of methods that this run
            does not plan too: p is corrected over all of them.
    """
    settings = PRESETS[preset]
    planned = {
        name: plan.work
        for name, plan in plans.items()
        if plan.work.subjects and name in results and results[name].attrs.get("key") == plan.key
    }
    maps = [
        m for name, work in planned.items() for m in _maps(name, results[name], work.subjects, settings["max_subjects"])
    ]
    tests = [_test_of(tested, planned[tested.method], results[tested.method].attrs["key"], settings) for tested in maps]
    stored = _stored_tests(earlier, results)
    new = [test for test in tests if test.labels.test_key not in stored]
    if not new:
        return None
    subjects = {name: what for work in planned.values() for name, what in work.subjects.items()}
    surveyed = f"{SURVEY} of {_hash(subjects)}"
    parts = [
        Part(name=SURVEY, do=survey_part, arguments={"output": surveyed, "subjects": subjects}, outputs=(surveyed,))
    ]
    for test in new:
        key = test.labels.test_key
        arguments = {"name": test.labels.test, "output": key, "surveyed": surveyed, **test.arguments}
        parts.append(Part(name=test.labels.test, do=do_test, arguments=arguments, inputs=(surveyed,), outputs=(key,)))
    stored_labels = [labels for labels, _ in stored.values() if labels.method not in planned]
    order = list(results)
    labels = sorted([*stored_labels, *(test.labels for test in tests)], key=lambda test: order.index(test.method))
    stored_arrays = {test.test_key: stored[test.test_key][1] for test in labels if test.test_key in stored}
    counts = {name: settings[name] for name in ("prompts", "draws")}
    work = Work(
        summary=f"{len(new)} tests, {counts['prompts']} prompts and up to {counts['draws']} draws each",
        combine=combine,
        arguments={"labels": labels, "stored": stored_arrays},
        parts=parts,
        # not in `data`: finished parts, whose arrays are named by keys, stay valid if other maps come in
        result_settings={"tests": _hash(labels), **counts},
    )
    return Plan(TESTS, work, _stamp(next(plans[name].stamp for name in planned)), seconds=20.0 * len(new))


def _stamp(stamp: Mapping[str, Any]) -> dict[str, Any]:
    """Return what identifies the model of the tests, which is loaded even where the maps were read from disk."""
    names = ["model", "values_hash", "n_kv_heads", "headatlas"]
    if stamp["read_from"] == "memory":
        names += ["fingerprint", "config_hash"]
    return {key: stamp[key] for key in names} | {"read_from": "memory"}


def _test_of(tested: MapToTest, work: Work, map_key: str, settings: Mapping[str, int]) -> PlannedTest:
    """Return the test of a map."""
    counts = {name: settings[name] for name in ("prompts", "draws", "other_prompts")}
    others = choose_others(tested.subject, work.subjects, settings["max_others"])
    measure = tested.measure
    # the map's key covers the model, its subjects and the rows it used
    dependencies = [map_key, measure.name, measure.claim, tested.subject, tested.ranking, list(others), counts]
    labels = TestLabels(
        name_of_test(tested.method, measure.name, tested.subject),
        tested.method,
        measure.name,
        _hash(dependencies),
        map_key,
    )
    arguments = {
        "subject": work.subjects[tested.subject],
        "subject_name": tested.subject,
        "others": others,
        "used": work.used,
        "ranking": tested.ranking,
        "claim": measure.claim,
        **counts,
    }
    return PlannedTest(labels, arguments)


def _stored_tests(
    tests: xr.Dataset | None, results: Mapping[str, xr.Dataset]
) -> dict[str, tuple[TestLabels, tuple[np.ndarray, ...]]]:
    """Return the labels and arrays of stored tests by key, without those of maps that are not the same any more."""
    keys = {name: str(result.attrs.get("key", "")) for name, result in results.items()}
    tests = current_tests(tests, keys)
    if tests is None or not set(TEST_VARIABLES) <= set(tests.variables):
        return {}
    rows = zip(*(tests[name].values.tolist() for name in ("test", *LABELS)), strict=True)
    labels = [TestLabels(*row) for row in rows]
    return {test.test_key: (test, to_arrays(tests.isel(test=i))) for i, test in enumerate(labels)}


def _hash(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def _maps(method: str, result: xr.Dataset, subjects: Subjects, max_maps: int) -> Iterator[MapToTest]:
    """Yield the maps of a result that can be tested, at most `max_maps` per measure: those with the highest scores."""
    for measure in get_method(method).measures:
        if not measure.claim or measure.name not in result:
            continue
        names = [str(name) for name in result[measure.over].values if str(name) in subjects]
        maps = [_map(method, measure, name, result[measure.name].sel({measure.over: name})) for name in names]
        ranked = sorted(maps, key=lambda m: -m.best if np.isfinite(m.best) else np.inf)[:max_maps]
        yield from (m for m in maps if m in ranked)


def _map(method: str, measure: Measure, subject: str, values: xr.DataArray) -> MapToTest:
    """Rank the heads with a score above 0."""
    averaged = values.mean([dim for dim in values.dims if dim not in ("layer", "head")])
    score = averaged.transpose("layer", "head").values
    n_heads = int(np.isfinite(score).sum())
    longest = round(max(CURVE_SHARES) * number_of_heads(n_heads))
    above = np.where(score > 0, score, np.nan)
    ranking = top_heads(above, min(longest, int(np.isfinite(above).sum())))
    return MapToTest(method, measure, subject, ranking, float(np.nanmax(score)) if n_heads else np.nan)


def choose_others(subject: str, same_method: Subjects, max_others: int = MAX_OTHERS) -> dict[str, Any]:
    """Choose other subjects to compare with: of the same method first."""
    candidates = {**same_method, **{name: name for name in BUILT_IN if name not in same_method}}
    names = [name for name in candidates if name != subject][:max_others]
    return {name: candidates[name] for name in names}


def count_tests(plans: Mapping[str, Plan], preset: str) -> int:
    """Return the largest number of maps that may be tested, which is known before there are any maps."""
    max_subjects = PRESETS[preset]["max_subjects"]
    claims = {name: sum(bool(m.claim) for m in get_method(name).measures) for name in plans}
    return sum(claims[name] * min(max_subjects, len(plan.work.subjects)) for name, plan in plans.items())


# --- parts


def survey_part(lm: LM, *, output: str, subjects: Subjects, done: FinishedParts, progress: Progress) -> None:
    """Store what tests need to know of a model: generic influence, mean outputs, outputs for some prompts."""
    surveyed = survey_of(lm, subjects)
    done[output] = (surveyed.influence, surveyed.mean.numpy(), surveyed.donors.numpy())


def survey_of(lm: LM, subjects: Subjects, tokens: int | None = None) -> ModelSurvey:
    """Survey a model on prompts of the built-in tasks and on plain texts; without a tokenizer, on the subjects."""
    texts = text_prompts(lm, TEXTS).examples
    # the same for all tests of a model, whatever else is tested
    prompts = [example for name in BUILT_IN for example in _mixture_prompts(lm, name, name)]
    prompts = prompts or [example for name, what in subjects.items() for example in _mixture_prompts(lm, name, what)]
    return survey(lm, texts or prompts, [*prompts, *texts[: len(texts) // 2]], tokens=tokens)


def _mixture_prompts(lm: LM, name: str, what: Any) -> Sequence[Any]:
    try:
        return load_prompts(lm, what, Used(), MIXTURE_PROMPTS, name=name).examples
    except BadArgument:  # a built-in task may need words that a small vocabulary does not have
        return ()


def do_test(
    lm: LM,
    *,
    name: str,
    output: str,
    surveyed: str,
    subject: Any,
    subject_name: str,
    others: Subjects,
    other_prompts: int,
    used: Used | None,
    ranking: Heads,
    claim: str,
    prompts: int,
    draws: int,
    done: FinishedParts,
    progress: Progress,
) -> None:
    """Test the top heads of one map for one subject."""
    influence, mean, donors = done[surveyed]
    model_survey = ModelSurvey(influence, torch.from_numpy(mean), torch.from_numpy(donors))
    n = number_of_heads(int(np.isfinite(influence).sum()))
    try:
        fresh = load_prompts(lm, subject, used, prompts, name=subject_name)
    except BadArgument as e:  # the rows that are left may be too few for few-shot examples
        fresh = PromptSet(subject_name, missing=str(e))
    compared = load_others(lm, others, used, other_prompts)
    test = run_test(
        Removal(lm, model_survey),
        ranking[:n],
        fresh,
        compared,
        claim=claim,
        ranking=ranking,
        draws=draws,
        progress=lambda items, label: progress(items, name),
    )
    done[output] = to_arrays(test)


def load_others(lm: LM, others: Subjects, used: Used | None, n: int = OTHER_PROMPTS) -> list[PromptSet]:
    """Return n prompts of each of the other subjects, and n plain texts."""
    loaded = []
    for name, what in others.items():
        try:
            loaded.append(load_prompts(lm, what, used, n, name=name))
        except BadArgument:  # a built-in task may need words that a small vocabulary does not have
            continue
    return [*loaded, text_prompts(lm, n)]


def combine(
    lm: LM,
    *,
    labels: Sequence[TestLabels],
    stored: Mapping[str, tuple[np.ndarray, ...]],
    done: FinishedParts,
    progress: Progress,
) -> xr.Dataset:
    """Return all tests, with outcomes corrected for their number. stored: arrays of earlier tests, by key."""
    tests = stack_tests({t.test: stored[t.test_key] if t.test_key in stored else done[t.test_key] for t in labels})
    return tests.assign_coords({name: ("test", [getattr(test, name) for test in labels]) for name in LABELS})
