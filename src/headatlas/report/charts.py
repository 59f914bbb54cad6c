"""The page's charts: scores of all heads, grouped by what is drawn side by side on one colour scale."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import xarray as xr

from headatlas.evidence.agreement import spearman_matrix
from headatlas.methods import measures_of, methods, title_of
from headatlas.methods._chance import above_in_words, no_rank, none_in_words
from headatlas.methods.method import Measure
from headatlas.report.numbers import pack, plain, plain_list
from headatlas.results.agree import square
from headatlas.results.scale import range_of
from headatlas.results.tables import agreed as agreed_rows
from headatlas.results.tables import between_atlases

PAIRS = 50  # that are listed, at most
FIRST = ("function", "relation", "task")  # what the first groups are about; others come after


def chart(one: xr.Dataset) -> dict[str, Any]:
    names = {n: one[n].item() for n in ("method", "measure", "subject")}
    interval = {n: pack(one[n].values) if one[n].notnull().any() else None for n in ("low", "high")}
    return names | {"score": pack(one.score.values)} | interval | _chance(one)


def _chance(one: xr.Dataset) -> dict[str, Any]:
    """Of a chart: its chance level (a number, or one for each head), the heads above it (None: all, or not known), and
    a note about it."""
    levels = np.unique(one.chance.values[np.isfinite(one.chance.values)])
    level = None if not len(levels) else plain(levels[0]) if len(levels) == 1 else pack(one.chance.values)
    above = ~one.at_chance.values & np.isfinite(one.score.values)
    none = bool(one.none_above)
    words = above_in_words(one.score.values, one.chance.values, one.at_chance.values)
    return {
        "chance": level,
        "above": np.flatnonzero(above).tolist() if one.at_chance.any() else None,
        "none": none,
        "unranked": no_rank(one.method.item()),
        "note": words or (none_in_words(one.method.item()) if none else ""),
    }


def groups(charts: xr.Dataset, maps: Mapping[str, xr.Dataset]) -> Iterator[dict[str, Any]]:
    """Charts that are drawn side by side on one colour scale: those of one measure of one method."""
    each = list(zip(charts.method.values.tolist(), charts.measure.values.tolist(), strict=True))
    for method in page_order(maps):
        for measure in measures_of(method):
            mine = [i for i, group in enumerate(each) if group == (method, measure.name)]
            if mine:
                shown = charts.isel(chart=mine)
                yield {
                    "method": method,
                    "measure": measure.name,
                    "title": f"{title_of(method)}: {measure.name}",
                    "subject": measure.over.capitalize(),
                    "says": measure.meaning + _unproven(maps[method], measure) + _at_chance(shown),
                    "removal": measure.by_removal,
                    "charts": mine,
                    "scale": _scale_above(shown),
                }


def page_order(maps: Iterable[str]) -> list[str]:
    """Methods as the page lists them: by what their maps are about, functions first; then in the order of a run.

    Tables from elsewhere come last.
    """
    maps = list(maps)
    registered = [*methods(), *(m for m in maps if m not in methods())]
    about = {m: next((x.over for x in measures_of(m)), "") for m in maps}
    places = {m: (FIRST.index(over) if over in FIRST else len(FIRST)) for m, over in about.items()}
    return sorted(maps, key=lambda m: (m not in methods(), places[m], registered.index(m)))


def _at_chance(charts: xr.Dataset) -> str:
    """How maps with a chance level are coloured, and which have no head above it."""
    if not charts.chance.notnull().any():
        return ""
    names = charts.subject.values[charts.none_above.values].tolist()
    which = "all of them" if len(names) == charts.sizes["chart"] else ", ".join(names)
    text = " Heads at chance have the colour of 0; a map without a head above chance is grey"
    return text + (f": {which}." if names else ".")


def _unproven(result: xr.Dataset, measure: Measure) -> str:
    """Which maps' heads were not proven."""
    if measure.above not in result or result[measure.above].dims != (measure.over,):
        return ""
    each = zip(result[measure.over].values, result[measure.above].values, strict=True)
    names = [str(subject) for subject, proven in each if not proven]
    return f" Not proven, so no evidence by itself (see Specialisation): {', '.join(names)}." if names else ""


def _scale_above(charts: xr.Dataset) -> dict[str, Any]:
    """The scale of the maps that are not grey, for those that reach beyond chance."""
    values, coloured = charts.score.values, ~charts.none_above.values
    level = charts.chance.where(~charts.at_chance).values[coloured]
    shown = values[coloured] if coloured.any() else values
    largest = float(np.abs(values[np.isfinite(values)]).max(initial=0))
    return scale(shown, float(np.nanmax(level, initial=0.0))) | {"largest": largest}


def scale(values: np.ndarray, chance: float = 0.0) -> dict[str, Any]:
    """The colour scale of charts [chart, layer, head]: its ends and its ticks."""
    ends = range_of(values, chance)
    span = ends.high - ends.low
    return {
        "low": ends.low,
        "high": ends.high,
        "largest": float(np.abs(values[np.isfinite(values)]).max(initial=0)),
        "diverging": ends.signed,
        "ticks": [{"at": (t - ends.low) / span, "text": s} for t, s in zip(ends.ticks, ends.labels, strict=True)],
    }


def agreement(charts: xr.Dataset, agreed: xr.Dataset | None = None) -> dict[str, Any] | None:
    """Spearman over heads of every two charts; none where one is constant or fewer than three heads have both.

    agreed: what `agree` says of these charts: its numbers then, and the closest pairs.
    """
    n = charts.sizes["chart"]
    if n < 2:
        return None
    if agreed is None:
        return {
            "spearman": [plain_list(row) for row in spearman_matrix(charts.score.values.reshape(n, -1))],
            "pairs": [],
        }
    names = charts.chart.values.tolist()
    matrix = square(agreed).sel(chart=names, other=names).values
    closest = between_atlases(agreed_rows(agreed))[:PAIRS]
    pairs = [row | {"a": names.index(row["a"]), "b": names.index(row["b"])} for row in closest]
    return {"spearman": [plain_list(row) for row in matrix], "pairs": pairs}
