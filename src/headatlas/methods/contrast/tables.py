"""The result of contrastive gating as rows for the terminal."""

import xarray as xr

from headatlas.methods._tables import best, head_name, number
from headatlas.methods.method import Tables


def contrast_tables(result: xr.Dataset, top: int = 10) -> Tables:
    """Both tasks before and after, and the heads that were lost."""
    mean, gates = result.mean("seed"), result["gates"].values.tolist()
    rows = [
        {"task": f"{side} {result.attrs[side]}"}
        | {f"accuracy {g}": number(mean.accuracy.sel(side=side, gates=g).item()) for g in gates}
        | {f"-log P {g}": number(mean.nll.sel(side=side, gates=g).item()) for g in gates}
        for side in ("keep", "lose")
    ]
    lost = result.lost.isel(task=0).min("seed")
    most = [{"head": head_name(a, b), "lost in every seed": number(v)} for a, b, v in best(lost, top)]
    share = {"head": "all heads, share lost", "lost in every seed": f"{float((lost >= 0.5).sum() / lost.count()):.1%}"}
    return {"Kept and lost": rows, "Heads the lost task needs and the kept one can spare": [*most, share]}
