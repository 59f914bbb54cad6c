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
from headatlas.results.stored_tests import TESTS, name_of_test
from headatlas.runs.plan import Plan
from headatlas.tasks.built_in import BUILT_IN
from headatlas.tasks.used import Used

SURVEY = "survey"
MIXTURE_PROMPTS = 6  # prompts of each subject in the mixture that heads are surveyed on
TEXTS = 40  # plain texts for generic influence
MAX_MIXTURE = 12  # subjects in the mixture
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


def plan_tests(results: Mapping[str, xr.Dataset], plans: Mapping[str, Plan], preset: str) -> Plan | None:
    """Return the tests of all maps that were made from known subjects; None where there is nothing to test."""
    settings = PRESETS[preset]
    subjects = {name: plan.work.subjects for name, plan in plans.items() if name in results and plan.work.subjects}
    used = {name: plans[name].work.used for name in subjects}
    maps = [m for name in subjects for m in _maps(name, results[name], subjects[name], settings["max_subjects"])]
    if not maps:
        return None
    every = {name: what for of_method in subjects.values() for name, what in of_method.items()}
    mixture = dict(list(({name: name for name in BUILT_IN} | every).items())[:MAX_MIXTURE])
    parts = [Part(name=SURVEY, do=survey_part, arguments={"mixture": mixture})]
    for tested in maps:
        arguments = {
            "name": name_of_test(tested.method, tested.measure.name, tested.subject),
            "subject": subjects[tested.method][tested.subject],
            "subject_name": tested.subject,
            "others": choose_others(tested.subject, subjects[tested.method], every, settings["max_others"]),
            "other_prompts": settings["other_prompts"],
            "used": used[tested.method],
            "ranking": tested.ranking,
            "claim": tested.measure.claim,
            "prompts": settings["prompts"],
            "draws": settings["draws"],
        }
        parts.append(Part(name=arguments["name"], do=do_test, arguments=arguments, inputs=(SURVEY,)))
    names = [part.name for part in parts[1:]]
    what = [(p.name, p.arguments["ranking"], repr(p.arguments["subject"]), p.arguments["used"]) for p in parts[1:]]
    work = Work(
        summary=f"{len(names)} tests, {settings['prompts']} prompts and up to {settings['draws']} draws each",
        combine=combine,
        arguments={"names": names, "map_keys": {name: str(results[name].attrs.get("key", "")) for name in subjects}},
        parts=parts,
        data=hashlib.sha256(repr(what).encode()).hexdigest()[:16],
        settings={"prompts": settings["prompts"], "draws": settings["draws"]},
    )
    stamp = next(plans[name].stamp for name in subjects)
    kept = ("model", "fingerprint", "values_hash", "config_hash", "n_kv_heads", "headatlas")
    stamped = {key: stamp[key] for key in kept if key in stamp} | {"read_from": "memory", "data": work.data}
    return Plan(TESTS, work, stamped | dict(work.settings), seconds=20.0 * len(names))


def _maps(method: str, result: xr.Dataset, subjects: Subjects, most: int) -> Iterator[MapToTest]:
    """Yield the maps of a result that can be tested, at most so many of a measure: those with the highest scores."""
    for measure in get_method(method).measures:
        if not measure.claim or measure.name not in result:
            continue
        names = [str(name) for name in result[measure.over].values if str(name) in subjects]
        maps = [_map(method, measure, name, result[measure.name].sel({measure.over: name})) for name in names]
        ranked = sorted(maps, key=lambda m: -m.best if np.isfinite(m.best) else np.inf)[:most]
        yield from (m for m in maps if m in ranked and m.ranking)


def _map(method: str, measure: Measure, subject: str, values: xr.DataArray) -> MapToTest:
    """Rank the heads with a score above 0."""
    averaged = values.mean([dim for dim in values.dims if dim not in ("layer", "head")])
    score = averaged.transpose("layer", "head").values
    n_heads = int(np.isfinite(score).sum())
    longest = round(max(CURVE_SHARES) * number_of_heads(n_heads))
    above = np.where(score > 0, score, np.nan)
    ranking = top_heads(above, min(longest, int(np.isfinite(above).sum())))
    return MapToTest(method, measure, subject, ranking, float(np.nanmax(score)) if n_heads else np.nan)


def choose_others(subject: str, same_method: Subjects, every: Subjects, max_others: int = MAX_OTHERS) -> dict[str, Any]:
    """Choose other subjects to compare with: of the same method first."""
    candidates = {**same_method, **every, **{name: name for name in BUILT_IN}}
    names = [name for name in candidates if name != subject][:max_others]
    return {name: candidates[name] for name in names}


# --- parts


def survey_part(lm: LM, *, mixture: Subjects, done: FinishedParts, progress: Progress) -> None:
    """Store what tests need to know of a model: generic influence, mean outputs, outputs for some prompts."""
    surveyed = survey_of(lm, mixture)
    done[SURVEY] = (surveyed.influence, surveyed.mean.numpy(), surveyed.donors.numpy())


def survey_of(lm: LM, mixture: Subjects, tokens: int | None = None) -> ModelSurvey:
    """Survey a model on prompts of these subjects and on plain texts; without a tokenizer, on the prompts alone."""
    texts = text_prompts(lm, TEXTS).examples
    prompts = [example for name, what in mixture.items() for example in _mixture_prompts(lm, name, what)]
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
    influence, mean, donors = done[SURVEY]
    surveyed = ModelSurvey(influence, torch.from_numpy(mean), torch.from_numpy(donors))
    n = number_of_heads(int(np.isfinite(influence).sum()))
    fresh = load_prompts(lm, subject, used, prompts, name=subject_name)
    compared = load_others(lm, others, used, other_prompts)
    test = run_test(
        Removal(lm, surveyed),
        ranking[:n],
        fresh,
        compared,
        claim=claim,
        ranking=ranking,
        draws=draws,
        progress=progress,
    )
    done[name] = to_arrays(test)


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
    lm: LM, *, names: Sequence[str], map_keys: Mapping[str, str], done: FinishedParts, progress: Progress
) -> xr.Dataset:
    """Return all tests, with outcomes. map_keys: for each method, the key of the result whose maps are tested."""
    tests = stack_tests({name: done[name] for name in names})
    method, measure, _ = zip(*(name.split(": ", 2) for name in names), strict=True)
    coords = {"method": list(method), "map_measure": list(measure), "map_key": [map_keys[name] for name in method]}
    return tests.assign_coords({name: ("test", values) for name, values in coords.items()})
