"""The outcome of each map's removal test, as figures, tables and the page show it."""

from dataclasses import dataclass

import numpy as np
import xarray as xr

from headatlas.evidence.control import top_heads
from headatlas.methods import measures_of
from headatlas.results.curves import change_at, ranking_measure, removed_counts, stack_removal_curves

# With fewer heads, random draws would often be the tested heads themselves.
MIN_HEADS = 4
# Highest corrected p that supports a map.
ALPHA = 0.05


@dataclass(frozen=True)
class Outcome:
    """The effect of removing a map's heads, compared with removing random heads.

    Attributes:
        n_removed: number of removed heads; 0 if the method found none.
        which: "top", or what the removed heads are instead.
        measure: what changes.
        effect: change of the measure without these heads; below 0 is worse.
        random: mean change without random heads.
        p: corrected for the number of tests, if the result has that.
        supported: whether the test supports the map.
        removed: whether a head was removed [layer, head]; all False if the result does not record which heads.
    """

    n_removed: int
    which: str
    measure: str
    effect: float
    random: float
    p: float
    supported: bool
    removed: np.ndarray

    @property
    def text(self) -> str:
        """Say it in a few words: 'supported, p 0.005, 8 heads'."""
        word = "supported" if self.supported else "not supported"
        if not self.n_removed:
            return f"{word}: no heads found"
        return f"{word}, p {self.p:.2g}, {self.n_removed} head{'s' * (self.n_removed != 1)}"


def outcomes(method: str, result: xr.Dataset) -> dict[tuple[str, str], Outcome]:
    """Return the outcome of every tested map of a result, by measure and subject.

    If several numbers of heads were removed, the outcome is for the smallest number that is at least `MIN_HEADS`.
    """
    measures = measures_of(method)
    scored = [m.name for m in measures if m.name in result]
    if "effect" in result and scored and result.effect.dims == (measures[0].over,):
        return _by_subject(scored[0], result)
    curves = stack_removal_curves({method: result})
    tested = {}
    for i in range(curves.sizes["curve"]):
        curve = curves.isel(curve=i)
        subject = curve.subject.item()
        measure = ranking_measure(method, curve.ranked_by.item())
        if measure in scored:
            tested[measure, subject] = _of_curve(curve, _scores(result, measure, subject))
    return tested


def _by_subject(measure: str, result: xr.Dataset) -> dict[tuple[str, str], Outcome]:
    """Read the outcomes of a test that removes one set of heads per subject."""
    if not {"random_effect", "p_corrected", "n_removed"} <= set(result):
        return {}
    (over,) = result.effect.dims
    tested = {}
    for subject in result[over].values.tolist():
        test = result.sel({over: subject})
        p = float(test.p_corrected)
        which = str(result.effect.attrs.get("heads", "top"))
        if "selected" in test and set(test.selected.dims) == {"layer", "head"}:
            removed = test.selected.transpose("layer", "head").values.astype(bool)
        elif which == "top":
            removed = _top_mask(_scores(result, measure, str(subject)), int(test.n_removed))
        else:
            removed = np.zeros((result.sizes["layer"], result.sizes["head"]), bool)
        tested[measure, str(subject)] = Outcome(
            n_removed=int(test.n_removed),
            which=which,
            measure="log P per token",
            effect=float(test.effect),
            random=float(test.random_effect.mean()),
            p=p,
            supported=bool(test.proven) if "proven" in test else p < ALPHA,
            removed=removed,
        )
    return tested


def _of_curve(curve: xr.Dataset, scores: np.ndarray) -> Outcome:
    """Read the outcome of a test that removes several numbers of top heads."""
    numbers = removed_counts(curve)
    n_removed = next((n for n in numbers if n >= MIN_HEADS), numbers[-1])
    measure, effect, random, p = change_at(curve, n_removed)
    return Outcome(n_removed, "top", measure, effect, random, p, p < ALPHA, _top_mask(scores, n_removed))


def _scores(result: xr.Dataset, measure: str, subject: str) -> np.ndarray:
    """Return the map [layer, head] of one subject, averaged over all other dimensions."""
    over = next(m.over for m in measures_of(str(result.attrs["method"])) if m.name == measure)
    names = [str(name) for name in result[over].values]
    scores = result[measure].isel({over: names.index(subject)})
    return scores.mean([d for d in scores.dims if d not in ("layer", "head")]).transpose("layer", "head").values


def _top_mask(scores: np.ndarray, n: int) -> np.ndarray:
    """Mark the n top heads of a map [layer, head]."""
    mask = np.zeros(scores.shape, bool)
    for layer, head in top_heads(scores, n):
        mask[layer, head] = True
    return mask
