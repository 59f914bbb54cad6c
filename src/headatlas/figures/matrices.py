"""F4, the specialisation matrix and the agreement of maps: labelled squares with a colour for every cell."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from headatlas.errors import BadArgument
from headatlas.figures.style import PUBLISHED, heading, printable, styled
from headatlas.figures.style import palette as palette_of
from headatlas.headmap.about import about
from headatlas.headmap.overview import overview
from headatlas.headmap.scale import neat_step
from headatlas.validation.agreement import agreement as agree


@dataclass(frozen=True)
class Matrix:
    """What to draw."""

    heading: str
    rows: list[str]
    columns: list[str]
    values: np.ndarray  # [row, column], NaN: no value
    ylabel: str
    xlabel: str
    label: str  # of the colour bar
    limit: float
    written: bool  # numbers in the cells
    borders: list[int]  # rows and columns before which a group begins
    colours: str
    beside: dict[str, np.ndarray]  # a second panel: points by name, such as agreement between seeds


def specialisation(found: xr.Dataset, *, palette: str = PUBLISHED) -> Figure:
    """Rows: whose top heads were removed. Columns: which function was asked. Cells: the change. As `probe` gives."""
    return draw(plan_specialisation(found, palette))


def plan_specialisation(found: xr.Dataset, colours: str = PUBLISHED) -> Matrix:
    if "specialisation" not in found:
        raise BadArgument("found has no specialisation(function, masked, measure): it was made without proof")
    measure = "log_p" if "log_p" in found.measure.values else found.measure.values[0]
    change = found.specialisation.sel(measure=measure).transpose("masked", "function")
    values = change.values.astype(np.float64)
    step = neat_step(float(np.nanmax(np.abs(values))) or 1.0)
    return Matrix(
        heading=f"{about(found)} · {int(found.masked_heads)} heads removed"
        if "masked_heads" in found
        else about(found),
        rows=[str(v) for v in change.masked.values],
        columns=[str(v) for v in change.function.values],
        values=values,
        ylabel="top heads removed of",
        xlabel="function asked",
        label=f"change of {'log P' if measure == 'log_p' else measure}",
        limit=step * float(np.ceil(np.nanmax(np.abs(values)) / step)) or step,
        written=True,
        borders=[],
        colours=palette_of(colours).diverging,
        beside={},
    )


def agreement(maps: Mapping[str, xr.Dataset], *, palette: str = PUBLISHED) -> Figure:
    """Spearman correlation over heads of all maps of an atlas (datasets by method), and between a gate map's seeds."""
    return draw(plan_agreement(maps, palette))


def plan_agreement(maps: Mapping[str, xr.Dataset], colours: str = PUBLISHED) -> Matrix:
    charts = overview(maps)
    score = charts.score.transpose("chart", "layer", "head").values.reshape(charts.sizes["chart"], -1)
    varied = [i for i, s in enumerate(score) if len(np.unique(s[~np.isnan(s)])) > 1]
    if len(varied) < 2:
        raise BadArgument(f"maps has {len(varied)} maps in which heads differ, expected at least two to compare")
    charts = charts.isel(chart=varied)
    names = [str(n) for n in charts.chart.values]
    values = pd.DataFrame(score[varied].T).corr("spearman").to_numpy()
    of = charts.method.values.tolist()
    kinds = [(m, k) for m, k in zip(of, charts.measure.values.tolist(), strict=True)]
    return Matrix(
        heading=" · ".join(
            p for p in ("Agreement of maps", str(next(iter(maps.values())).attrs.get("model", ""))) if p
        ),
        rows=names,
        columns=names,
        values=values,
        ylabel="",
        xlabel="",
        label="Spearman correlation over heads",
        limit=1.0,
        written=len(names) <= 10,
        borders=[i for i in range(1, len(kinds)) if kinds[i] != kinds[i - 1]],
        colours=palette_of(colours).diverging,
        beside=_between_seeds(maps),
    )


def _between_seeds(maps: Mapping[str, xr.Dataset]) -> dict[str, np.ndarray]:
    """Spearman correlation of every two seeds, by task and role."""
    found = maps.get("gate")
    if found is None or found.sizes.get("seed", 0) < 2:
        return {}
    between = {}
    for i, task in enumerate(found.task.values.tolist()):
        for role in ("facilitation", "interference", "irrelevance"):
            if role in found:
                one = found[role].isel(task=i)
                pairs = combinations(range(one.sizes["seed"]), 2)
                between[f"{task}, {role}"] = np.array(
                    [
                        float(agree(one.isel(seed=a, drop=True), one.isel(seed=b, drop=True), draws=1).spearman)
                        for a, b in pairs
                    ]
                )
    return between


@styled
def draw(plan: Matrix) -> Figure:
    n_rows, n_columns = plan.values.shape
    cell = 0.46 if plan.written else float(np.clip(7.0 / n_rows, 0.06, 0.3))
    size = min(8.0, cell * 72 * 0.8)  # points
    words = 0.0088 * size  # inches a letter
    left = 0.35 + words * max(map(len, plan.rows)) * 0.95
    bottom = 0.35 + words * max(map(len, plan.columns)) * (0.72 if plan.written else 0.95)
    width, height = n_columns * cell, n_rows * cell
    side = 2.4 if plan.beside else 0.0
    apart = 1.6 if plan.beside else 0.0
    total_w, total_h = left + width + 0.95 + apart + side, bottom + max(height, 1.2) + 0.5
    figure = Figure(figsize=(total_w, total_h))
    axes = figure.add_axes((left / total_w, bottom / total_h, width / total_w, height / total_h))
    axes.set_facecolor("#dddddd")
    norm = Normalize(-plan.limit, plan.limit)
    image = axes.imshow(np.ma.masked_invalid(plan.values), cmap=plan.colours, norm=norm, aspect="auto")
    turned = 40 if plan.written else 90
    axes.set_xticks(
        range(n_columns),
        [printable(c) for c in plan.columns],
        rotation=turned,
        ha="right" if plan.written else "center",
        rotation_mode="anchor" if plan.written else "default",
        fontsize=size,
        parse_math=False,
    )
    axes.set_yticks(range(n_rows), [printable(r) for r in plan.rows], fontsize=size, parse_math=False)
    axes.tick_params(length=0)
    axes.set_xlabel(plan.xlabel)
    axes.set_ylabel(plan.ylabel)
    for at in plan.borders:
        axes.axhline(at - 0.5, color="black", linewidth=0.5)
        axes.axvline(at - 0.5, color="black", linewidth=0.5)
    if plan.written:
        for (r, c), value in np.ndenumerate(plan.values):
            if np.isfinite(value):
                dark = abs(value) > 0.6 * plan.limit
                axes.text(
                    c,
                    r,
                    f"{value:.2f}".replace("-", "−"),
                    ha="center",
                    va="center",
                    fontsize=7,
                    color="white" if dark else "black",
                )
    bar = figure.add_axes(((left + width + 0.15) / total_w, bottom / total_h, 0.12 / total_w, height / total_h))
    figure.colorbar(image, cax=bar, label=plan.label)
    if plan.beside:
        tall = min(height, 0.28 * len(plan.beside) + 0.1)
        place = (left + width + 0.95 + apart, bottom + height - tall, side - 0.15, tall)
        seeds = figure.add_axes((place[0] / total_w, place[1] / total_h, place[2] / total_w, place[3] / total_h))
        for i, values in enumerate(plan.beside.values()):
            seeds.plot(values, np.full(len(values), i), "o", markersize=3, color="#333333", alpha=0.6)
        seeds.set_yticks(range(len(plan.beside)), [printable(n) for n in plan.beside], parse_math=False)
        seeds.set_ylim(len(plan.beside) - 0.5, -0.5)
        seeds.set_xlim(-1.05, 1.05)
        seeds.axvline(0, color="#999999", linewidth=0.6)
        seeds.set_title("Seeds of the gate maps, pairwise", fontsize=8)
        seeds.set_xlabel("Spearman correlation", labelpad=2)
    heading(figure, plan.heading, 0.1)
    return figure
