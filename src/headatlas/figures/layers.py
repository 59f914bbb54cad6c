"""F4, the layer profile: in which layers a function's importance lies, on a depth axis on which models compare."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from headatlas.errors import BadArgument
from headatlas.figures.style import PUBLISHED, heading, styled, wrap
from headatlas.figures.style import palette as palette_of
from headatlas.results.about import NAMES
from headatlas.results.charts import MEASURES, overview
from headatlas.results.reading import results_of

DASHES = ("-", "--", ":", "-.")
MOST = 10  # lines in a panel; relations beyond are averaged by category
AT_CHANCE = "#c4c4c4"


@dataclass(frozen=True)
class Profile:
    title: str
    depth: np.ndarray  # [layer] in 0 … 1
    lines: dict[str, np.ndarray]  # share of importance per layer; sums to 1
    at_chance: frozenset[str] = frozenset()  # lines of maps without a head above chance, drawn grey


@dataclass(frozen=True)
class Profiles:
    """What to draw."""

    heading: str
    panels: list[Profile]
    colours: tuple[str, ...]


def layer_profile(maps: Any, *, palette: str = PUBLISHED) -> Figure:
    """Share of importance per layer, one line per function, one panel per method.

    maps: an atlas, its folder, a result, or results by method.
    """
    return draw(plan(results_of("maps", maps), palette))


def plan(maps: Mapping[str, xr.Dataset], colours: str = PUBLISHED) -> Profiles:
    """What the profiles show: of each method its first measure, |effects| for yardsticks. A category's mean is over the relations
    that have a head above chance, if there are any."""
    charts = overview(maps)
    panels = []
    for method in dict.fromkeys(charts.method.values.tolist()):
        measure = MEASURES[method][0][0]
        one = charts.isel(chart=np.flatnonzero((charts.method == method) & (charts.measure == measure)))
        score = np.abs(one.score.transpose("chart", "layer", "head"))
        subject, averaged = one.subject.values.tolist(), ""
        none = dict(zip(subject, one.none_above.values.tolist(), strict=True))
        if len(subject) > MOST and method == "maps" and "category" in maps["maps"].coords:
            category = dict(
                zip(maps["maps"].relation.values.tolist(), maps["maps"].category.values.tolist(), strict=True)
            )
            alike = {c: [s for s in subject if category[s] == c] for c in dict.fromkeys(category[s] for s in subject)}
            none = {c: all(none[s] for s in those) for c, those in alike.items()} | none
            used = [s for those in alike.values() for s in ([s for s in those if not none[s]] or those)]
            score = score.isel(chart=[subject.index(s) for s in used])
            score = score.assign_coords(of=("chart", [category[s] for s in used])).groupby("of").mean()
            score, subject, averaged = score.rename(of="chart"), score.of.values.tolist(), ", mean of each category"
        total = score.sum(("layer", "head")).values
        by_layer = score.sum("head").transpose("chart", "layer").values
        lines = {s: v / t for s, v, t in zip(subject, by_layer, total, strict=True) if t > 0}
        if lines:
            n = by_layer.shape[1]
            title = f"{NAMES.get(method, method)}: {'|effect|' if measure == 'effect' else measure}{averaged}"
            panels.append(Profile(title, (np.arange(n) + 0.5) / n, lines, frozenset(s for s in lines if none[s])))
    if not panels:
        raise BadArgument(f"maps has no map that profiles can be drawn of; it has {', '.join(maps) or 'nothing'}")
    first = next(iter(maps.values()))
    heading = " · ".join(
        p for p in ("Layer profiles", str(first.attrs.get("model", "")), f"{first.sizes['layer']} layers") if p
    )
    return Profiles(heading, panels, palette_of(colours).lines)


@styled
def draw(plan: Profiles) -> Figure:
    width, key, left, bottom, above = 3.3, 1.75, 0.6, 0.45, 0.5
    rows_of_text = max(sum(wrap(n, key - 0.2, 6.5).count("\n") + 1 for n in _names(p)) for p in plan.panels)
    height = max(1.7, 0.125 * rows_of_text)
    wide = min(2, len(plan.panels))
    rows = -(-len(plan.panels) // wide)
    total_w, total_h = wide * (left + width + key), rows * (height + above) + bottom + 0.2
    figure = Figure(figsize=(total_w, total_h))
    for i, panel in enumerate(plan.panels):
        row, column = divmod(i, wide)
        x, y = column * (left + width + key) + left, bottom + (rows - 1 - row) * (height + above)
        axes = figure.add_axes((x / total_w, y / total_h, width / total_w, height / total_h))
        few = len(panel.depth) <= 40
        for j, (name, share) in enumerate(panel.lines.items()):
            style = DASHES[j // len(plan.colours) % len(DASHES)] if len(plan.colours) > 4 else DASHES[j % len(DASHES)]
            colour = AT_CHANCE if name in panel.at_chance else plan.colours[j % len(plan.colours)]
            axes.plot(panel.depth, 100 * share, style, color=colour, marker="o" if few else "", markersize=2)
        axes.axhline(100 / len(panel.depth), color="#999999", linewidth=0.6, zorder=0)
        axes.set_xlim(0, 1)
        axes.set_ylim(bottom=0)
        axes.set_title(wrap(panel.title, width + 1), parse_math=False)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylabel("share per layer (%)", labelpad=2)
        if i + wide >= len(plan.panels):
            axes.set_xlabel("relative depth", labelpad=2)
        names, place = [wrap(n, key - 0.2, 6.5) for n in _names(panel)], (1.01, 1.05)
        few_words = {"fontsize": 6.5, "labelspacing": 0.25, "handlelength": 1.8}
        legend = axes.legend(axes.lines[: len(names)], names, loc="upper left", bbox_to_anchor=place, **few_words)
        for text in legend.get_texts():
            text.set_parse_math(False)
    heading(figure, plan.heading, left)
    return figure


def _names(panel: Profile) -> list[str]:
    return [f"{n} (at chance)" if n in panel.at_chance else n for n in panel.lines]
