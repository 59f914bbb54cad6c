"""F2, the category map: which categories of relations every head belongs to."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from headatlas.figures.arguments import check_dataset, lacks
from headatlas.figures.names import PUBLISHED
from headatlas.figures.picture import Maps, Picture, of_each
from headatlas.figures.style import axes_at, heading, styled, ticks, wrap
from headatlas.figures.style import palette as palette_of
from headatlas.methods import measures_of
from headatlas.methods._chance import members
from headatlas.results.about import about, unit
from headatlas.tasks.relations import CATEGORIES

UNCLASSIFIED = "Unclassified"
NEEDS = "member(category, layer, head) with the coordinate category_name"
SAYS = (
    "Heads by the categories of relations they implement, from their parameters alone: a head belongs to one when its"
    " score or suppression for one of the category's relations reaches the threshold and is above chance."
)


def pictures(maps: Maps, charts: xr.Dataset, colours: str) -> Iterator[Picture]:
    return of_each("categories", maps, has_categories, category_map, SAYS, colours)


def has_categories(result: xr.Dataset) -> bool:
    """Whether it says which categories heads are members of."""
    dims = {"category", "layer", "head"}
    return "member" in result and set(result.member.dims) == dims and "category_name" in result.coords


@dataclass(frozen=True)
class CategoryMap:
    """What to draw: for every panel a class for each head [layer, head], −1 where a layer has none."""

    heading: str
    panels: list[tuple[str, np.ndarray]]
    classes: list[str]
    colours: list[str]
    legend: list[int]  # classes from top to bottom
    xlabel: str
    ylabel: str
    xticks: list[int]
    yticks: list[int]


def category_map(result: xr.Dataset, *, palette: str = PUBLISHED) -> Figure:
    """All categories in one large panel, then each in its own. Needs `member(category, layer, head)`.

    Heads that are members only by scores at chance are not coloured.
    """
    check_dataset(result, NEEDS)
    return draw(plan(result, palette))


def plan(result: xr.Dataset, colours: str = PUBLISHED) -> CategoryMap:
    """What the map shows."""
    used = palette_of(colours)
    if not has_categories(result):
        raise lacks(result, ("member", "category_name"), NEEDS)
    listed = [str(n) for n in result.category_name.values]
    names = [n for n in CATEGORIES if n in listed] + [n for n in listed if n not in CATEGORIES]
    member = members(result).transpose("category", "layer", "head").values[[listed.index(n) for n in names]]
    several = [f"{n} categories" for n in range(2, len(names) + 1)]
    classes = [*names, *several, UNCLASSIFIED]
    known = dict(zip(CATEGORIES, used.categories, strict=True))
    spare = iter([c for c in used.lines if c not in used.categories + used.several] + list(used.lines) * len(names))
    own = [known.get(n) or next(spare) for n in names]
    many = [*used.several, *[used.several[-1]] * len(names)][: len(several)]
    count = member.sum(0)
    of = np.where(count == 0, len(classes) - 1, np.where(count == 1, member.argmax(0), len(names) + count - 2))
    absent = _absent(result)
    of[absent] = -1
    panels = [("All Categories", of)]
    for i, name in enumerate(names):
        panels.append((name, np.where(absent, -1, np.where(member[i], i, len(classes) - 1))))
    n_layers, n_heads = of.shape
    ends = [n_layers] if n_layers % 16 == 0 else []  # the published axis ends on its last tick
    return CategoryMap(
        heading=about(result),
        panels=panels,
        classes=classes,
        colours=[*own, *many, used.none],
        legend=[*reversed(range(len(classes) - 1)), len(classes) - 1],
        xlabel="layer",
        ylabel=unit(result).lower() if unit(result) == "Head" else unit(result),
        xticks=ticks(n_layers, 16, 9) + ends,
        yticks=ticks(n_heads, 12, 12),
    )


def _absent(result: xr.Dataset) -> np.ndarray:
    """Layers without heads, where scores tell."""
    names = [m.name for m in measures_of(str(result.attrs.get("method")))]
    scored = [result[n] for n in (*names, "score_multi") if n in result]
    if not scored:
        return np.zeros((result.sizes["layer"], result.sizes["head"]), bool)
    rest = [[d for d in s.dims if d not in ("layer", "head")] for s in scored]
    none = [s.isnull().all(dims).transpose("layer", "head").values for s, dims in zip(scored, rest, strict=True)]
    return np.logical_and.reduce(none)


@styled
def draw(plan: CategoryMap) -> Figure:
    n_layers, n_heads = plan.panels[0][1].shape
    shape = float(np.clip(n_heads / n_layers, 0.5, 1.4))  # height of a panel by its width
    small = 2.5
    across = -(-(len(plan.panels) - 1) // 2)
    gap_x, gap_y, left, top, bottom, key = 0.6, 0.62, 0.55, 0.72, 0.45, 1.35
    low = small * shape
    big_h = 2 * low + gap_y
    big_w = min(big_h / shape, 5.5)
    total_w = left + big_w + key + across * (small + gap_x) + 0.1
    total_h = bottom + big_h + top
    figure = Figure(figsize=(total_w, total_h))
    for i, (title, of) in enumerate(plan.panels):
        row, column = divmod(i - 1, across) if i else (0, 0)
        x = left if i == 0 else left + big_w + key + gap_x + column * (small + gap_x) - 0.1
        y = bottom if i == 0 else bottom + (1 - row) * (low + gap_y)
        w, h = (big_w, big_h) if i == 0 else (small, low)
        axes = axes_at(figure, x, y, w, h)
        cell = min(w * 72 / n_layers, h * 72 / n_heads, 28)
        for c, colour in enumerate(plan.colours):
            at = np.argwhere(of == c)
            axes.scatter(at[:, 0], at[:, 1], s=(0.8 * cell) ** 2, c=colour, marker="s", linewidths=0)
        axes.set_xlim(-0.5 - 0.01 * n_layers, n_layers - 0.5 + 0.02 * n_layers)
        axes.set_ylim(-0.5 - 0.01 * n_heads, n_heads - 0.5 + 0.02 * n_heads)
        axes.set_xticks(plan.xticks)
        axes.set_yticks(plan.yticks)
        axes.set_title(wrap(title, w, 9), parse_math=False)
        axes.set_xlabel(plan.xlabel, labelpad=1)
        axes.set_ylabel(plan.ylabel, labelpad=1)
    marks = [Line2D([], [], linestyle="", marker="s", markersize=6, color=plan.colours[c]) for c in plan.legend]
    names = [wrap(plan.classes[c], key, 7.5) for c in plan.legend]
    place = ((left + big_w + 0.05) / total_w, (bottom + big_h) / total_h)
    legend = figure.legend(marks, names, loc="upper left", bbox_to_anchor=place, handletextpad=0.2, borderaxespad=0.2)
    for text in legend.get_texts():
        text.set_parse_math(False)
    heading(figure, plan.heading, left)
    return figure
