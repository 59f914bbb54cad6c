"""Test heads that the user lists, or the top heads of a map in an atlas, for one task."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from headatlas.edits.rows import UsedRows, rows_of_atlas
from headatlas.errors import BadArgument, check_choice, check_count
from headatlas.evidence.control import Heads, top_heads
from headatlas.evidence.decide import CLAIMS
from headatlas.evidence.fresh_prompts import load_prompts
from headatlas.evidence.heads_test import (
    CURVE_SHARES,
    DRAWS,
    PROMPTS,
    Removal,
    number_of_heads,
    run_test,
    stack_tests,
    to_arrays,
)
from headatlas.evidence.transfer import choose_heads
from headatlas.methods import measures_of
from headatlas.models.lm import LM
from headatlas.models.loading import load
from headatlas.progress import Progress, silent
from headatlas.results.atlas import Atlas, open_atlas
from headatlas.results.charts import stack_maps
from headatlas.runs.map_tests import choose_others, load_others, survey_of
from headatlas.tasks.built_in import BUILT_IN, FUNCTIONS, relation_names
from headatlas.tasks.labelled import named_task
from headatlas.tasks.prompts import list_tasks
from headatlas.tasks.questions import Question


def test(
    model: LM | str | Path,
    heads: Any,
    task: Any,
    *,
    atlas: Atlas | str | Path | None = None,
    claim: str = "needed",
    others: Any = (),
    prompts: int = PROMPTS,
    draws: int = DRAWS,
    top: int | None = None,
    everywhere: bool = False,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "auto",
    batch_tokens: int | None = None,
    progress: Progress = silent,
) -> xr.Dataset:
    """Test whether a task needs some heads, by removing them (docs/concepts/evidence.md).

    Args:
        model: what `load` returned, or what it takes.
        heads: heads such as ['L12.H5', (3, 1)], a bool mask [layer, head], or a map: a labelled array (layer, head), of
            which the best heads are taken.
        task: a built-in task, relation or cognitive function, a file, or examples.
        atlas: an atlas, or its folder, that the heads were chosen from. Rows that its maps used are not tested.
        claim: 'needed', or 'harmful' if the task should gain from their removal.
        others: other tasks, for selectivity (default: the built-in ones).
        prompts: number of prompts.
        draws: maximum number of random sets of heads.
        top: number of top heads of a map (default: 3 % of all heads, at least 4).
        everywhere: remove heads at the prompt's tokens too, not from its last token on.
        seed: random seed for prompts and draws.
        device: where to load the model.
        dtype: in which precision to load it.
        batch_tokens: maximum number of tokens in a forward pass.
        progress: shows how far the test is.

    Returns:
        One test: outcome and reason; effect(replacement, measure), with low and high, its 95 % interval over prompts
        beyond random heads; p; accuracy; detectable; selectivity; example_effect(example, replacement, measure); and
        more. Every variable describes itself in its attributes.

    Example:
        >>> ha.test("smollm2", ["L23.H4", "L23.H1"], "country_to_capital").outcome.item()
    """
    settings = _Settings(claim, others, prompts, draws, everywhere, seed, batch_tokens, progress)
    lm = model if isinstance(model, LM) else load(model, device, dtype)
    used = UsedRows() if atlas is None else _rows_used_by(lm, _open_atlas(atlas))
    ranking: Heads = []
    if isinstance(heads, xr.DataArray) and heads.dtype != bool:
        top = number_of_heads(lm.n_layers * lm.n_heads) if top is None else top
        n_finite = int(np.isfinite(heads).sum())
        ranking = choose_heads(lm, heads, min(n_finite, round(top * max(CURVE_SHARES))))
    return _run(lm, choose_heads(lm, heads, top), ranking, task, used, {}, settings)


test.__test__ = False  # type: ignore[attr-defined]  # not a test of pytest's


@dataclass(frozen=True)
class _Settings:
    """Checked settings of a test: see `test`."""

    claim: str
    others: Any
    prompts: int
    draws: int
    everywhere: bool
    seed: int
    batch_tokens: int | None
    progress: Progress

    def __post_init__(self) -> None:
        check_choice("claim", self.claim, list(CLAIMS))
        check_count("prompts", self.prompts, 1)
        check_count("draws", self.draws, 1)
        check_count("seed", self.seed, 0, 2**63 - 1)


def _run(
    lm: LM,
    heads: Heads,
    ranking: Heads,
    task: Any,
    used: UsedRows,
    others: Mapping[str, Any],
    settings: _Settings,
) -> xr.Dataset:
    """Run the test. others: subjects to compare with if the user names none (default: the built-in tasks)."""
    task = _with_shots(lm, task, used)
    rows = None if used.unknown else used.all
    fresh = load_prompts(lm, task, rows, settings.prompts, seed=settings.seed)
    if settings.others:
        others = dict(_name_tasks(settings.others))
    compared = {name: what for name, what in (others or _BUILT_IN).items() if name != fresh.subject}
    surveyed = survey_of(lm, {fresh.subject: task} | compared, settings.batch_tokens)
    removal = Removal(lm, surveyed, settings.everywhere, settings.batch_tokens)
    result = run_test(
        removal,
        heads,
        fresh,
        load_others(lm, compared, rows),
        claim=settings.claim,
        ranking=ranking,
        draws=settings.draws,
        seed=settings.seed,
        progress=settings.progress,
    )
    tested = stack_tests({fresh.subject: to_arrays(result)}).isel(test=0, drop=True)
    attrs = {
        "model": lm.name,
        "fingerprint": lm.fingerprint(),
        "prompts": settings.prompts,
        "draws": settings.draws,
        "seed": settings.seed,
    }
    return tested.assign_attrs(attrs)


_BUILT_IN = {name: name for name in BUILT_IN}


def _with_shots(lm: LM, task: Any, used: UsedRows) -> Any:
    """Return a task with as many few-shot examples as the map had; questions as they are."""
    if (isinstance(task, str) and task in FUNCTIONS) or (
        isinstance(task, tuple) and task and isinstance(task[0], Question)
    ):
        return task
    listed = list_tasks("task", task)
    if len(listed) != 1:
        raise BadArgument(f"task has {len(listed)} tasks, expected one: {', '.join(str(t) for _, t in listed)}")
    loaded = named_task(lm, *listed[0])
    return replace(loaded, shots=used.shots(loaded))


def _name_tasks(tasks: Any) -> Iterator[tuple[str, Any]]:
    """Yield tasks with their names; a built-in task may be given as its name."""
    for i, (name, task) in enumerate(list_tasks("others", tasks)):
        own_name = str(task) if isinstance(task, str | Path) else getattr(task, "name", f"other {i + 1}")
        yield name or own_name, task


# --- a map of an atlas


def map_test(
    model: LM | str | Path,
    atlas: Atlas | str | Path,
    method: str,
    subject: str,
    task: Any = None,
    *,
    measure: str | None = None,
    claim: str | None = None,
    others: Any = (),
    prompts: int = PROMPTS,
    draws: int = DRAWS,
    top: int | None = None,
    everywhere: bool = False,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "auto",
    batch_tokens: int | None = None,
    progress: Progress = silent,
) -> xr.Dataset:
    """Test the top heads of a map in an atlas; the arguments are those of `test`.

    Args:
        method, subject, measure: which map (default measure: the one with a claim, or the method's first).
        task: what to test it on (default: the built-in task, relation or function of the subject's name).
        claim: 'needed' or 'harmful' (default: the claim of the measure, or 'needed').
    """
    head_map = find_map(_open_atlas(atlas), method, subject, measure)
    settings = _Settings(claim or head_map.claim, others, prompts, draws, everywhere, seed, batch_tokens, progress)
    task = _default_task(subject) if task is None else task
    lm = model if isinstance(model, LM) else load(model, device, dtype)
    used = _rows_used_by(lm, _open_atlas(atlas), method, subject)
    above = np.where(head_map.score > 0, head_map.score, np.nan)
    n_above = int(np.isfinite(above).sum())
    if top is None:
        top = min(number_of_heads(int(np.isfinite(head_map.score).sum())), n_above)
    else:
        check_count("top", top, 1, n_above, f"{n_above} heads of this map have a score above 0")
    ranking = top_heads(above, min(n_above, round(top * max(CURVE_SHARES))))
    same_map = {name: name for name in head_map.subjects if _has_prompts(name)}
    return _run(lm, ranking[:top], ranking, task, used, choose_others(subject, same_map), settings)


@dataclass(frozen=True)
class AtlasMap:
    """A map in an atlas: its scores [layer, head], what its measure claims, and the subjects that the measure has."""

    score: np.ndarray
    claim: str
    subjects: tuple[str, ...]


def find_map(atlas: Atlas, method: str, subject: str, measure: str | None = None) -> AtlasMap:
    """Find a map by the names of its method, subject and measure."""
    result = atlas[method.replace("-", "_")]
    charts = stack_maps({method.replace("-", "_"): result})
    measures = {m.name: m for m in measures_of(method.replace("-", "_")) if m.name in charts.measure.values}
    if not measures:
        raise BadArgument(f"method is {method!r}, which has no map of heads in this atlas")
    if measure is None:
        measure = next((name for name, m in measures.items() if m.claim), next(iter(measures)))
    check_choice("measure", measure, list(measures))
    of_measure = charts.isel(chart=np.flatnonzero(charts.measure == measure))
    subjects = tuple(map(str, of_measure.subject.values))
    check_choice("subject", subject, subjects)
    score = of_measure.isel(chart=subjects.index(subject)).score.transpose("layer", "head").values
    return AtlasMap(score, measures[measure].claim or "needed", subjects)


def _open_atlas(atlas: Atlas | str | Path) -> Atlas:
    return atlas if isinstance(atlas, Atlas) else open_atlas(atlas, "atlas")


def _rows_used_by(lm: LM, atlas: Atlas, method: str = "", subject: str = "") -> UsedRows:
    """Return the rows that the maps of an atlas of this model used."""
    atlas.check_model(lm.weights, lm.name)
    return rows_of_atlas(atlas, [method.replace("-", "_")] if method else (), [subject] if subject else ())


def _has_prompts(subject: str) -> bool:
    return subject in BUILT_IN or subject in FUNCTIONS or subject in relation_names()


def _default_task(subject: str) -> str:
    """Return the task of a subject's name."""
    if not _has_prompts(subject):
        raise BadArgument(
            f"task is missing: subject {subject!r} is no built-in task, relation or function; give a file with rows"
            " that the map was not made from (--data)"
        )
    return subject
