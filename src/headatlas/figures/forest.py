"""F4, the tests of all maps: what removing each map's top heads does beyond removing random heads, a row per map."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from headatlas.errors import BadArgument
from headatlas.evidence.decide import NO_ABILITY, NOT_SUPPORTED, OUTCOMES, SUPPORTED, UNDECIDED
from headatlas.figures.figure_names import PUBLISHED
from headatlas.figures.picture import Maps, Picture
from headatlas.figures.style import axes_at, heading, printable, styled
from headatlas.figures.style import palette as palette_of
from headatlas.methods import measures_of, title_of
from headatlas.results.outcomes import Outcome, all_outcomes
from headatlas.results.reading import results_of

REQUIRED = "tests of the maps"
CAPTION = (
    "A row per tested map: change of log P per token without its top heads, beyond that without matched random heads,"
    " with its 95 % interval over prompts; left of 0: worse. Three marks: the heads' outputs are replaced by zero, by"
    " their mean, or by those on another prompt. The outcome needs the same sign with all three, significant with two,"
    " for log P and for the choice among the answers."
)
MAX_ROWS = 44  # of a column of rows
MAX_LABEL = 34  # characters
MAX_TEXT = 76  # characters
ROW_HEIGHT = 0.17  # inches
LETTER = 0.054  # inches, at 6.5 points
MARKS = {"zero": "o", "mean": "s", "resample": "D"}


@dataclass(frozen=True)
class Row:
    """A tested map, or the title of a method (no outcome)."""

    label: str
    outcome: Outcome | None = None


@dataclass(frozen=True)
class Forest:
    """A planned figure. columns: rows of each column. ends: of the axis of changes."""

    heading: str
    columns: list[list[Row]]
    ends: tuple[float, float]
    colours: dict[str, str]  # by outcome


def pictures(maps: Maps, charts: xr.Dataset) -> Iterator[Picture]:
    """Yield the figure if any map is tested."""
    methods = list(dict.fromkeys(method for method, *_ in all_outcomes(maps)))
    if methods:
        yield Picture("tests", partial(forest_plot, {m: maps[m] for m in methods}), CAPTION, methods)


def forest_plot(maps: Any, *, palette: str = PUBLISHED) -> Figure:
    """Draw the tests of all maps: the change beyond random heads with its interval, three replacements, the outcome.

    maps: an atlas, its folder, or results by method.
    """
    return draw(plan(results_of("maps", maps), palette))


def plan(maps: Mapping[str, xr.Dataset], colours: str = PUBLISHED) -> Forest:
    """Plan the rows, method by method."""
    tested = list(all_outcomes(maps))
    if not tested:
        raise BadArgument("maps has no tests: the figure needs tests of the maps (`headatlas run` makes them)")
    rows: list[Row] = []
    before = ""
    for method, measure, subject, outcome in tested:
        # names of several measures would be the same otherwise
        first = measures_of(method)[0].name if measures_of(method) else measure
        if method != before:
            rows.append(Row(title_of(method)))
        before = method
        rows.append(Row(subject if measure == first else f"{subject}, {measure}", outcome))
    n_columns = -(-len(rows) // MAX_ROWS)
    n_rows = -(-len(rows) // n_columns)
    ends = [v for *_, o in tested for v in (*o.low.values(), *o.high.values(), 0.0) if np.isfinite(v)]
    margin = 0.05 * (max(ends) - min(ends)) or 1.0
    model = next((str(r.attrs["model"]) for r in maps.values() if "model" in r.attrs), "")
    n_supported = sum(outcome.supported for *_, outcome in tested)
    title = " · ".join(part for part in (model, f"{n_supported} of {len(tested)} tests supported") if part)
    used = palette_of(colours)
    return Forest(
        title,
        [rows[i : i + n_rows] for i in range(0, len(rows), n_rows)],
        (min(ends) - margin, max(ends) + margin),
        dict(
            zip(
                (SUPPORTED, NOT_SUPPORTED, UNDECIDED, NO_ABILITY),
                (used.lines[0], "#777777", used.lines[1], "#aaaaaa"),
                strict=True,
            )
        ),
    )


@styled
def draw(plan: Forest) -> Figure:
    """Draw columns of rows: label, marks with intervals, outcome in words."""
    rows = [row for column in plan.columns for row in column]
    label_width = LETTER * max(len(_label(row)) for row in rows) + 0.15
    text_width = LETTER * max(len(_text(row)) for row in rows) + 0.2
    width, bottom, top = 1.9, 0.75, 0.35
    column_width = label_width + width + text_width
    height = ROW_HEIGHT * max(map(len, plan.columns))
    figure = Figure(figsize=(max(4.0, column_width * len(plan.columns) + 0.1), bottom + height + top))
    for i, column in enumerate(plan.columns):
        column_height = ROW_HEIGHT * len(column)
        axes = axes_at(figure, i * column_width + label_width, bottom + height - column_height, width, column_height)
        _draw_rows(axes, column, plan)
    shown_outcomes = {row.outcome.outcome for row in rows if row.outcome and np.isfinite(row.outcome.effect)}
    names = [name for name in OUTCOMES if name in shown_outcomes]
    marks = [Line2D([], [], linestyle="", marker=mark, color="#333333", markersize=3) for mark in MARKS.values()]
    marks += [Line2D([], [], color=plan.colours[name], linewidth=2) for name in names]
    figure.legend(marks, [*MARKS, *names], loc="lower left", ncols=4, fontsize=6.5, columnspacing=1.2)
    heading(figure, plan.heading, 0.1)
    return figure


def _draw_rows(axes: Axes, rows: list[Row], plan: Forest) -> None:
    axes.axvline(0, color="#aaaaaa", linewidth=0.6)
    for y, row in enumerate(rows):
        weight = "normal" if row.outcome else "bold"
        look: Any = {"fontsize": 6.5, "va": "center", "parse_math": False}
        place: Any = {"textcoords": "offset points", "annotation_clip": False}
        axes.annotate(
            _label(row),
            (0, y),
            (-4, 0),
            xycoords=axes.get_yaxis_transform(),
            ha="right",
            weight=weight,
            **look,
            **place,
        )
        if row.outcome is None:
            continue
        colour = plan.colours[row.outcome.outcome]
        for offset, (name, mark) in zip((-0.25, 0, 0.25), MARKS.items(), strict=True):
            ends = [row.outcome.low.get(name, np.nan), row.outcome.high.get(name, np.nan)]
            axes.plot(ends, [y + offset] * 2, color=colour, linewidth=0.9)
            beyond = row.outcome.beyond.get(name, np.nan)
            axes.plot(beyond, y + offset, mark, color=colour, markersize=2.4)
        axes.annotate(
            _text(row), (1, y), (5, 0), xycoords=axes.get_yaxis_transform(), ha="left", color="#444444", **look, **place
        )
    axes.set_xlim(*plan.ends)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks([])
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel("change of log P beyond random heads", labelpad=2, fontsize=7)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _label(row: Row) -> str:
    return printable(_short(row.label, MAX_LABEL))


def _text(row: Row) -> str:
    if row.outcome is None:
        return ""
    selective = ", selective" if row.outcome.selective == SUPPORTED else ""
    return printable(_short(row.outcome.text + selective, MAX_TEXT))


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
