"""F3, the always / any grid: the heads a task needs in every circuit result, and in at least one."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import xarray as xr
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from headatlas.errors import check_choice
from headatlas.figures.arguments import check_dataset, lacks
from headatlas.figures.figure_names import MARKED, PUBLISHED, STYLES
from headatlas.figures.heatmaps import Heatmaps, Panel, Scale, axis_ticks, draw, marks_key
from headatlas.figures.picture import Maps, Picture
from headatlas.figures.style import capital
from headatlas.figures.style import palette as palette_of
from headatlas.methods import measures_of, variables_shown_as
from headatlas.results.about import describe_result, subject_dim, unit_of
from headatlas.results.outcomes import outcomes

OVER = {"always": "Always", "any": "Any"}
SEEDS = {"always": "minimum", "any": "maximum"}
MEANING = ("facilitating", "irrelevant", "interfering")
KINDS = ("score", "roles")
NEEDS = "always and any over (task, layer, head); for show='roles', the three roles that its method declares"
SAYS = "How far each head facilitates a task: the least over seeds (always) and the most (any)."
SAYS_ROLES = (
    "The three roles of each head as colours, as bright as their scores: the least over seeds (always) and the"
    " most (any). Mixtures are disagreement between seeds."
)


def pictures(maps: Maps, charts: xr.Dataset) -> Iterator[Picture]:
    for method, result in maps.items():
        if has_always_any(result):
            yield Picture("always-any", partial(always_any, result), SAYS, [method])
        if has_roles(result):
            draw_roles = partial(always_any, result, "roles")
            yield Picture("always-any-roles", draw_roles, SAYS_ROLES, [method])


def roles_of(result: xr.Dataset) -> tuple[str, ...]:
    """Return the three measures of a result that are roles of heads; () where its method declares none."""
    return variables_shown_as("roles", str(result.attrs.get("method", "")))


def has_always_any(result: xr.Dataset) -> bool:
    """Whether it says of every subject how far heads have roles over all seeds."""
    if not roles_of(result) or not set(OVER) <= set(result):
        return False
    dims = [set(result[name].dims) for name in OVER]
    return dims[0] == dims[1] and dims[0] > {"layer", "head"} and len(dims[0]) == 3


def has_roles(result: xr.Dataset) -> bool:
    """Whether heads have roles for every subject."""
    roles = roles_of(result)
    return bool(roles) and all(name in result and {"layer", "head"} < set(result[name].dims) for name in roles)


def always_any(result: xr.Dataset, show: str = "score", *, palette: str = PUBLISHED, style: str = MARKED) -> Figure:
    """One row per task, one column per way of aggregating over seeds: the minimum (always) and the maximum (any).

    show: 'score', how far heads facilitate, on one scale; or 'roles', the three roles as colours. Mixed colours are
    disagreement between seeds. style: 'marked' adds the number of seeds, frames around the heads that a test removed,
    and its outcome; 'published' leaves these out.
    """
    check_dataset(result, NEEDS)
    return draw(plan(result, show, palette, style))


def plan(result: xr.Dataset, show: str = "score", colours: str = PUBLISHED, style: str = MARKED) -> Heatmaps:
    """What the grid shows."""
    used = palette_of(colours)
    check_choice("style", style, STYLES)
    check_choice("show", show, KINDS)
    if not (has_always_any(result) if show == "score" else has_roles(result)):
        raise lacks(result, tuple(OVER) if show == "score" else roles_of(result), NEEDS)
    method = str(result.attrs.get("method", ""))
    measured = next((m.name for m in measures_of(method)), "")
    dim = subject_dim(result["always" if show == "score" else roles_of(result)[0]])
    tested = outcomes(method, result) if style == MARKED and show == "score" else {}
    panels = []
    for i, task in enumerate(map(str, result[dim].values)):
        for over, title in OVER.items():
            one, outcome = result.isel({dim: i}), tested.get((measured, task))
            values = one[over].transpose("layer", "head").values if show == "score" else _mixed(one, over, used.roles)
            panel = Panel(f"{capital(task)} ({title})", values.astype(np.float64))
            if style == MARKED and "seed" in result.sizes:
                panel = replace(panel, notes=(f"{SEEDS[over]} of {result.sizes['seed']} seeds",))
            if outcome:
                panel = replace(panel, framed=outcome.removed, notes=(*panel.notes, outcome.text))
            panels.append(panel)
    xticks, yticks = axis_ticks(result.sizes["layer"], result.sizes["head"], every=3, most=12)
    scale = None
    if show == "score":
        end = int(np.ceil(max((float(np.nanmax(p.values, initial=0)) for p in panels), default=1.0) - 1e-9)) or 1
        end = max(end, int(result.attrs.get("group_size", 1)))
        places = [float(v) for v in np.linspace(0, end, 6)]
        scale = Scale(capital(f"{measured} score".strip()), 0, end, places, [f"{p:.1f}" for p in places], used.score)
    legend = [*zip(used.roles, MEANING, strict=True), ("#000000", "no role in every seed")] if show == "roles" else []
    return Heatmaps(
        describe_result(result),
        panels,
        2,
        unit_of(result),
        "Layer",
        xticks,
        yticks,
        scale,
        legend,
        marks_key(panels, ""),
    )


def _mixed(one: xr.Dataset, over: str, colours: tuple[str, ...]) -> np.ndarray:
    """The roles' colours, each as bright as its score: [layer, head, 3]."""
    scores = [one[role] for role in roles_of(one)]
    if "seed" in one.dims:
        scores = [s.min("seed") if over == "always" else s.max("seed") for s in scores]
    parts = [
        s.transpose("layer", "head").values[..., None] * np.array(to_rgb(c))
        for s, c in zip(scores, colours, strict=True)
    ]
    mixed = np.sum(parts, axis=0) / int(one.attrs.get("group_size", 1))
    mixed[np.isnan(mixed)] = 0.74  # layers without heads
    return np.clip(mixed, 0, 1)
