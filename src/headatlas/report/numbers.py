"""Numbers as the page's JSON holds them."""

import base64
from collections.abc import Iterable
from typing import Any

import numpy as np


def pack(values: np.ndarray, dtype: str = "<f4") -> str:
    """Numbers as base64 of little-endian float32: a third of their size as text, and read by the browser at once."""
    return base64.b64encode(np.ascontiguousarray(values, dtype).tobytes()).decode()


def plain(value: Any) -> float | None:
    """A number for JSON, which has no NaN; five digits are more than can be seen."""
    return float(f"{float(value):.5g}") if value is not None and np.isfinite(value) else None


def plain_list(values: Iterable[Any]) -> list[float | None]:
    return [plain(v) for v in values]
