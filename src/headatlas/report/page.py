"""Write the page of an atlas: one file that opens from disk and needs no network."""

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

REFRESH_SECONDS = 15  # for pages that wait for results
SCRIPTS = ("base", "plots", "maps", "card", "finder", "categories", "tests", "evidence", "start")


@dataclass(frozen=True)
class Tab:
    """A part of the page that comes first and is made elsewhere (`view`): its HTML, style, script and data."""

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
    compared: xr.Dataset | None = None,
) -> None:
    """Write the page of an atlas from datasets by method and the content of atlas.json (info).

    pending: methods that are still being computed, with the expected seconds if known. compared: a result of `compare`
    for these maps.
    """
    text = page(maps, info, pending or {}, tab, compared)
    with atomic_file(path) as temporary:
        # Names of folders may not be UTF-8.
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def page(
    maps: Mapping[str, xr.Dataset],
    info: Mapping[str, Any],
    pending: Mapping[str, float | None] | None = None,
    tab: Tab | None = None,
    compared: xr.Dataset | None = None,
) -> str:
    """Return the page as HTML; see `write_report`."""
    # `shown` is for runs only.
    page_info = {name: value for name, value in info.items() if name != "shown"}
    shown = content(maps, page_info, pending or {}, compared) | {"live": tab.data if tab else None}
    script = "".join([*(_web_file(f"{name}.js") for name in SCRIPTS), tab.script if tab else "", "start();\n"])
    parts = {
        "refresh": f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">' if pending else "",
        "connect": " connect-src 'self';" if tab and tab.asks else "",
        "title": html.escape(f"HeadAtlas: {shown['model']}"),
        "style": _web_file("page.css") + (tab.style if tab else ""),
        "tab": tab.html if tab else "",
        "plotly": _inside_script(plotly.offline.get_plotlyjs()),
        "data": embed(shown),
        "script": _inside_script(f'"use strict";\n(() => {{\n{script}}})();\n'),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _web_file("page.html"))


def embed(value: Any) -> str:
    """Encode a value as JSON that HTML parsers cannot take for markup, whatever names and tokens it holds."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))  # ASCII: U+2028 is escaped too
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _inside_script(code: str) -> str:
    """Escape code so that its strings can neither end the script element nor start a comment."""
    return re.sub(r"<(?=/script|!--)", r"\\x3c", code, flags=re.IGNORECASE)


def _web_file(name: str) -> str:
    return (files("headatlas.report") / "web" / name).read_text(encoding="utf-8")
