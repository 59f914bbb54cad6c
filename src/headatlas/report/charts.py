"""The page's charts: scores of all heads, grouped by what is drawn side by side on one colour scale."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from headatlas.comparison.compare import correlation_matrix
from headatlas.comparison.pair_rows import between_atlases, pair_rows
from headatlas.comparison.pairs import spearman_matrix
from headatlas.figures.colour_scale import range_of
from headatlas.methods import measures_of, methods, title_of
from headatlas.methods._chance import above_chance_text, no_head_label, scale_level, unranked_label
from headatlas.report.numbers import pack, plain, plain_list
from headatlas.results.charts import MAP
from headatlas.results.outcomes import Outcome, outcomes

PAIRS = 50  # that are listed, at most
FIRST = ("function", "relation", "task")  # what the first groups are about; others come after


def chart_rows(charts: xr.Dataset, maps: Mapping[str, xr.Dataset]) -> list[dict[str, Any]]:
    """Every chart as the page draws it, with the outcome of its map's removal test."""
    tested = {method: outcomes(method, result) for method, result in maps.items()}
    rows = []
    for i in range(charts.sizes["chart"]):
        one = charts.isel(chart=i)
        outcome = tested[one.method.item()].get((one.measure.item(), one.subject.item()))
        rows.append(_chart(one, maps[one.method.item()], outcome))
    return rows


def _chart(one: xr.Dataset, result: xr.Dataset, outcome: Outcome | None) -> dict[str, Any]:
    names = {n: one[n].item() for n in ("method", "measure", "subject")}
    interval = {n: pack(one[n].values) if one[n].notnull().any() else None for n in ("low", "high")}
    chance = _chance(one)
    above = above_chance_text(one.score.values, one.chance.values, one.at_chance.values)
    notes = [line for line in (above, outcome.text if outcome else "") if line]
    if chance["none"] and not notes:
        notes = [no_head_label(one.method.item())]
    grid = {d: one[d].values.tolist() for d in MAP}
    test = {"tested": on_grid(outcome.removed, result, grid) if outcome else [], "notes": notes}
    return names | {"score": pack(one.score.values)} | interval | chance | test


def on_grid(heads: np.ndarray, result: xr.Dataset, grid: Mapping[str, list[int]]) -> list[int]:
    """The places of some heads of a result, bool [layer, head], among all heads of the page's grid."""
    mask = xr.DataArray(heads, {d: result[d].values for d in MAP}, MAP)
    return [int(place) for place in np.flatnonzero(mask.reindex(grid, fill_value=False).values)]


def _chance(one: xr.Dataset) -> dict[str, Any]:
    """Of a chart: its chance level (a number, or one for each head), and the heads above it (None: all, or not
    known)."""
    levels = np.unique(one.chance.values[np.isfinite(one.chance.values)])
    level = None if not len(levels) else plain(levels[0]) if len(levels) == 1 else pack(one.chance.values)
    above = ~one.at_chance.values & np.isfinite(one.score.values)
    return {
        "chance": level,
        "above": np.flatnonzero(above).tolist() if one.at_chance.any() else None,
        "none": bool(one.none_above),
        "unranked": unranked_label(one.method.item()),
    }


def first_chart(charts: xr.Dataset, maps: Mapping[str, xr.Dataset]) -> int | None:
    """The chart that the page opens on: supported by its test with the lowest p, then of the most heads.

    Without a supported one, the first that has a head above chance. Only charts of a method's first measure count.
    """
    tested = {method: outcomes(method, result) for method, result in maps.items()}
    places = {method: place for place, method in enumerate(page_order(maps))}
    ranked = []
    for i in range(charts.sizes["chart"]):
        one = charts.isel(chart=i)
        method, measure, subject = (one[n].item() for n in ("method", "measure", "subject"))
        outcome = tested[method].get((measure, subject))
        supported = outcome is not None and outcome.supported and not one.none_above
        evidence = (outcome.p, -outcome.n_removed) if outcome and supported else (1.0, 0)
        main = measure == measures_of(method)[0].name
        ranked.append((not main, not supported, bool(one.none_above), *evidence, places[method], i))
    return min(ranked)[-1] if ranked else None


def groups(
    charts: xr.Dataset, rows: Sequence[Mapping[str, Any]], maps: Mapping[str, xr.Dataset]
) -> Iterator[dict[str, Any]]:
    """Charts that are drawn side by side on one colour scale: those of one measure of one method.

    rows: what `chart_rows` says of the charts.
    """
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
                    "says": measure.meaning + _marks(shown, [rows[i] for i in mine]),
                    "charts": mine,
                    "removal": measure.by_removal,
                    "scale": scale(shown.score.values, scale_level(shown.chance)),
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


def _marks(charts: xr.Dataset, rows: Sequence[Mapping[str, Any]]) -> str:
    """What dimmed and framed heads are, where there are any."""
    text = ""
    if charts.at_chance.any():
        text += f" Half colour strength: {rows[0]['unranked']}."
    if any(row["tested"] for row in rows):
        text += " Framed: removed in the map's test, whose outcome is below its title."
    return text


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

    agreed: what `compare` says of these charts: its numbers then, and the closest pairs.
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
    matrix = correlation_matrix(agreed).sel(chart=names, other=names).values
    closest = between_atlases(pair_rows(agreed))[:PAIRS]
    pairs = [row | {"a": names.index(row["a"]), "b": names.index(row["b"])} for row in closest]
    return {"spearman": [plain_list(row) for row in matrix], "pairs": pairs}
