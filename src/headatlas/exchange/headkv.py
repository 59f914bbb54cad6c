"""headkv: one line of JSON, {"layer-head": [score], …}, by layer, no score below 0; read as retrieval-head."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headatlas.errors import BadArgument, CannotDo
from headatlas.exchange import retrieval_head
from headatlas.exchange.format import Format

if TYPE_CHECKING:
    from headatlas.exchange.export_request import ExportRequest, Files


def write(request: ExportRequest) -> Files:
    """Write a score for each query head; HeadKV gives heads their share of the cache by it."""
    import numpy as np

    from headatlas.exchange.export_request import Files, json_bytes

    score, notes = request.scores_of_all_heads("headkv")
    label = request.charts.chart.item()
    below = int((score < 0).sum())
    if request.per_group:
        raise BadArgument(f"chart is {label!r}, which has KV heads only: headkv needs query heads; import with heads")
    if not (score > 0).any():
        raise CannotDo(f"{label} has no score above 0, which headkv needs")
    if below:
        notes.append(f"{below} scores below 0 are written as 0: headkv has no negative scores")
    content = {f"{layer}-{head}": [max(value, 0.0)] for (layer, head), value in np.ndenumerate(score.astype(object))}
    return Files({"": json_bytes(content)}, f"{score.shape[0]} layers × {score.shape[1]} heads", notes)


FORMAT = Format(
    "headkv",
    read=retrieval_head.read,
    result_name="headkv",
    write=write,
    export_options=("fill",),
    one_map=True,
)
