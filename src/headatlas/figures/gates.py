"""F3, the always / any grid: heads that a task needs in every circuit found, and in at least one."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import xarray as xr
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from headatlas.errors import check_choice
from headatlas.figures.arguments import check_dataset, missing_error
from headatlas.figures.figure_names import MARKED, PUBLISHED, STYLES
from headatlas.figures.heatmaps import Heatmaps, Panel, Scale, axis_ticks, draw, marks_key
from headatlas.figures.picture import Maps, Picture
from headatlas.figures.style import capital
from headatlas.figures.style import palette as palette_of
from headatlas.methods import measures_of, variables_shown_as
from headatlas.results.about import describe_result, subject_dim, unit_of
from headatlas.results.outcomes import outcomes
from headatlas.results.stored_reliability import reliability_notes

OVER = {"always": "Always", "any": "Any"}
SEEDS = {"always": "minimum", "any": "maximum"}
MEANING = ("facilitating", "irrelevant", "interfering")
KINDS = ("score", "roles")
REQUIRED = "always and any over (task, layer, head); for show='roles', the three roles that its method declares"
CAPTION = "How far each head facilitates a task: the least over seeds (always) and the most (any)."
ROLES_CAPTION = (
    "The three roles of each head as colours, as bright as their scores: the least over seeds (always) and the"
    " most (any). Mixtures are disagreement between seeds."
)


def pictures(maps: Maps, charts: xr.Dataset) -> Iterator[Picture]:
    """Yield the figures of every result with roles over seeds."""
    for method, result in maps.items():
        if has_always_any(result):
            yield Picture("always-any", partial(always_any, result), CAPTION, [method])
        if has_roles(result):
            draw_roles = partial(always_any, result, "roles")
            yield Picture("always-any-roles", draw_roles, ROLES_CAPTION, [method])


def roles_of(result: xr.Dataset) -> tuple[str, ...]:
    """Return the three measures that are roles of heads; () if the method declares none."""
    return variables_shown_as("roles", str(result.attrs.get("method", "")))


def has_always_any(result: xr.Dataset) -> bool:
    """Return whether a result has the minimum and maximum over seeds for every subject."""
    if not roles_of(result) or not set(OVER) <= set(result):
        return False
    dims = [set(result[name].dims) for name in OVER]
    return dims[0] == dims[1] and dims[0] > {"layer", "head"} and len(dims[0]) == 3


def has_roles(result: xr.Dataset) -> bool:
    """Return whether a result has the scores of all roles."""
    roles = roles_of(result)
    return bool(roles) and all(name in result and {"layer", "head"} < set(result[name].dims) for name in roles)


def always_any(result: xr.Dataset, show: str = "score", *, palette: str = PUBLISHED, style: str = MARKED) -> Figure:
    """Draw a row per task and a column per aggregate over seeds: the minimum (always) and the maximum (any).

    show: 'score', how far heads facilitate, on one scale; or 'roles', the three roles as colours. Mixed colours show
    disagreement between seeds. style: 'marked' adds the number of seeds, frames around the tested heads,
    and the outcome; 'published' leaves these out.
    """
    check_dataset(result, REQUIRED)
    return draw(plan(result, show, palette, style))


def plan(result: xr.Dataset, show: str = "score", colours: str = PUBLISHED, style: str = MARKED) -> Heatmaps:
    """Plan the grid."""
    used = palette_of(colours)
    check_choice("style", style, STYLES)
    check_choice("show", show, KINDS)
    if not (has_always_any(result) if show == "score" else has_roles(result)):
        raise missing_error(result, tuple(OVER) if show == "score" else roles_of(result), REQUIRED)
    method = str(result.attrs.get("method", ""))
    measured = next((m.name for m in measures_of(method)), "")
    dim = subject_dim(result["always" if show == "score" else roles_of(result)[0]])
    tested = outcomes(result) if style == MARKED and show == "score" else {}
    notes = reliability_notes(result, measured) if style == MARKED else {}
    panels = []
    for i, task in enumerate(map(str, result[dim].values)):
        for over, title in OVER.items():
            row = result.isel({dim: i})
            outcome = tested.get((measured, task))
            if show == "score":
                values = row[over].transpose("layer", "head").values
            else:
                values = _mixed_colours(row, over, used.roles)
            panel = Panel(f"{capital(task)} ({title})", values.astype(np.float64))
            if style == MARKED and "seed" in result.sizes:
                panel = replace(panel, notes=(f"{SEEDS[over]} of {result.sizes['seed']} seeds",))
            if notes.get(task):
                panel = replace(panel, notes=(*panel.notes, notes[task]))
            if outcome:
                panel = replace(panel, framed=outcome.heads, notes=(*panel.notes, outcome.text))
            panels.append(panel)
    xticks, yticks = axis_ticks(result.sizes["layer"], result.sizes["head"], every=3, max_ticks=12)
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


def _mixed_colours(row: xr.Dataset, over: str, colours: tuple[str, ...]) -> np.ndarray:
    """Mix the roles' colours, each as bright as its score: [layer, head, 3]."""
    scores = [row[role] for role in roles_of(row)]
    if "seed" in row.dims:
        scores = [s.min("seed") if over == "always" else s.max("seed") for s in scores]
    parts = [
        s.transpose("layer", "head").values[..., None] * np.array(to_rgb(c))
        for s, c in zip(scores, colours, strict=True)
    ]
    mixed = np.sum(parts, axis=0) / int(row.attrs.get("group_size", 1))
    # Grey for layers without heads.
    mixed[np.isnan(mixed)] = 0.74
    return np.clip(mixed, 0, 1)
