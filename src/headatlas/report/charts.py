"""The page's charts: scores of all heads, in groups that are drawn side by side on one colour scale."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from headatlas.comparison.compare import correlation_matrix
from headatlas.comparison.pair_rows import between_atlases, pair_rows
from headatlas.comparison.pairs import spearman_matrix
from headatlas.figures.colour_scale import range_of
from headatlas.methods import measures_of, methods, title_of
from headatlas.methods._chance import AT_CHANCE, NO_HEAD_ABOVE, above_chance_text, scale_level
from headatlas.report.numbers import pack, plain, plain_list
from headatlas.results.charts import MAP
from headatlas.results.outcomes import Outcome, outcomes
from headatlas.results.stored_reliability import reliability_note

MAX_PAIRS = 50
# The subjects of the groups that come first on the page, in order.
FIRST_SUBJECTS = ("function", "relation", "task")


def chart_rows(charts: xr.Dataset, maps: Mapping[str, xr.Dataset]) -> list[dict[str, Any]]:
    """Return every chart as the page draws it, with the outcome of its map's test."""
    tested = {method: outcomes(result) for method, result in maps.items()}
    rows = []
    for i in range(charts.sizes["chart"]):
        chart = charts.isel(chart=i)
        outcome = tested[chart.method.item()].get((chart.measure.item(), chart.subject.item()))
        rows.append(_chart(chart, maps[chart.method.item()], outcome))
    return rows


def _chart(chart: xr.Dataset, result: xr.Dataset, outcome: Outcome | None) -> dict[str, Any]:
    names = {n: chart[n].item() for n in ("method", "measure", "subject")}
    interval = {n: pack(chart[n].values) if chart[n].notnull().any() else None for n in ("low", "high")}
    chance_fields = _chance(chart)
    above = above_chance_text(chart.score.values, chart.chance.values, chart.at_chance.values)
    if chance_fields["none"] and not above and not outcome:
        above = NO_HEAD_ABOVE
    lines = (above, reliability_note(float(chart.reliability)), outcome.text if outcome else "")
    notes = [line for line in lines if line]
    grid = {d: chart[d].values.tolist() for d in MAP}
    test = {"tested": on_grid(outcome.heads, result, grid) if outcome else [], "notes": notes}
    return names | {"score": pack(chart.score.values)} | interval | chance_fields | test


def on_grid(heads: np.ndarray, result: xr.Dataset, grid: Mapping[str, list[int]]) -> list[int]:
    """Return the places of heads of a result, bool [layer, head], among all heads of the page's grid."""
    mask = xr.DataArray(heads, {d: result[d].values for d in MAP}, MAP)
    return [int(place) for place in np.flatnonzero(mask.reindex(grid, fill_value=False).values)]


def _chance(chart: xr.Dataset) -> dict[str, Any]:
    """Return the chance level of a chart, and the heads above it.

    chance: a number, or packed numbers per head. above: None if all heads are above chance, or no level is known.
    """
    levels = np.unique(chart.chance.values[np.isfinite(chart.chance.values)])
    level = None if not len(levels) else plain(levels[0]) if len(levels) == 1 else pack(chart.chance.values)
    above = ~chart.at_chance.values & np.isfinite(chart.score.values)
    return {
        "chance": level,
        "above": np.flatnonzero(above).tolist() if chart.at_chance.any() else None,
        "none": bool(chart.none_above),
        "unranked": AT_CHANCE,
    }


def first_chart(charts: xr.Dataset, maps: Mapping[str, xr.Dataset]) -> int | None:
    """Return the chart that the page opens on: that of a supported map with the lowest p, then with the most heads.

    If no map is supported, the first chart with a head above chance. Charts of a method's first measure are preferred.
    """
    tested = {method: outcomes(result) for method, result in maps.items()}
    places = {method: place for place, method in enumerate(page_order(maps))}
    ranked = []
    for i in range(charts.sizes["chart"]):
        chart = charts.isel(chart=i)
        method, measure, subject = (chart[n].item() for n in ("method", "measure", "subject"))
        outcome = tested[method].get((measure, subject))
        supported = outcome is not None and outcome.supported and not chart.none_above
        evidence = (outcome.p, -outcome.n_heads) if outcome and supported else (1.0, 0)
        main = measure == measures_of(method)[0].name
        ranked.append((not main, not supported, bool(chart.none_above), *evidence, places[method], i))
    return min(ranked)[-1] if ranked else None


def groups(
    charts: xr.Dataset, rows: Sequence[Mapping[str, Any]], maps: Mapping[str, xr.Dataset]
) -> Iterator[dict[str, Any]]:
    """Group charts to be drawn side by side on one colour scale: those of one measure of one method.

    rows: the charts, from `chart_rows`.
    """
    measures = list(zip(charts.method.values.tolist(), charts.measure.values.tolist(), strict=True))
    for method in page_order(maps):
        for measure in measures_of(method):
            members = [i for i, key in enumerate(measures) if key == (method, measure.name)]
            if members:
                shown = charts.isel(chart=members)
                yield {
                    "method": method,
                    "measure": measure.name,
                    "title": f"{title_of(method)}: {measure.name}",
                    "subject": measure.over.capitalize(),
                    "description": measure.meaning + _marks(shown, [rows[i] for i in members]),
                    "charts": members,
                    "removal": measure.by_removal,
                    "scale": scale(shown.score.values, scale_level(shown.chance)),
                }


def page_order(maps: Iterable[str]) -> list[str]:
    """Order methods as the page lists them: by the subject of their maps, functions first; then as in a run.

    Imported tables come last.
    """
    maps = list(maps)
    registered = [*methods(), *(m for m in maps if m not in methods())]
    subjects = {m: next((measure.over for measure in measures_of(m)), "") for m in maps}
    places = {m: _subject_place(subject) for m, subject in subjects.items()}
    return sorted(maps, key=lambda m: (m not in methods(), places[m], registered.index(m)))


def _subject_place(subject: str) -> int:
    return FIRST_SUBJECTS.index(subject) if subject in FIRST_SUBJECTS else len(FIRST_SUBJECTS)


def _marks(charts: xr.Dataset, rows: Sequence[Mapping[str, Any]]) -> str:
    """Explain dimmed and framed heads, if there are any."""
    text = ""
    if charts.at_chance.any():
        text += f" Half colour strength: {rows[0]['unranked']}."
    if any(row["tested"] for row in rows):
        text += " Framed: tested heads; the outcome of the test is below the title."
    return text


def scale(values: np.ndarray, chance: float = 0.0) -> dict[str, Any]:
    """Return the colour scale of charts [chart, layer, head]: its ends and its ticks."""
    ends = range_of(values, chance)
    span = ends.high - ends.low
    return {
        "low": ends.low,
        "high": ends.high,
        "largest": float(np.abs(values[np.isfinite(values)]).max(initial=0)),
        "diverging": ends.signed,
        "ticks": [{"at": (t - ends.low) / span, "text": s} for t, s in zip(ends.ticks, ends.labels, strict=True)],
    }


def agreement(charts: xr.Dataset, compared: xr.Dataset | None = None) -> dict[str, Any] | None:
    """Return the Spearman correlation over heads of every two charts.

    None for pairs in which a chart is constant or fewer than three heads have both scores.
    compared: a result of `compare` for these charts, whose correlations and closest pairs are used instead.
    """
    n = charts.sizes["chart"]
    if n < 2:
        return None
    if compared is None:
        return {
            "spearman": [plain_list(row) for row in spearman_matrix(charts.score.values.reshape(n, -1))],
            "pairs": [],
        }
    names = charts.chart.values.tolist()
    matrix = correlation_matrix(compared).sel(chart=names, other=names).values
    closest = between_atlases(pair_rows(compared))[:MAX_PAIRS]
    pairs = [row | {"a": names.index(row["a"]), "b": names.index(row["b"])} for row in closest]
    return {"spearman": [plain_list(row) for row in matrix], "pairs": pairs}
