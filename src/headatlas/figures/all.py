"""Every figure that an atlas has the results for, with its caption."""

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
from headatlas.methods._chance import no_head_label
from headatlas.results.charts import stack_maps


def pictures(
    maps: Maps, only: Sequence[str] | None = None, palette: str = PUBLISHED, style: str = MARKED
) -> Iterator[Picture]:
    """The figures these results (by method) can be drawn as. only: by name; one that cannot be drawn is an error."""
    palette_of(palette)
    check_choice("style", style, STYLES)
    chosen = check_names("only", only, FIGURES) if only else ()
    charts, possible, names = stack_maps(maps), list[Picture](), set[str]()
    for kind in [f for f in FIGURES if not chosen or f in chosen]:
        module = import_module(f"headatlas.figures.{MODULES[kind]}")
        looks = {"palette": palette} | ({"style": style} if kind in STYLED else {})
        drawn = [replace(p, draw=partial(p.draw, **looks)) for p in module.pictures(maps, charts)]
        if not drawn and chosen:
            here = ", ".join(maps) or "no maps"
            raise BadArgument(f"only has {kind!r}, which needs {module.NEEDS}; here are: {here}")
        possible += drawn
    for picture in possible:
        own_name = f"{picture.name}-{picture.methods[0]}" if picture.name in names else picture.name
        names.add(own_name)
        yield replace(picture, name=own_name)


def caption(picture: Picture, maps: Maps, when: Mapping[str, str]) -> str:
    """What was measured, on what, and when. when: by method."""
    lines = [picture.says, ""]
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
        chosen = (charts.method == method) & (charts.measure == first) & charts.none_above
        if names := charts.subject.values[chosen.values].tolist():
            lines.append(f"{method}: {no_head_label(method)}: {', '.join(names)}")
    return "\n".join(lines) + "\n"


def _plain(value: Any) -> str:
    return " ".join(map(str, value)) if hasattr(value, "__iter__") and not isinstance(value, str) else str(value)
