"""The accessor of every result: `result.heads.top(5)`, `.gates("math")`, `.card("L23.H4")`, `.figure()`.

Notebooks show `result.heads` and an atlas as a table and a thumbnail. Drawing is imported when something is drawn,
because computing needs no matplotlib.
"""

import base64
import io
from collections.abc import Mapping
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr

from headatlas.errors import BadArgument, CannotDo, brief, check_choice, check_count
from headatlas.methods import measures_of, title_of
from headatlas.models.head_names import check_head, head_numbers
from headatlas.results.about import describe_result, subject_of
from headatlas.results.card import Card, card
from headatlas.results.outcomes import NOT_TESTED, outcomes
from headatlas.results.tables import all_heads, heads

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@xr.register_dataset_accessor("heads")
class Heads:
    """The accessor `result.heads`: tables, masks, cards and figures of one result."""

    def __init__(self, result: xr.Dataset) -> None:
        self._result = result

    @property
    def _by_method(self) -> dict[str, xr.Dataset]:
        method = str(self._result.attrs.get("method", ""))
        if not {"layer", "head"} <= set(self._result.dims) or not method:
            raise BadArgument(
                "this dataset is not a result: it needs the dimensions layer and head, and the attribute method"
            )
        return {method: self._result}

    @property
    def subject(self) -> str:
        """Return the dimension of the subjects of the maps: function, relation, task, pattern, …"""
        return subject_of(self._result)

    def top(self, n: int = 10, subject: str | None = None, measure: str | None = None) -> pd.DataFrame:
        """Rank the top heads of one subject, or of every subject: a row per head.

        Args:
            n: number of heads per subject.
            subject: function, relation or task (default: all).
            measure: measure that ranks the heads (default: the method's first; for gate, facilitation).
        """
        check_count("n", n, 1)
        by_method = self._by_method
        if subject is not None and not isinstance(subject, str):
            raise BadArgument(f"subject is {brief(subject)}, expected the name of a function, relation or task")
        table = pd.DataFrame(all_heads(by_method, n) if subject is None else heads(by_method, subject, n))
        if table.empty:
            return table
        measures = list(dict.fromkeys(table["measure"]))
        if measure is not None:
            check_choice("measure", measure, measures)
        return table[table["measure"] == (measure or measures[0])].reset_index(drop=True)

    def gates(self, subject: str) -> np.ndarray:
        """Make a mask [layer, head] for `lm.gated` that turns a function off: 0 for its heads, 1 for others.

        Its heads are those that a test supports; without such a test, those that the method `selected`.

        Raises:
            CannotDo: there are no such heads, so the mask would leave the whole model on.
        """
        result = self._result
        method = str(result.attrs.get("method"))
        tested = {name: o for (measure, name), o in outcomes(result).items() if measure == measures_of(method)[0].name}
        selected = result["selected"] if "selected" in result and result.selected.ndim == 3 else None
        if not tested and selected is None:
            raise BadArgument(f"method {method!r} has no heads to turn off: its maps are not tested, nor `selected`")
        check_choice(self.subject, subject, [str(name) for name in result[self.subject].values])
        outcome = tested.get(subject)
        if outcome is not None and outcome.supported:
            heads = outcome.heads
        elif selected is not None:
            heads = selected.sel({self.subject: subject}).transpose("layer", "head").values.astype(bool)
        else:
            heads = np.zeros((result.sizes["layer"], result.sizes["head"]), bool)
        if not heads.any():
            raise CannotDo(
                f"no test supports heads of {self.subject} {subject!r}, so there are none to turn off:"
                f" {outcome.text if outcome else NOT_TESTED}"
            )
        return np.where(heads, 0.0, 1.0)

    def card(self, head: str) -> Card:
        """Collect what the result has on one head, such as "L23.H4"."""
        layer, number = head_numbers(head)
        by_method = self._by_method
        check_head(layer, number, self._result.sizes["layer"], self._result.sizes["head"])
        return card(by_method, layer, number)

    def figure(self, name: str | None = None) -> "Figure":
        """Draw the result. name: a figure of the method (default: its first)."""
        pictures = {p.name: p for p in import_module("headatlas.figures.all").pictures(self._by_method)}
        if not pictures:
            raise BadArgument(f"there is no figure for this result of method {self._result.attrs.get('method')!r}")
        if name is not None:
            check_choice("name", name, pictures)
        return pictures[name or next(iter(pictures))].draw()

    def _repr_html_(self) -> str:
        result = self._result
        measures = measures_of(str(result.attrs.get("method")))
        maps = [set(result[m.name].dims) >= {m.over, "layer", "head"} for m in measures if m.name in result]
        if not all(maps) or not all(result.sizes.get(d) for d in ("layer", "head")):
            # A selection of a result, such as one layer, has no maps to rank or draw.
            return result._repr_html_()
        table = self.top(3)[:12]
        return _thumbnail(self._by_method) + table.to_html(index=False, na_rep="", float_format="{:.3g}".format)


def show_atlas(results: Mapping[str, xr.Dataset], info: Mapping[str, Any], folder: str) -> str:
    """Show an atlas as HTML: its model, a row per method, the first figure."""
    model = info["model"]
    rows = [
        f"<tr><td>{escape(title_of(name))}</td><td>{escape(_subjects(name, result))}</td>"
        f"<td>{escape(str(result.attrs.get('preset', '')))}</td></tr>"
        for name, result in results.items()
    ]
    title = f"{model['name']}: {model['n_layers']} layers × {model['n_heads']} heads"
    table = f"<table><tr><th>method</th><th>maps</th><th>preset</th></tr>{''.join(rows)}</table>"
    return f"<div><b>{escape(title)}</b> <code>{escape(folder)}</code>{table}{_thumbnail(results)}</div>"


def _subjects(method: str, result: xr.Dataset) -> str:
    for measure in measures_of(method):
        if measure.over in result.coords and result[measure.over].ndim:
            names = [str(v) for v in result[measure.over].values]
            return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    return describe_result(result)


def _thumbnail(results: Mapping[str, xr.Dataset]) -> str:
    """Draw the first figure of results as a small image inside HTML; empty without figures."""
    first = next(iter(import_module("headatlas.figures.all").pictures(results)), None)
    if first is None:
        return ""
    image = io.BytesIO()
    import_module("headatlas.figures.style").save(first.draw(), image, "png", dpi=60)
    data = base64.b64encode(image.getvalue()).decode()
    return f'<img alt="head maps" style="max-width:640px" src="data:image/png;base64,{data}">'
