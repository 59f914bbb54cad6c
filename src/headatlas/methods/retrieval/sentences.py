"""What a reader of a map of `retrieval` must know, in sentences."""

import xarray as xr


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
