"""The result of `retrieval` as rows for the terminal and for JSON, and in sentences."""

from textwrap import shorten
from typing import Any

import numpy as np
import xarray as xr

from headatlas.methods._tables import list_best, number
from headatlas.methods.method import Tables


def retrieval_tables(result: xr.Dataset, top: int = 5) -> Tables:
    """The heads of each set of needles, what removing them does, and which needles were answered."""
    tables = {"Heads that copy the answer (share of its tokens)": [_heads(result, n, top) for n in _sets(result)]}
    if "effect" in result:
        removed = [_removed(result, name, n) for name in _sets(result) for n in result.n_removed.values.tolist()]
        tables["Removed while answering other needles: change of log P per token"] = [row for row in removed if row]
    tables["Needles"] = _needles(result)
    return tables


def retrieval_sentences(result: xr.Dataset) -> list[str]:
    """What a reader must know before believing a map: above all, whether the model answered at all."""
    lines = []
    for name in _sets(result):
        one = result.sel(needles=name)
        answered, asked = int(one.answered), int(one.asked)
        if not answered:
            lines.append(
                f"{name}: the model answered none of {asked} questions, so there is no score. Try shorter texts"
            )
        elif answered < asked:
            lines.append(f"{name}: the model answered {answered} of {asked} questions; scores are of those")
        if "questions" in result and answered and not int(one.questions):
            lines.append(f"{name}: none of the needles kept to check with was answered, so no head was removed")
    return lines


def _sets(result: xr.Dataset) -> list[str]:
    names: list[str] = result.needles.values.tolist()
    return names


def _heads(result: xr.Dataset, name: str, top: int) -> dict[str, Any]:
    one = result.sel(needles=name)
    return {
        "needles": name,
        "answered": f"{int(one.answered)} of {int(one.asked)}",
        "heads that copy": int((one.score > 0).sum()),
        "at least 0.1": int((one.score >= 0.1).sum()),  # the paper's retrieval heads
        "top heads": list_best(one.score, top) or "none",
    }


def _removed(result: xr.Dataset, name: str, n: int) -> dict[str, Any] | None:
    one = result.sel(needles=name, n_removed=n)
    log_p, accuracy = (one.sel(measure=m) for m in ("log_p", "accuracy"))
    if np.isnan(log_p.effect):
        return None
    return {
        "needles": name,
        "answers": int(one.questions),
        "heads": n,
        "log P": number(log_p.baseline.item()),
        "without them": number(log_p.effect.item()),
        "random heads": number(log_p.random_effect.mean().item()),
        "p": f"{one.p.item():.3f}",
        "tokens that stay the likeliest": number(accuracy.baseline.item() + accuracy.effect.item()),
        "random": number(accuracy.baseline.item() + accuracy.random_effect.mean().item()),
    }


def _needles(result: xr.Dataset) -> list[dict[str, Any]]:
    """A row per needle, over its texts."""
    rows = []
    for name, answer in dict.fromkeys(zip(result.set.values.tolist(), result.answer.values.tolist(), strict=True)):
        one = result.isel(test=np.flatnonzero((result.set == name) & (result.answer == answer)))
        best = one.isel(test=int(np.argmax(one.recall.values)))
        rows.append(
            {
                "needles": name,
                "answer": answer,
                "answered": "to check with" if one.held_out.all() else f"{int(one.used.sum())} of {one.sizes['test']}",
                "best recall": number(best.recall.item()),
                "best response": shorten(best.response.item(), 100, placeholder=" …"),
            }
        )
    return rows
