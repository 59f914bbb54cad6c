"""F3, the always / any grid: the heads a task needs in every circuit found, and in at least one."""

import numpy as np
import xarray as xr
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from headatlas.errors import BadArgument, did_you_mean
from headatlas.figures.heatmaps import Heatmaps, Panel, Scale, axis_ticks, draw
from headatlas.figures.style import PUBLISHED, capital
from headatlas.figures.style import palette as palette_of
from headatlas.results.about import about, unit
from headatlas.results.reading import check_result

OVER = {"always": "Always", "any": "Any"}
ROLES = ("facilitation", "irrelevance", "interference")
MEANING = ("facilitating", "irrelevant", "interfering")
KINDS = ("score", "roles")


def always_any(found: xr.Dataset, show: str = "score", *, palette: str = PUBLISHED) -> Figure:
    """One row per task, one column per way of aggregating over seeds: the minimum (always) and the maximum (any).

    show: 'score', how far heads facilitate, on one scale; or 'roles', the three roles as colours, whose mixtures are disagreement.
    """
    check_result("found", found, "gate")
    return draw(plan(found, show, palette))


def plan(found: xr.Dataset, show: str = "score", colours: str = PUBLISHED) -> Heatmaps:
    """What the grid shows."""
    used = palette_of(colours)
    if show not in KINDS:
        raise BadArgument(f"show is {show!r}, expected one of {', '.join(KINDS)}.{did_you_mean(show, KINDS)}")
    wanted = list(OVER) if show == "score" else list(ROLES)
    if missing := [name for name in wanted if name not in found]:
        here = ", ".join(map(str, found.data_vars)) or "nothing"
        raise BadArgument(f"found has no {', '.join(missing)}, as `gate` gives; it has {here}")
    tasks = [str(t) for t in found.task.values]
    panels = []
    for i, task in enumerate(tasks):
        for over, title in OVER.items():
            one = found.isel(task=i)
            values = one[over].transpose("layer", "head").values if show == "score" else _mixed(one, over, used.roles)
            panels.append(Panel(f"{capital(task)} ({title})", values.astype(np.float64)))
    xticks, yticks = axis_ticks(found.sizes["layer"], found.sizes["head"], every=3, most=12)
    scale = None
    if show == "score":
        end = int(np.ceil(max((float(np.nanmax(p.values, initial=0)) for p in panels), default=1.0) - 1e-9)) or 1
        end = max(end, int(found.attrs.get("group_size", 1)))
        places = [float(v) for v in np.linspace(0, end, 6)]
        scale = Scale("Facilitation score", 0, end, places, [f"{p:.1f}" for p in places], used.score)
    legend = [*zip(used.roles, MEANING, strict=True), ("#000000", "no role in every seed")] if show == "roles" else []
    return Heatmaps(about(found), panels, 2, unit(found), "Layer", xticks, yticks, scale, legend)


def _mixed(one: xr.Dataset, over: str, colours: tuple[str, ...]) -> np.ndarray:
    """The roles' colours, each as bright as its score: [layer, head, 3]."""
    scores = [one[role] for role in ROLES]
    if "seed" in one.dims:
        scores = [s.min("seed") if over == "always" else s.max("seed") for s in scores]
    parts = [
        s.transpose("layer", "head").values[..., None] * np.array(to_rgb(c))
        for s, c in zip(scores, colours, strict=True)
    ]
    mixed = np.sum(parts, axis=0) / int(one.attrs.get("group_size", 1))
    mixed[np.isnan(mixed)] = 0.74  # layers without heads
    return np.clip(mixed, 0, 1)
