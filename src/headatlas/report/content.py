"""Collect what the page shows: the datasets of an atlas as one dictionary of plain values for JSON.

The files of web/ lay it out.
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
from headatlas.report.tests import evidence, special, tests
from headatlas.results.charts import stack_maps

Maps = Mapping[str, xr.Dataset]
ARXIV = re.compile(r",? arXiv ([\d.]+)$")


def content(
    maps: Maps,
    info: Mapping[str, Any],
    pending: Mapping[str, float | None] | None = None,
    compared: xr.Dataset | None = None,
) -> dict[str, Any]:
    """Return everything on the page: from datasets by method, and from the content of atlas.json (info).

    pending: methods that are still being computed, with the expected seconds if known. compared: a result of `compare`
    for these maps.
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
            title_of(method) + ("" if seconds is None else f" (about {duration_in_words(seconds)})")
            for method, seconds in (pending or {}).items()
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
        "tests": list(tests(maps, rows)),
        "agreement": agreement(charts, compared),
        "special": list(special(maps)),
        "evidence": evidence(maps),
        "tokens": tokens(maps.values(), grid),
        "provenance": _provenance(maps, info),
        "cite": _cite(maps),
    }


def _grid(maps: Maps, dim: str, size: object) -> list[int]:
    """Return the numbers of the layers or heads that the model or any dataset has."""
    named = [int(v) for result in maps.values() if dim in result.dims for v in result[dim].values]
    return sorted({*named, *range(size if isinstance(size, int) else 0)})


def _failed(info: Mapping[str, Any], pending: Mapping[str, float | None]) -> list[dict[str, str]]:
    """List methods that failed, or whose figures could not be drawn, and why."""
    methods_of_run = dict(info.get("methods") or {}).items()
    reasons = {name: about.get("not_drawn" if about.get("complete") else "why") for name, about in methods_of_run}
    reasons |= {"tests": dict(info.get("tests") or {}).get("why")}
    return [{"title": title_of(name), "why": str(why)} for name, why in reasons.items() if why and name not in pending]


def _provenance(maps: Maps, info: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return tables of names and values: model, run, and attributes of results that are not those of the run."""
    tables = [(name.capitalize(), dict(_flat(info.get(name) or {}))) for name in ("model", "run")]
    shown = {(k.removeprefix("versions "), v) for _, rows in tables for k, v in rows.items()}
    rest = {k: v for k, v in info.items() if k not in ("model", "run", "methods")}
    tables.append(("Atlas", dict(_flat(rest))))
    for method, result in maps.items():
        rows = dict(_flat(result.attrs))
        rows = {k: v for k, v in rows.items() if (k, v) not in shown and k != "method" and v}
        tables.append((title_of(method), rows))
    return [{"title": title, "rows": list(rows.items())} for title, rows in tables if rows]


def _flat(values: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield names and values of nested mappings as text."""
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name} ")
        elif isinstance(value, (list, tuple, np.ndarray)):
            yield name, ", ".join(map(str, value)) or "none"
        else:
            yield name, "none" if value is None else str(value)


def _cite(maps: Maps) -> list[dict[str, str]]:
    """Return the papers that the methods cite, with their arXiv numbers."""
    cited = dict.fromkeys(text for name in page_order(maps) if name in methods() for text in methods()[name].cites)
    return [{"text": ARXIV.sub("", text), "arxiv": "".join(ARXIV.findall(text))} for text in cited]
