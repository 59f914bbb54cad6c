"""Select sets of heads by name from the maps of an atlas: 'math by dissociate', 'lowest 10% by ablate'."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from headatlas.edits.arguments import HeadSet, parse_set
from headatlas.errors import BadArgument, CannotDo, did_you_mean
from headatlas.evidence.control import top_heads
from headatlas.methods import measures_of, methods
from headatlas.methods.method import Measure
from headatlas.results.atlas import Atlas
from headatlas.results.charts import stack_maps
from headatlas.results.outcomes import Outcome, outcomes

log = logging.getLogger(__name__)
# Letters that two words must share to mean the same measure, such as 'interfering' and 'interference'.
_STEM_LENGTH = 6


@dataclass(frozen=True)
class SelectedHeads:
    """The heads of a named set.

    method: the method of the map. subjects: those of the map. why: sentences about the map and its evidence.
    """

    text: str
    method: str
    heads: list[tuple[int, int]]
    why: str
    subjects: list[str]


def select_heads(atlas: Atlas, sets: str | Sequence[str]) -> list[SelectedHeads]:
    """Select the heads of each named set."""
    return [_select(atlas, parse_set(text)) for text in ([sets] if isinstance(sets, str) else sets)]


def _select(atlas: Atlas, head_set: HeadSet) -> SelectedHeads:
    result = atlas[head_set.method]
    charts = stack_maps({head_set.method: result})
    if not charts.sizes["chart"]:
        raise BadArgument(f"set is {head_set.text!r}, but {head_set.method} has no map of heads to choose from")
    measure, subjects, named = _resolve(head_set, charts)
    outcome = outcomes(result).get((measure.name, subjects[0])) if named else None
    maps = charts.isel(chart=np.flatnonzero((charts.measure == measure.name) & np.isin(charts.subject, subjects)))
    score = maps.score.isel(chart=0).values if named else maps.score.mean("chart").values
    if head_set.groups:
        groups = atlas.info["model"].get("n_kv_heads") or result.attrs.get("n_kv_heads")
        heads = _best_groups(head_set, score, groups)
        how = f"{head_set.end} {head_set.count:g} of the groups of every layer by {measure.name}"
    elif head_set.end:
        heads = _heads_by_score(head_set, score)
        how = f"{head_set.end} {head_set.count:g}{'%' * head_set.percent} by {measure.name}"
    elif not named:
        raise BadArgument(f"set is {head_set.text!r}, which names no subject: give one of {', '.join(subjects)}")
    else:
        heads, how = _selected_heads(head_set, result, maps.isel(chart=0), measure, score, outcome)
    subject = subjects[0] if named else f"{', '.join(subjects)} (the mean)"
    if not heads:
        reason = f" ({outcome.text})" if outcome else ""
        raise CannotDo(f"set {head_set.text!r} is empty: {head_set.method} has no such heads of {subject}{reason}")
    why = f"the map of {subject} by {head_set.method}: {how}"
    why += _evidence(head_set.method, subject, outcome)
    return SelectedHeads(head_set.text, head_set.method, heads, why, subjects)


# --- measure and subjects of a set


def _resolve(head_set: HeadSet, charts: xr.Dataset) -> tuple[Measure, list[str], bool]:
    """Return the measure and the subjects that words such as 'interfering, syntax' name, and whether they name one."""
    measures = {m.name: m for m in measures_of(head_set.method) if m.name in charts.measure.values}
    measure: Measure | None = None
    subject: str | None = None
    subjects = list(dict.fromkeys(charts.subject.values.tolist()))
    for word in head_set.words:
        if subject is None and (match := _subject(word, subjects)):
            subject = match
        elif measure is None and (name := _measure_name(word, measures)):
            measure = measures[name]
        else:
            choices = f"a subject ({', '.join(subjects)}) nor a measure ({', '.join(measures)})"
            raise BadArgument(
                f"set is {head_set.text!r}: {word!r} is neither {choices} of {head_set.method}."
                f"{did_you_mean(word, [*subjects, *measures])}"
            )
    measure = measure or next(iter(measures.values()))
    if subject is None and len(subjects) > 1:
        return measure, subjects, False
    return measure, [subject or subjects[0]], True


def _subject(word: str, subjects: Sequence[str]) -> str | None:
    """Return the subject of this name, or the only one that begins with it."""
    same = [s for s in subjects if s.lower() == word.lower()]
    if same:
        return same[0]
    matches = [s for s in subjects if s.lower().startswith(word.lower())]
    return matches[0] if len(matches) == 1 else None


def _measure_name(word: str, names: Sequence[str] | dict[str, Measure]) -> str | None:
    """Return the measure of this name, or the only one with the same stem: 'interfering' means interference."""
    if word.lower() in names:
        return word.lower()
    matches = [n for n in names if word.lower()[:_STEM_LENGTH] == n[:_STEM_LENGTH]]
    return matches[0] if len(matches) == 1 else None


# --- heads of a set


def _heads_by_score(head_set: HeadSet, score: np.ndarray) -> list[tuple[int, int]]:
    """Return the heads with the highest scores above 0, or with the lowest scores."""
    n_heads = int(np.isfinite(score).sum())
    n = max(1, round(n_heads * head_set.count / 100)) if head_set.percent else int(head_set.count)
    if n > n_heads:
        raise BadArgument(f"set is {head_set.text!r}, but there are {n_heads} heads")
    if head_set.end == "lowest":
        return top_heads(-score, n)
    return top_heads(score, min(n, int((np.nan_to_num(score) > 0).sum())))


def _best_groups(head_set: HeadSet, score: np.ndarray, groups: int | None) -> list[tuple[int, int]]:
    """Return the heads of the key-value groups with the highest, or lowest, summed scores in every layer."""
    if groups is None or head_set.count > groups:
        number = "the number of groups is not known" if groups is None else f"a layer has {groups}"
        raise BadArgument(f"set is {head_set.text!r}: {head_set.count:g} groups of every layer, but {number}")
    size = score.shape[1] // groups
    sums = score.reshape(len(score), groups, size).sum(2) * (-1 if head_set.end == "lowest" else 1)
    layers = [layer for layer, row in enumerate(sums) if np.isfinite(row).all()]
    groups_of_layers = [(layer, int(group)) for layer in layers for group in _highest(sums[layer], head_set.count)]
    return [(layer, group * size + i) for layer, group in groups_of_layers for i in range(size)]


def _highest(values: np.ndarray, n: float) -> np.ndarray:
    return np.argsort(-values, kind="stable")[: int(n)]


def _selected_heads(
    head_set: HeadSet,
    result: xr.Dataset,
    chart: xr.Dataset,
    measure: Measure,
    score: np.ndarray,
    outcome: Outcome | None,
) -> tuple[list[tuple[int, int]], str]:
    """Return the heads that a test supports, else those that the map itself marks, best first; and which they are."""
    if outcome is not None and outcome.supported:
        return top_heads(np.where(outcome.heads, score, np.nan), int(outcome.heads.sum())), "its tested heads"
    first = measures_of(head_set.method)[0].name
    subject = {measure.over: chart.subject.item()}
    if measure.name == first and "selected" in result and set(result.selected.dims) == {measure.over, "layer", "head"}:
        mask = result.selected.sel(subject).transpose("layer", "head").values.astype(bool)
        how = "the heads it selected"
    elif measure.chance in result or measure.above in result:
        mask = ~chart.at_chance.values & (np.nan_to_num(score) > 0)
        how = f"{measure.name} above chance"
        if "threshold" in result.attrs:
            mask &= score >= result.attrs["threshold"]
            how += f" and at least {result.attrs['threshold']:g}"
    elif measure.at_least is not None:
        mask = np.nan_to_num(score) >= measure.at_least
        how = f"{measure.name} of at least {measure.at_least:g}"
    else:
        what = f"{head_set.words[0]} by {head_set.method}"
        test = f" ({outcome.text})" if outcome else ""
        raise BadArgument(
            f"set is {head_set.text!r}, but {head_set.method} ranks heads and marks none{test}: give a number,"
            f" as in 'top 10 {what}' or 'lowest 10% {what}'"
        )
    return top_heads(np.where(mask, score, np.nan), int(mask.sum())), how


# --- evidence for a set


def _evidence(method: str, subject: str, outcome: Outcome | None) -> str:
    """Describe what the method shows, and what the test of its top heads found."""
    declared = methods().get(method)
    parts = []
    if declared and declared.finds:
        parts.append(f" The method finds {declared.finds}, not {declared.misses}.")
    if outcome is not None:
        parts.append(f" In the atlas, the test of its top heads: {outcome.text}")
        if np.isfinite(outcome.effect):
            parts.append(f"; log P per token changed by {outcome.effect:+.2f} (random heads {outcome.random:+.2f})")
        parts.append(".")
        if not outcome.supported:
            log.warning("%s by %s: %s", subject, method, outcome.text)
    return f".{''.join(parts)}"
