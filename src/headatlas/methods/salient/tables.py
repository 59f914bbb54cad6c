"""Salient operations as rows for the terminal."""

from typing import Any

import xarray as xr

from headatlas.methods._tables import best, head_name
from headatlas.methods.method import Tables


def operations(head: xr.Dataset) -> list[dict[str, Any]]:
    """Of one head, a row per token."""
    return [
        {
            "token": repr(token),
            "amplified": f"{gain:.2f}",
            "strongest": " ".join(map(repr, strongest)),
            "suppressed": " ".join(map(repr, weakest)),
        }
        for token, gain, strongest, weakest in zip(
            head.token.values, head.amplification.values, head.strongest.values, head.suppressed.values, strict=True
        )
    ]


def most_amplifying(result: xr.Dataset, heads: int = 5, tokens: int = 3) -> Tables:
    """The heads that amplify a token most, and what they make of theirs."""
    most = result.amplification.max("rank")
    rows = [
        {"head": head_name(layer, head)} | row
        for layer, head, _ in best(most, heads)
        for row in operations(result.sel(layer=layer, head=head).isel(rank=slice(tokens)))
    ]
    title = f"The heads that amplify a token most, of {int(most.notnull().sum())}, and what they make of it"
    return {title: rows}
