"""How results show themselves in a notebook: a small table and a thumbnail of the map."""

import base64
import io
from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from headatlas.errors import BadArgument, did_you_mean
from headatlas.figures.all import pictures
from headatlas.figures.style import save
from headatlas.results.about import NAMES, about
from headatlas.results.charts import MEASURES


class HeadMaps(xr.Dataset):
    """An xarray.Dataset of head maps that a notebook shows as a thumbnail above xarray's own description."""

    __slots__ = ()

    def gates(self, subject: str) -> np.ndarray:
        """A mask [layer, head] for `lm.gated` that turns a function off: 0 for the heads `selected` for it, 1 elsewhere."""
        if "selected" not in self:
            raise BadArgument(f"method {self.attrs.get('method')!r} selects no heads: dissociate and probe do")
        known = [str(f) for f in self["function"].values]
        if subject not in known:
            raise BadArgument(
                f"function is {subject!r}, expected one of {', '.join(known)}.{did_you_mean(str(subject), known)}"
            )
        selected = self["selected"].sel(function=subject).transpose("layer", "head").values
        return np.where(selected, 0.0, 1.0)

    def _repr_html_(self) -> str:
        method = str(self.attrs.get("method", ""))
        whole = all(set(self[n].dims) >= {d, "layer", "head"} for n, d in MEASURES.get(method, ()) if n in self)
        drawn = (
            next(iter(pictures({method: self})), None)
            if whole and all(self.sizes.get(d) for d in ("layer", "head"))
            else None
        )
        picture = "" if drawn is None else thumbnail(drawn.draw())
        return picture + super()._repr_html_()


def show_maps(found: xr.Dataset) -> HeadMaps:
    return HeadMaps(found.data_vars, found.coords, found.attrs)


def show_atlas(maps: Mapping[str, xr.Dataset], info: Mapping[str, Any], folder: str) -> str:
    """An atlas as HTML: what it is of, a row per method, the first map."""
    model = info["model"]
    rows = [
        f"<tr><td>{escape(NAMES.get(name, name))}</td><td>{escape(_subjects(found))}</td>"
        f"<td>{escape(str(found.attrs.get('preset', '')))}</td></tr>"
        for name, found in maps.items()
    ]
    first = next(iter(pictures(maps)), None)
    title = f"{model['name']}: {model['n_layers']} layers × {model['n_heads']} heads"
    table = f"<table><tr><th>method</th><th>maps</th><th>preset</th></tr>{''.join(rows)}</table>"
    picture = "" if first is None else thumbnail(first.draw())
    return f"<div><b>{escape(title)}</b> <code>{escape(folder)}</code>{table}{picture}</div>"


def _subjects(found: xr.Dataset) -> str:
    for dim in ("function", "relation", "task", "pattern"):
        if dim in found.coords:
            names = [str(v) for v in found[dim].values]
            return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    return about(found)


def thumbnail(figure: Figure) -> str:
    """A figure as a small image inside HTML."""
    memory = io.BytesIO()
    save(figure, memory, "png", dpi=60)
    data = base64.b64encode(memory.getvalue()).decode()
    return f'<img alt="head maps" style="max-width:640px" src="data:image/png;base64,{data}">'
