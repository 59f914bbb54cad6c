"""Shared code of the scripts that write into docs/: tables, blocks of pages, and figures."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import xarray as xr

from headatlas.figures.all import pictures
from headatlas.figures.style import save

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs" / "figures"


def table(rows: Iterable[Mapping[str, object]]) -> list[str]:
    """Format rows as the lines of a Markdown table, with a dash for missing values."""
    rows = list(rows)
    keys = list(dict.fromkeys(key for row in rows for key in row))
    lines = ["| " + " | ".join(keys) + " |", "| " + " | ".join("---" for _ in keys) + " |"]
    cells = [["–" if row.get(key) is None else str(row[key]) for key in keys] for row in rows]
    return lines + ["| " + " | ".join(row) + " |" for row in cells]


def write_block(page: Path, begin: str, text: str, end: str) -> None:
    """Replace the text between two marks on a page."""
    before, mark, remaining_text = page.read_text().partition(begin)
    if not mark:
        raise SystemExit(f"{page} has no {begin.strip()}")
    page.write_text(before + begin + text + end + remaining_text.partition(end)[2])


def save_pictures(results: Mapping[str, xr.Dataset], names: Collection[str], prefix: str = "") -> None:
    """Draw the named figures into docs/figures."""
    for picture in pictures(results):
        if picture.name in names:
            save(picture.draw(), FIGURES / f"{prefix}{picture.name}.png", "png", dpi=110)
