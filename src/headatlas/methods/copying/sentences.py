"""What a reader of a map of `copying` must know, in sentences."""

import xarray as xr

from headatlas.methods.copying.texts import AHEAD


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
