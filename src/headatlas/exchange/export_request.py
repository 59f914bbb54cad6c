"""The input of a writer (maps and options), and its output (the content of files)."""

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from headatlas.errors import BadArgument, CannotDo
from headatlas.results.charts import MAP as MAP


@dataclass(frozen=True)
class ExportRequest:
    """The maps to write, and the options.

    charts: from `charts.overview`; some formats hold only one. per_group: whether their heads are KV groups.
    model: its name. dtype: the type of its weights. kv_heads: KV heads per layer, if known.
    sink, recent: tokens that streaming heads keep, from the map or the caller. fill: the score for missing heads.
    """

    charts: xr.Dataset
    per_group: bool
    model: str
    dtype: str
    kv_heads: int | None
    sink: int | None
    recent: int | None
    fill: float | None

    def scores_of_all_heads(self, to: str) -> tuple[np.ndarray, list[str]]:
        """Return the scores [layer, head] of the only chart, missing ones filled in, and notes about them.

        to: name of the format, for errors.
        """
        chart = self.charts.squeeze("chart")
        score = chart.score.transpose(*MAP).values.astype(float)
        notes = []
        if np.isinf(score).any():
            raise CannotDo(f"{chart.chart.item()} has infinite scores, which {to} cannot hold")
        missing = np.isnan(score)
        if missing.any():
            layers = [str(i) for i in np.flatnonzero(missing.any(1))]
            heads = f"{missing.sum()} of {missing.size} heads (layer{'s' * (len(layers) > 1)} {', '.join(layers)})"
            if self.fill is None:
                label = chart.chart.item()
                raise BadArgument(
                    f"fill is not given, but {label} has no score for {heads}, and {to} needs all heads: give fill"
                )
            score = np.where(missing, self.fill, score)
            notes.append(f"{heads} have no score: {self.fill:g} is written")
        if bool(chart.none_above):
            notes.append(f"no head of {chart.chart.item()} is above chance")
        return score, notes


@dataclass(frozen=True)
class Files:
    """The content of files by path inside a folder, or of one file under ''.

    shape: sizes of the content, in words. notes: sentences that a reader of the files must know.
    """

    content: dict[str, bytes]
    shape: str
    notes: list[str] = field(default_factory=list)


def finite_or_none(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def json_bytes(content: Any, indent: int | None = None) -> bytes:
    return utf8_bytes(json.dumps(content, indent=indent, ensure_ascii=False, allow_nan=False) + "\n")


def utf8_bytes(text: str) -> bytes:
    """Encode text. Lone surrogates, which UTF-8 cannot hold, are written as JSON escapes them."""
    return text.encode(errors="backslashreplace")
