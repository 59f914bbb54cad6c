"""What a reader of a map of `gate` must know, in sentences."""

import xarray as xr


def gate_sentences(result: xr.Dataset) -> list[str]:
    """How well the model does each task at all; nothing of gates from elsewhere, which do not say."""
    if not {"whole_accuracy", "guess_accuracy"} <= set(result):
        return []
    return [
        f"gate: the whole model gets {float(one.whole_accuracy):.0%} of {task} right;"
        f" the best guess {float(one.guess_accuracy):.0%}"
        for task in result.task.values.tolist()
        for one in [result.sel(task=task)]
    ]
