"""Sets of heads by name, from the maps of an atlas: 'math by dissociate', 'lowest 10% by ablate'."""

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
from headatlas.results import tables
from headatlas.results.atlas import Atlas
from headatlas.results.charts import stack_maps
from headatlas.results.curves import change_at, removed_counts, stack_removal_curves

log = logging.getLogger(__name__)
_STEM = 6  # letters that 'interfering' and 'interference' must share


@dataclass(frozen=True)
class Chosen:
    """Heads of a set. method: whose map. why: by which evidence, in a sentence. subjects: what the map is of."""

    text: str
    method: str
    heads: list[tuple[int, int]]
    why: str
    subjects: list[str]


def choose(atlas: Atlas, sets: str | Sequence[str]) -> list[Chosen]:
    """The heads that each set names."""
    return [_choose(atlas, parse_set(text)) for text in ([sets] if isinstance(sets, str) else sets)]


def _choose(atlas: Atlas, of: HeadSet) -> Chosen:
    result = atlas[of.method]
    charts = stack_maps({of.method: result})
    if not charts.sizes["chart"]:
        raise BadArgument(f"set is {of.text!r}, but {of.method} has no map of heads to choose from")
    measure, subjects, named = _resolve(of, charts)
    one = charts.isel(chart=np.flatnonzero((charts.measure == measure.name) & np.isin(charts.subject, subjects)))
    score = one.score.mean("chart").values if not named else one.score.isel(chart=0).values
    if of.groups:
        groups = atlas.info["model"].get("n_kv_heads") or result.attrs.get("n_kv_heads")
        heads, how = (
            _grouped(of, score, groups),
            f"{of.end} {of.count:g} of the groups of every layer by {measure.name}",
        )
    elif of.end:
        heads, how = _ranked(of, score), f"{of.end} {of.count:g}{'%' * of.percent} by {measure.name}"
    elif not named:
        raise BadArgument(f"set is {of.text!r}: say of what, one of {', '.join(subjects)}")
    else:
        heads, how = _marked(of, result, one.isel(chart=0), measure, score)
    subject = subjects[0] if named else f"{', '.join(subjects)} (the mean)"
    if not heads:
        raise CannotDo(f"set {of.text!r} is empty: {of.method} has no such heads of {subject}{_verdict(result, one)}")
    why = f"the map of {subject} by {of.method}: {how}"
    why += _evidence(of.method, measure, result, subjects[0] if named else None)
    return Chosen(of.text, of.method, heads, why, subjects)


# --- what a set is of


def _resolve(of: HeadSet, charts: xr.Dataset) -> tuple[Measure, list[str], bool]:
    """The measure, the subjects, and whether one was named: 'math', or 'interfering' and 'syntax'."""
    measures = {m.name: m for m in measures_of(of.method) if m.name in charts.measure.values}
    measure: Measure | None = None
    subject: str | None = None
    every = list(dict.fromkeys(charts.subject.values.tolist()))
    for word in of.words:
        if subject is None and (match := _subject(word, every)):
            subject = match
        elif measure is None and (name := _like(word, measures)):
            measure = measures[name]
        else:
            known = f"{', '.join(every)}, nor one of its measures, {', '.join(measures)}"
            raise BadArgument(
                f"set is {of.text!r}: {word!r} is neither one of what {of.method} maps, {known}."
                f"{did_you_mean(word, [*every, *measures])}"
            )
    measure = measure or next(iter(measures.values()))
    if subject is None and len(every) > 1:
        return measure, every, False
    return measure, [subject or every[0]], True


def _subject(word: str, every: Sequence[str]) -> str | None:
    """The subject of this name, or the only one that begins with it."""
    same = [s for s in every if s.lower() == word.lower()]
    begins = [s for s in every if s.lower().startswith(word.lower())]
    return same[0] if same else begins[0] if len(begins) == 1 else None


def _like(word: str, names: Sequence[str] | dict[str, Measure]) -> str | None:
    """The measure of this name, or the only one with the same stem: 'interfering' is interference."""
    if word.lower() in names:
        return word.lower()
    alike = [n for n in names if word.lower()[:_STEM] == n[:_STEM]]
    return alike[0] if len(alike) == 1 else None


# --- which heads


def _ranked(of: HeadSet, score: np.ndarray) -> list[tuple[int, int]]:
    """So many of the highest, none of which is 0 or less, or of the lowest."""
    measured = int(np.isfinite(score).sum())
    n = max(1, round(measured * of.count / 100)) if of.percent else int(of.count)
    if n > measured:
        raise BadArgument(f"set is {of.text!r}, but there are {measured} heads")
    if of.end == "lowest":
        return top_heads(-score, n)
    return top_heads(score, min(n, int((np.nan_to_num(score) > 0).sum())))


def _grouped(of: HeadSet, score: np.ndarray, groups: int | None) -> list[tuple[int, int]]:
    """Heads of so many key-value groups of every layer with heads, those with the highest or the lowest sums."""
    if groups is None or of.count > groups:
        known = "how many there are is not known" if groups is None else f"a layer has {groups}"
        raise BadArgument(f"set is {of.text!r}: {of.count:g} groups of every layer, but {known}")
    size = score.shape[1] // groups
    sums = score.reshape(len(score), groups, size).sum(2) * (-1 if of.end == "lowest" else 1)
    chosen = [(layer, int(g)) for layer, row in enumerate(sums) if np.isfinite(row).all() for g in _best(row, of.count)]
    return [(layer, group * size + i) for layer, group in chosen for i in range(size)]


def _best(values: np.ndarray, n: float) -> np.ndarray:
    return np.argsort(-values, kind="stable")[: int(n)]


def _marked(
    of: HeadSet, result: xr.Dataset, one: xr.Dataset, measure: Measure, score: np.ndarray
) -> tuple[list[tuple[int, int]], str]:
    """The heads that the map itself marks as the subject's, best first, and how it does."""
    first = measures_of(of.method)[0].name
    at = {measure.over: one.subject.item()}
    if measure.name == first and "selected" in result and set(result.selected.dims) == {measure.over, "layer", "head"}:
        mask, how = result.selected.sel(at).transpose("layer", "head").values.astype(bool), "the heads it selected"
    elif measure.chance in result or measure.above in result:
        mask, how = ~one.at_chance.values & (np.nan_to_num(score) > 0), f"{measure.name} above chance"
        if "threshold" in result.attrs:
            mask, how = mask & (score >= result.attrs["threshold"]), f"{how} and at least {result.attrs['threshold']:g}"
    elif measure.at_least is not None:
        mask, how = np.nan_to_num(score) >= measure.at_least, f"{measure.name} of at least {measure.at_least:g}"
    else:
        what = f"{of.words[0]} by {of.method}"
        raise BadArgument(
            f"set is {of.text!r}, but {of.method} ranks heads and marks none: say how many,"
            f" as in 'top 10 {what}' or 'lowest 10% {what}'"
        )
    return top_heads(np.where(mask, score, np.nan), int(mask.sum())), how


# --- by which evidence


def _verdict(result: xr.Dataset, one: xr.Dataset) -> str:
    """What a method says of a subject in words, where it does."""
    dims = [d for d in result.dims if "verdict" in result and result.verdict.dims == (d,)]
    if one.sizes["chart"] != 1 or not dims or one.subject.values[0] not in result[dims[0]].values:
        return ""
    return f" ({result.verdict.sel({dims[0]: one.subject.values[0]}).item()})"


def _evidence(method: str, measure: Measure, result: xr.Dataset, subject: str | None) -> str:
    """What the atlas says of removing these heads, and of the method. subject: None if there are several."""
    declared = methods().get(method)
    parts = (
        [f" The method tells {declared.tells}, not {declared.does_not_tell}."] if declared and declared.tells else []
    )
    if subject is not None and (proof := _proof(method, measure, result, subject)):
        removed, of, change, random, p = proof
        parts.append(
            f" In the atlas, removing its top {removed} changed {of} by {change:+.2f} (random heads {random:+.2f},"
            f" p = {p:.2g})."
        )
    if subject is not None and "proven" in result and not bool(result.proven.sel({result.proven.dims[0]: subject})):
        verdict = (
            str(result.verdict.sel({result.verdict.dims[0]: subject}).item()) if "verdict" in result else "not proven"
        )
        log.warning("%s by %s: %s", subject, method, verdict)
        parts.append(f" Its verdict: {verdict}.")
    return f".{''.join(parts)}"


def _proof(
    method: str, measure: Measure, result: xr.Dataset, subject: str
) -> tuple[int, str, float, float, float] | None:
    """How many top heads were removed, what changed and by how much, the same with random heads, and p."""
    if measure.name == measures_of(method)[0].name:
        for row in tables.evidence({method: result}):
            if row["subject"] == subject and row["removed"] is not None and row["p"] is not None:
                return row["removed"], row["of"], row["change"], row["random"], row["p"]
    curves = stack_removal_curves({method: result})
    for i in range(curves.sizes["curve"]):
        one = curves.isel(curve=i)
        if (one.subject.item(), one.ranked_by.item()) == (subject, measure.name):
            return removed_counts(one)[0], *change_at(one, removed_counts(one)[0])
    return None
