"""What a copying map says, as rows for the terminal."""

from typing import Any

import xarray as xr

from headatlas.methods._tables import best, head_name, number
from headatlas.methods.copying.texts import AHEAD
from headatlas.methods.method import Tables


def copying_tables(result: xr.Dataset, top: int = 5) -> Tables:
    kinds = result.copied.values.tolist()
    tables = {
        "Heads that alone make the next token likelier where nothing can be copied": [
            _score_row(result.sel(copied=copied), top) for copied in kinds
        ]
    }
    removed = [
        _removal_row(one)
        for copied in kinds
        for n in result.n_removed.values.tolist()
        for one in [result.sel(copied=copied, n_removed=n)]
        if one.effect.notnull().all()
    ]
    if removed:
        tables["Top heads removed while the model copies, beside random heads of the same layers"] = removed
    return tables


def copying_sentences(result: xr.Dataset) -> list[str]:
    """Whether there was anything to find: how well the whole model copies; and what was not measured."""
    if "clean" not in result:  # a map from elsewhere
        return []
    told = [
        f"the whole model gives the next {'token' if copied == 'token' else 'piece of a word'}"
        f" P {float(one.clean):.2f} where it can be copied, {float(one.corrupted):.3f} where it cannot"
        for copied in result.copied.values.tolist()
        for one in [result.sel(copied=copied)]
    ]
    return told + [f"{kind} was not measured: too few words" for kind in AHEAD if kind not in result.copied.values]


def _score_row(one: xr.Dataset, top: int) -> dict[str, Any]:
    above = one.log_rise.where(one.above_chance.astype(bool))
    return {
        "copied": one.copied.item(),
        "P clean": number(one.clean.item()),
        "P corrupted": f"{one.corrupted.item():.2g}",
        "above chance": f"{int(one.above_chance.sum())} of {int(one.score.notnull().sum())}",
        "top heads: rise of log P (of P)": ", ".join(
            f"{head_name(layer, head)} {value:+.2f} ({one.score.sel(layer=layer, head=head).item():.2g})"
            for layer, head, value in best(above, top)
        )
        or "none",
    }


def _removal_row(one: xr.Dataset) -> dict[str, Any]:
    accuracy, log_p = one.sel(measure="accuracy"), one.sel(measure="log_p")
    return {
        "copied": one.copied.item(),
        "removed": int(one.n_removed),
        "accuracy": number(accuracy.baseline.item()),
        "without": number(accuracy.baseline.item() + accuracy.effect.item()),
        "without random": number(accuracy.baseline.item() + accuracy.random_effect.mean().item()),
        "log P": f"{log_p.effect.item():+.2f}",
        "random": f"{log_p.random_effect.mean().item():+.2f}",
        "p": number(one.p.item()),
    }
