"""F4, the layer profile: the share of a function's importance in each layer, over relative depth."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from headatlas.errors import BadArgument
from headatlas.figures.figure_names import PUBLISHED
from headatlas.figures.picture import Maps, Picture
from headatlas.figures.style import axes_at, heading, styled, wrap
from headatlas.figures.style import palette as palette_of
from headatlas.methods import measures_of, title_of
from headatlas.methods._chance import AT_CHANCE
from headatlas.results.charts import stack_maps
from headatlas.results.reading import results_of

DASHES = ("-", "--", ":", "-.")
# Lines per panel; if there are more relations, they are averaged by category.
MAX_LINES = 10
# Opacity of lines of maps without a head above chance.
FAINT = 0.4
REQUIRED = "a map over layer and head"
CAPTION = (
    "Share of each map that lies in each layer, over relative depth; of many relations, the mean of each category."
    " The grey line is an even share. Lines of maps without a head above chance are faint; such maps are left out of"
    " means."
)


def pictures(maps: Maps, charts: xr.Dataset) -> Iterator[Picture]:
    """Yield the figure if any score differs from 0."""
    if float(abs(charts.score).sum()):
        methods = list(dict.fromkeys(charts.method.values.tolist()))
        yield Picture("layers", partial(layer_profile, maps), CAPTION, methods)


@dataclass(frozen=True)
class Profile:
    """A panel: the profiles of a method's maps."""

    title: str
    depth: np.ndarray  # [layer] in 0 … 1
    lines: dict[str, np.ndarray]  # share of importance per layer; sums to 1
    at_chance: frozenset[str] = frozenset()  # lines of maps without a head above chance, drawn faint
    unsupported: str = ""  # what the legend calls these


@dataclass(frozen=True)
class Profiles:
    """A planned figure."""

    heading: str
    panels: list[Profile]
    colours: tuple[str, ...]


def layer_profile(maps: Any, *, palette: str = PUBLISHED) -> Figure:
    """Draw the share of importance per layer: a line per function, a panel per method.

    maps: an atlas, its folder, a result, or results by method.
    """
    return draw(plan(results_of("maps", maps), palette))


def plan(maps: Maps, colours: str = PUBLISHED) -> Profiles:
    """Plan the profiles: the first measure of each method, by absolute value."""
    charts = stack_maps(maps)
    profiles = [_profile(method, maps[method], charts) for method in dict.fromkeys(charts.method.values.tolist())]
    panels = [panel for panel in profiles if panel.lines]
    if not panels:
        raise BadArgument(f"maps has no map to draw profiles of; it has {', '.join(maps) or 'nothing'}")
    first = next(iter(maps.values()))
    named = ("Layer profiles", str(first.attrs.get("model", "")), f"{first.sizes['layer']} layers")
    return Profiles(" · ".join(part for part in named if part), panels, palette_of(colours).lines)


def _profile(method: str, result: xr.Dataset, charts: xr.Dataset) -> Profile:
    """Plan a method's panel. Means of categories leave out relations without a head above chance, unless all are."""
    charts = charts.isel(chart=np.flatnonzero(charts.method == method))
    measure = next(m for m in measures_of(method) if m.name in charts.measure.values)
    charts = charts.isel(chart=np.flatnonzero(charts.measure == measure.name))
    score = np.abs(charts.score.transpose("chart", "layer", "head"))
    subjects = charts.subject.values.tolist()
    averaged = ""
    none_above = dict(zip(subjects, charts.none_above.values.tolist(), strict=True))
    if len(subjects) > MAX_LINES and "category" in result.coords and result["category"].dims == (measure.over,):
        category = dict(zip(map(str, result[measure.over].values), result["category"].values.tolist(), strict=True))
        by_category: dict[str, list[str]] = {}
        for subject in subjects:
            by_category.setdefault(category[subject], []).append(subject)
        category_none = {name: all(none_above[s] for s in members) for name, members in by_category.items()}
        none_above = category_none | none_above
        used = []
        for members in by_category.values():
            used += [s for s in members if not none_above[s]] or members
        score = score.isel(chart=[subjects.index(s) for s in used])
        score = score.assign_coords(group=("chart", [category[s] for s in used])).groupby("group").mean()
        subjects = score.group.values.tolist()
        score = score.rename(group="chart")
        averaged = ", mean of each category"
    total = score.sum(("layer", "head")).values
    by_layer = score.sum("head").transpose("chart", "layer").values
    lines = {s: v / t for s, v, t in zip(subjects, by_layer, total, strict=True) if t > 0}
    n = by_layer.shape[1]
    title = f"{title_of(method)}: {'|contribution|' if measure.name == 'contribution' else measure.name}{averaged}"
    depth = (np.arange(n) + 0.5) / n
    return Profile(title, depth, lines, frozenset(s for s in lines if none_above[s]), AT_CHANCE)


@styled
def draw(plan: Profiles) -> Figure:
    """Draw panels in up to two columns, each with its legend."""
    width, key, left, bottom, above = 3.3, 1.75, 0.6, 0.45, 0.5
    rows_of_text = max(sum(wrap(n, key - 0.2, 6.5).count("\n") + 1 for n in _names(p)) for p in plan.panels)
    height = max(1.7, 0.125 * rows_of_text)
    n_columns = min(2, len(plan.panels))
    rows = -(-len(plan.panels) // n_columns)
    figure = Figure(figsize=(n_columns * (left + width + key), rows * (height + above) + bottom + 0.2))
    for i, panel in enumerate(plan.panels):
        row, column = divmod(i, n_columns)
        x, y = column * (left + width + key) + left, bottom + (rows - 1 - row) * (height + above)
        axes = axes_at(figure, x, y, width, height)
        few_layers = len(panel.depth) <= 40
        for j, (name, share) in enumerate(panel.lines.items()):
            style = DASHES[j // len(plan.colours) % len(DASHES)] if len(plan.colours) > 4 else DASHES[j % len(DASHES)]
            colour = plan.colours[j % len(plan.colours)]
            marker = "o" if few_layers else ""
            opacity = FAINT if name in panel.at_chance else 1.0
            axes.plot(panel.depth, 100 * share, style, color=colour, alpha=opacity, marker=marker, markersize=2)
        axes.axhline(100 / len(panel.depth), color="#999999", linewidth=0.6, zorder=0)
        axes.set_xlim(0, 1)
        axes.set_ylim(bottom=0)
        axes.set_title(wrap(panel.title, width + 1), parse_math=False)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylabel("share per layer (%)", labelpad=2)
        if i + n_columns >= len(plan.panels):
            axes.set_xlabel("relative depth", labelpad=2)
        names = [wrap(n, key - 0.2, 6.5) for n in _names(panel)]
        place = (1.01, 1.05)
        legend_style = {"fontsize": 6.5, "labelspacing": 0.25, "handlelength": 1.8}
        legend = axes.legend(axes.lines[: len(names)], names, loc="upper left", bbox_to_anchor=place, **legend_style)
        for text in legend.get_texts():
            text.set_parse_math(False)
    heading(figure, plan.heading, left)
    return figure


def _names(panel: Profile) -> list[str]:
    return [f"{n} ({panel.unsupported})" if n in panel.at_chance else n for n in panel.lines]
