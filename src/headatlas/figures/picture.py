"""A figure that can be drawn of an atlas."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import xarray as xr
from matplotlib.figure import Figure

Maps = Mapping[str, xr.Dataset]


@dataclass(frozen=True)
class Picture:
    """Its name, how to draw it, what it shows, and the methods whose results it shows.

    draw(palette=…): some also take a style (`names.STYLED`).
    """

    name: str
    draw: Callable[..., Figure]
    says: str
    methods: list[str]


def of_each(
    name: str,
    maps: Maps,
    fits: Callable[[xr.Dataset], bool],
    draw: Callable[..., Figure],
    says: str,
) -> Iterator[Picture]:
    """A picture of every result that has what the figure needs. name: {method} in it is the result's method."""
    for method, result in maps.items():
        if fits(result):
            yield Picture(name.format(method=method), partial(draw, result), says, [method])
