"""What the page shows: an atlas's datasets as one plain dictionary that JSON can hold.

How it looks is in the files of web/.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import xarray as xr

from headatlas.figures.colour_scale import DIMMED
from headatlas.methods import methods, title_of
from headatlas.progress import duration_in_words
from headatlas.report.charts import agreement, chart_rows, first_chart, groups, page_order
from headatlas.report.heads import always, categories, tokens
from headatlas.report.proof import curves, evidence, special
from headatlas.results.charts import stack_maps

Maps = Mapping[str, xr.Dataset]
ARXIV = re.compile(r",? arXiv ([\d.]+)$")


def content(
    maps: Maps,
    info: Mapping[str, Any],
    pending: Mapping[str, float | None] | None = None,
    agreed: xr.Dataset | None = None,
) -> dict[str, Any]:
    """Everything on the page, for datasets by method and what atlas.json says; what is missing is left out.

    pending: methods that are still being computed, and the seconds each will take, as far as known. agreed: what
    `compare` says of these maps.
    """
    maps = {method: result.assign_attrs(method=method) for method, result in maps.items()}
    model = dict(info.get("model") or {})
    layers, heads = (_grid(maps, dim, model.get(size)) for dim, size in (("layer", "n_layers"), ("head", "n_heads")))
    grid = {"layer": layers, "head": heads}
    charts = stack_maps(maps)
    charts = charts.reindex(grid, fill_value={"at_chance": False}) if charts.sizes["chart"] else charts
    rows = chart_rows(charts, maps)
    return {
        "model": str(model.get("name") or "a model"),
        "pending": [
            title_of(method) + ("" if left is None else f" (about {duration_in_words(left)})")
            for method, left in (pending or {}).items()
        ],
        "failed": _failed(info, pending or {}),
        "layers": layers,
        "heads": heads,
        "charts": rows,
        "first": first_chart(charts, maps),
        "dimmed": DIMMED,
        "groups": list(groups(charts, rows, maps)),
        "categories": categories(maps.values(), grid),
        "always": list(always(maps.values(), grid)),
        "curves": list(curves(maps, rows)),
        "agreement": agreement(charts, agreed),
        "special": list(special(maps)),
        "evidence": evidence(maps),
        "tokens": tokens(maps.values(), grid),
        "provenance": _provenance(maps, info),
        "cite": _cite(maps),
    }


def _grid(maps: Maps, dim: str, size: object) -> list[int]:
    """Numbers of the layers or heads that the model or any dataset has."""
    named = [int(v) for result in maps.values() if dim in result.dims for v in result[dim].values]
    return sorted({*named, *range(size if isinstance(size, int) else 0)})


def _failed(info: Mapping[str, Any], pending: Mapping[str, float | None]) -> list[dict[str, str]]:
    """Methods that were asked for and could not be done, or drawn, and why."""
    methods_of_run = dict(info.get("methods") or {}).items()
    reasons = {name: about.get("not_drawn" if about.get("complete") else "why") for name, about in methods_of_run}
    return [{"title": title_of(name), "why": str(why)} for name, why in reasons.items() if why and name not in pending]


def _provenance(maps: Maps, info: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Tables of names and values: the model, the run, and every result's attributes, less what the run says already."""
    tables = [(name.capitalize(), dict(_flat(info.get(name) or {}))) for name in ("model", "run")]
    told = {(k.removeprefix("versions "), v) for _, rows in tables for k, v in rows.items()}
    rest = {k: v for k, v in info.items() if k not in ("model", "run", "methods")}
    tables.append(("Atlas", dict(_flat(rest))))
    for method, result in maps.items():
        rows = dict(_flat(result.attrs))
        tables.append((title_of(method), {k: v for k, v in rows.items() if (k, v) not in told and k != "method" and v}))
    return [{"title": title, "rows": list(rows.items())} for title, rows in tables if rows]


def _flat(values: Mapping[Any, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        name = f"{before}{key}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name} ")
        elif isinstance(value, (list, tuple, np.ndarray)):
            yield name, ", ".join(map(str, value)) or "none"
        else:
            yield name, "none" if value is None else str(value)


def _cite(maps: Maps) -> list[dict[str, str]]:
    """What the methods cite, and where on arXiv it is."""
    cited = dict.fromkeys(text for name in page_order(maps) if name in methods() for text in methods()[name].cites)
    return [{"text": ARXIV.sub("", text), "arxiv": "".join(ARXIV.findall(text))} for text in cited]
