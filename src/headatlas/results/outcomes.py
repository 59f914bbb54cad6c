"""The outcome of each map's removal test, as figures, tables and the page print it."""

from dataclasses import dataclass

import numpy as np
import xarray as xr

from headatlas.evidence.control import top_heads
from headatlas.methods import measures_of
from headatlas.results.curves import change_at, ranking_measure, removed_counts, stack_removal_curves

MIN_HEADS = 4  # with fewer, random draws would often be the tested heads themselves
ALPHA = 0.05


@dataclass(frozen=True)
class Outcome:
    """What removing a map's heads did, compared with removing random heads."""

    n_removed: int  # 0: the method found no heads to remove
    which: str  # "top", or what the removed heads are instead
    measure: str
    effect: float  # change of the measure without these heads; below 0 is worse
    random: float  # mean change without random heads
    p: float  # corrected for the number of tests, where the file has that
    supported: bool
    removed: np.ndarray  # bool [layer, head]; all False where the file does not say which heads

    @property
    def text(self) -> str:
        """'supported, p 0.005, 8 heads'."""
        word = "supported" if self.supported else "not supported"
        if not self.n_removed:
            return f"{word}: no heads found"
        return f"{word}, p {self.p:.2g}, {self.n_removed} head{'s' * (self.n_removed != 1)}"


def outcomes(method: str, result: xr.Dataset) -> dict[tuple[str, str], Outcome]:
    """The outcome of every tested map of a result, by measure and subject.

    Where several numbers of heads were removed, it is of the smallest that is at least `MIN_HEADS`.
    """
    measures = measures_of(method)
    scored = [m.name for m in measures if m.name in result]
    if "effect" in result and scored and result.effect.dims == (measures[0].over,):
        return _by_subject(scored[0], result)
    curves = stack_removal_curves({method: result})
    tested = {}
    for i in range(curves.sizes["curve"]):
        curve = curves.isel(curve=i)
        measure, subject = ranking_measure(method, curve.why.item()), curve.subject.item()
        if measure in scored:
            tested[measure, subject] = _of_curve(curve, _scores(result, measure, subject))
    return tested


def _by_subject(measure: str, result: xr.Dataset) -> dict[tuple[str, str], Outcome]:
    """Outcomes of a test of one set of heads per subject."""
    if not {"random_effect", "p_corrected", "n_removed"} <= set(result):
        return {}
    (over,) = result.effect.dims
    tested = {}
    for subject in result[over].values.tolist():
        one = result.sel({over: subject})
        p, which = float(one.p_corrected), str(result.effect.attrs.get("heads", "top"))
        if "selected" in one and set(one.selected.dims) == {"layer", "head"}:
            removed = one.selected.transpose("layer", "head").values.astype(bool)
        elif which == "top":
            removed = _top_mask(_scores(result, measure, str(subject)), int(one.n_removed))
        else:
            removed = np.zeros((result.sizes["layer"], result.sizes["head"]), bool)
        tested[measure, str(subject)] = Outcome(
            n_removed=int(one.n_removed),
            which=which,
            measure="log P per token",
            effect=float(one.effect),
            random=float(one.random_effect.mean()),
            p=p,
            supported=bool(one.proven) if "proven" in one else p < ALPHA,
            removed=removed,
        )
    return tested


def _of_curve(curve: xr.Dataset, scores: np.ndarray) -> Outcome:
    """The outcome of a test of several numbers of top heads."""
    numbers = removed_counts(curve)
    n = next((n for n in numbers if n >= MIN_HEADS), numbers[-1])
    measure, effect, random, p = change_at(curve, n)
    return Outcome(n, "top", measure, effect, random, p, p < ALPHA, _top_mask(scores, n))


def _scores(result: xr.Dataset, measure: str, subject: str) -> np.ndarray:
    """A map [layer, head], averaged over whatever else it is over."""
    over = next(m.over for m in measures_of(str(result.attrs["method"])) if m.name == measure)
    names = [str(name) for name in result[over].values]
    scores = result[measure].isel({over: names.index(subject)})
    return scores.mean([d for d in scores.dims if d not in ("layer", "head")]).transpose("layer", "head").values


def _top_mask(scores: np.ndarray, n: int) -> np.ndarray:
    mask = np.zeros(scores.shape, bool)
    for layer, head in top_heads(scores, n):
        mask[layer, head] = True
    return mask
