"""All figures that the results of an atlas can be drawn as, with their captions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

from headatlas.errors import BadArgument, check_choice, check_names
from headatlas.figures.figure_names import FIGURES, MARKED, MODULES, PUBLISHED, STYLED, STYLES
from headatlas.figures.picture import Maps, Picture
from headatlas.figures.style import palette as palette_of
from headatlas.methods import measures_of
from headatlas.methods._chance import NO_HEAD_ABOVE
from headatlas.results.charts import stack_maps


def pictures(
    maps: Maps, only: Sequence[str] | None = None, palette: str = PUBLISHED, style: str = MARKED
) -> Iterator[Picture]:
    """Yield the figures that results (by method) can be drawn as.

    only: names of figures; one that cannot be drawn is an error.
    """
    palette_of(palette)
    check_choice("style", style, STYLES)
    selected = check_names("only", only, FIGURES) if only else ()
    charts = stack_maps(maps)
    all_pictures: list[Picture] = []
    for kind in [f for f in FIGURES if not selected or f in selected]:
        module = import_module(f"headatlas.figures.{MODULES[kind]}")
        options = {"palette": palette} | ({"style": style} if kind in STYLED else {})
        of_kind = [replace(p, draw=partial(p.draw, **options)) for p in module.pictures(maps, charts)]
        if not of_kind and selected:
            present = ", ".join(maps) or "no maps"
            raise BadArgument(f"only has {kind!r}, which needs {module.REQUIRED}; there are results of: {present}")
        all_pictures += of_kind
    names: set[str] = set()
    for picture in all_pictures:
        unique_name = f"{picture.name}-{picture.methods[0]}" if picture.name in names else picture.name
        names.add(unique_name)
        yield replace(picture, name=unique_name)


def caption(picture: Picture, maps: Maps, when: Mapping[str, str]) -> str:
    """Return the caption of a figure, with model and settings of its results. when: date of each method."""
    lines = [picture.caption, ""]
    for method in picture.methods:
        result = maps[method]
        settings = {k: v for k, v in result.attrs.items() if k not in ("method", "model", "fingerprint") and str(v)}
        shape = f"{result.sizes['layer']} layers × {result.sizes['head']} heads"
        model = f"{result.attrs.get('model', 'unknown model')} ({result.attrs.get('fingerprint', 'no fingerprint')})"
        listed = ", ".join(f"{k} {_plain(v)}" for k, v in settings.items())
        lines.append(f"{method}: {model}, {shape}; {listed}" + (f"; {when[method]}" if method in when else ""))
    charts = stack_maps({method: maps[method] for method in picture.methods})
    for method in picture.methods:
        first = next((m.name for m in measures_of(method)), "")
        none_above = (charts.method == method) & (charts.measure == first) & charts.none_above
        if names := charts.subject.values[none_above.values].tolist():
            lines.append(f"{method}: {NO_HEAD_ABOVE}: {', '.join(names)}")
    return "\n".join(lines) + "\n"


def _plain(value: Any) -> str:
    return " ".join(map(str, value)) if hasattr(value, "__iter__") and not isinstance(value, str) else str(value)
