"""What all figures share: style sheet, palettes, ticks, texts, and saving."""

import functools
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ParamSpec

import numpy as np
from matplotlib import font_manager, rc_context, rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headatlas.errors import BadArgument, check_choice, did_you_mean
from headatlas.figures import figure_names
from headatlas.figures.figure_names import FORMATS

SHEET = Path(__file__).parent / "headatlas.mplstyle"
P = ParamSpec("P")


@dataclass(frozen=True)
class Palette:
    """Colour maps and colours of figures."""

    sequential: str  # for importances: dark is 0
    diverging: str  # for changes: the middle is 0
    score: str  # for scores of gates
    categories: tuple[str, ...]
    several: tuple[str, ...]  # for heads of two, three, … categories
    none: str
    roles: tuple[str, str, str]  # facilitating, irrelevant, interfering
    lines: tuple[str, ...]


_TAB = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf")
_OKABE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#000000")
_PUBLISHED = Palette(
    "viridis", "RdBu_r", "turbo", _TAB[:4], _TAB[4:7], "#e3e3e3", ("#00c000", "#0000ff", "#ff0000"), _TAB
)
_COLOUR_BLIND = Palette(
    "cividis", "PuOr_r", "cividis", _OKABE[:4], _OKABE[4:7], "#e3e3e3", ("#0072B2", "#F0E442", "#D55E00"), _OKABE
)
_GREY = Palette(
    "gray",
    "RdGy_r",
    "gray",
    ("#000000", "#4d4d4d", "#7a7a7a", "#a3a3a3"),
    ("#1f1f1f", "#333333", "#666666"),
    "#ebebeb",
    ("#ffffff", "#8a8a8a", "#2b2b2b"),
    ("#000000", "#4d4d4d", "#7a7a7a", "#a3a3a3"),
)
PALETTES = dict(zip(figure_names.PALETTES, (_PUBLISHED, _COLOUR_BLIND, _GREY), strict=True))


def palette(name: str) -> Palette:
    """Return the palette of this name."""
    check_choice("palette", name, PALETTES)
    return PALETTES[name]


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Make a function draw in our style, without changing the caller's matplotlib settings."""

    @functools.wraps(draw)
    def inside(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with rc_context(fname=SHEET):
            return draw(*args, **kwargs)

    return inside


def save(figure: Figure, to: Path | BinaryIO, form: str, dpi: float | None = None) -> None:
    """Write a figure without timestamps, so that the same figure gives the same bytes. dpi: default for print."""
    no_dates: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}
    with rc_context(fname=SHEET):
        figure.savefig(to, format=form, metadata=no_dates.get(form), dpi=dpi or rcParams["savefig.dpi"])


def ticks(n: int, every: int, max_ticks: int) -> list[int]:
    """Return ticks on an axis of n places: multiples of `every`; fewer on long axes, more on short ones."""
    step = every
    while step > 1 and (n - 1) // step < 2:
        step = max(1, step // 2)
    while (n - 1) // step + 1 > max_ticks:
        step += every
    return list(range(0, n, step))


def printable(text: str) -> str:
    """Escape characters that the font lacks, or that would change the direction of other text."""
    return "".join(c if ord(c) in _glyphs() and c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@functools.cache
def _glyphs() -> frozenset[int]:
    font = font_manager.get_font(font_manager.findfont("DejaVu Sans"))
    return frozenset(font.get_charmap())


def wrap(text: str, inches: float, size: float = 9) -> str:
    """Break text into lines of at most `inches` at a font size in points."""
    width = max(6, int(inches * 72 / (0.56 * size)))
    return "\n".join(textwrap.wrap(printable(text), width)) or " "


def heading(figure: Figure, text: str, left: float) -> None:
    """Write a small heading above all panels; left: inches. In a narrow figure it has two lines."""
    width, height = figure.get_size_inches()
    place = (left / width, 1 - 0.09 / height)
    size = next((n for n in (8, 7, 6) if wrap(text, width - left, n).count("\n") < 2), 5)
    figure.text(*place, wrap(text, width - left, size), va="top", fontsize=size, color="#444444", parse_math=False)


def axes_at(figure: Figure, x: float, y: float, width: float, height: float) -> Axes:
    """Add axes at a place in inches from the lower left corner of the figure."""
    total_w, total_h = figure.get_size_inches()
    return figure.add_axes((x / total_w, y / total_h, width / total_w, height / total_h))


def columns(n: int) -> int:
    """Return the number of columns for n panels; the eight functions are published as two rows of four."""
    if n <= 4:
        return n
    if n <= 12:
        rows = -(-n // 4)
        return -(-n // rows)
    return int(np.ceil(np.sqrt(1.6 * n)))


def capital(name: str) -> str:
    """Capitalise the first letter and keep the others."""
    return name[:1].upper() + name[1:]


def check_formats(formats: Iterable[str]) -> list[str]:
    """Return the names of file formats, checked and in lower case."""
    listed = [f.strip().lower() for f in formats]
    for form in listed:
        if form not in FORMATS:
            raise BadArgument(
                f"format has {form!r}, expected some of {', '.join(FORMATS)}.{did_you_mean(form, FORMATS)}"
            )
    if not listed:
        raise BadArgument(f"format is empty, expected some of {', '.join(FORMATS)}")
    return listed
