"""Every figure that an atlas has the results for, with its caption."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from headatlas.errors import BadArgument, did_you_mean
from headatlas.figures.names import FIGURES, MODULES, PUBLISHED
from headatlas.figures.picture import Maps, Picture
from headatlas.figures.style import palette as palette_of
from headatlas.methods import measures_of
from headatlas.methods._chance import none_in_words
from headatlas.results.charts import overview


def pictures(maps: Maps, only: Sequence[str] | None = None, palette: str = PUBLISHED) -> Iterator[Picture]:
    """The figures these results (by method) can be drawn as. only: some by name; one that cannot be is an error."""
    palette_of(palette)
    for name in only or ():
        if name not in FIGURES:
            raise BadArgument(f"only has {name!r}, expected some of {', '.join(FIGURES)}.{did_you_mean(name, FIGURES)}")
    charts, names = overview(maps), set[str]()
    possible = {
        kind: list(_module(kind).pictures(maps, charts, palette)) for kind in FIGURES if not only or kind in only
    }
    for kind in only or ():
        if not possible[kind]:
            needs = _module(kind).NEEDS
            raise BadArgument(f"only has {kind!r}, which needs {needs}; here are: {', '.join(maps) or 'no maps'}")
    for picture in (p for kind in possible.values() for p in kind):
        own_name = f"{picture.name}-{picture.methods[0]}" if picture.name in names else picture.name
        names.add(own_name)
        yield replace(picture, name=own_name)


def _module(kind: str) -> Any:
    return import_module(f"headatlas.figures.{MODULES[kind]}")


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
    charts = overview({method: maps[method] for method in picture.methods})
    for method in picture.methods:
        first = next((m.name for m in measures_of(method)), "")
        chosen = (charts.method == method) & (charts.measure == first) & charts.none_above
        if names := charts.subject.values[chosen.values].tolist():
            lines.append(f"{method}: {none_in_words(method)}: {', '.join(names)}")
    return "\n".join(lines) + "\n"


def _plain(value: Any) -> str:
    return " ".join(map(str, value)) if hasattr(value, "__iter__") and not isinstance(value, str) else str(value)
