"""What a reader of a map of `function_vector` must know, in sentences."""

import xarray as xr

TELLS = 0.02  # examples that raise P(right answer) by less than this do not tell the task


def vector_sentences(result: xr.Dataset) -> list[str]:
    """Tasks that the model does not learn from examples, whose maps say little."""
    told = result.baseline.sel(measure="probability")
    rise = told.sel(prompt="few_shot") - told.sel(prompt="shuffled")
    return [
        f"right answers in the examples of {name} raise P(right answer) by {value:.2f} only: its map says little"
        for name, value in zip(result.task.values.tolist(), rise.values.tolist(), strict=True)
        if value < TELLS
    ]
