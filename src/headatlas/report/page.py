"""The page to explore an atlas with: one file that opens from disk and needs no network."""

import html
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import plotly.offline
import xarray as xr

from headatlas.files import atomic_file
from headatlas.report.content import content

REFRESH = 15  # seconds after which a page that waits for results loads itself again
SCRIPTS = ("base", "plots", "maps", "card", "finder", "categories", "removal", "evidence", "start")


@dataclass(frozen=True)
class Tab:
    """A part of the page that comes before all others, made elsewhere (`view`): its HTML, style, script and data."""

    html: str
    style: str
    script: str
    data: dict[str, Any]
    asks: bool  # whether it may ask the server it came from


def write_report(
    maps: Mapping[str, xr.Dataset],
    info: Mapping[str, Any],
    path: Path,
    pending: Mapping[str, float | None] | None = None,
    tab: Tab | None = None,
    agreed: xr.Dataset | None = None,
) -> None:
    """Write the page of an atlas: datasets by method, and what atlas.json says.

    pending: methods that are still being computed, with the seconds that each will take, as far as known. agreed: what
    `compare` says of these maps.
    """
    text = page(maps, info, pending or {}, tab, agreed)
    with atomic_file(path) as aside:
        aside.write_text(text, encoding="utf-8", errors="backslashreplace")  # a folder's name may not be UTF-8


def page(
    maps: Mapping[str, xr.Dataset],
    info: Mapping[str, Any],
    pending: Mapping[str, float | None] | None = None,
    tab: Tab | None = None,
    agreed: xr.Dataset | None = None,
) -> str:
    """The page as HTML, for datasets by method and what atlas.json says."""
    told = {name: value for name, value in info.items() if name != "shown"}  # only runs need that
    shown = content(maps, told, pending or {}, agreed) | {"live": tab.data if tab else None}
    script = "".join([*(_own(f"{name}.js") for name in SCRIPTS), tab.script if tab else "", "start();\n"])
    parts = {
        "refresh": f'<meta http-equiv="refresh" content="{REFRESH}">' if pending else "",
        "connect": " connect-src 'self';" if tab and tab.asks else "",
        "title": html.escape(f"HeadAtlas: {shown['model']}"),
        "style": _own("page.css") + (tab.style if tab else ""),
        "tab": tab.html if tab else "",
        "plotly": _inside_script(plotly.offline.get_plotlyjs()),
        "data": embed(shown),
        "script": _inside_script(f'"use strict";\n(() => {{\n{script}}})();\n'),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _own("page.html"))


def embed(value: Any) -> str:
    """JSON that no HTML parser can take for markup, whatever names and tokens are in it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))  # ASCII: U+2028 is escaped too
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _inside_script(code: str) -> str:
    """Code whose strings can neither end their script element nor start a comment."""
    return re.sub(r"<(?=/script|!--)", r"\\x3c", code, flags=re.IGNORECASE)


def _own(name: str) -> str:
    return (files("headatlas.report") / "web" / name).read_text(encoding="utf-8")
