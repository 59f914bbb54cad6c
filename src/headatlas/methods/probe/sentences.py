"""What a reader of a map of `probe` must know, in sentences."""

import numpy as np
import xarray as xr


def probe_sentences(result: xr.Dataset) -> list[str]:
    """What a reader of an atlas must know: how many heads are above chance, and how much words alone tell."""
    lines = []
    if "clears_control" in result:
        clear = int(result.clears_control.any("function").sum())
        of = int(result.importance.isel(function=0).count())
        none = "" if clear else "no function has a head above chance in this model: "
        lines.append(f"probe: {none}{clear or 'none'} of {of} heads clear what shuffled labels give")
    if {"accuracy", "bag_of_words"} <= set(result):
        words = result.bag_of_words
        which = words.wording.values[np.argmax(words.values)]
        lines.append(
            f"probe: reads the function right in {float(result.accuracy):.1%} of test questions;"
            f" words alone ({which}) in {float(words.max()):.1%}"
        )
    return lines
