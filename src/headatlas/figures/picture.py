"""The record of a figure that can be drawn of an atlas."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import xarray as xr
from matplotlib.figure import Figure

Maps = Mapping[str, xr.Dataset]


@dataclass(frozen=True)
class Picture:
    """A figure: its name, the function that draws it, its caption, and the methods whose results it shows.

    draw(palette=…): some also take a style (`figure_names.STYLED`).
    """

    name: str
    draw: Callable[..., Figure]
    caption: str
    methods: list[str]


def picture_per_result(
    name: str,
    maps: Maps,
    fits: Callable[[xr.Dataset], bool],
    draw: Callable[..., Figure],
    caption: str,
) -> Iterator[Picture]:
    """Yield a picture of every result that fits. name: may contain {method}."""
    for method, result in maps.items():
        if fits(result):
            yield Picture(name.format(method=method), partial(draw, result), caption, [method])
