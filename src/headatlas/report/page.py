"""The page (a placeholder until the helper's lands)."""

from collections.abc import Mapping
from typing import Any

import xarray as xr


def page(maps: Mapping[str, xr.Dataset], info: Mapping[str, Any]) -> str:
    """The page."""
    return "<html></html>"
