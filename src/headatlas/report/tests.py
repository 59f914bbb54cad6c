"""What the page shows of tests: their outcomes, changes of other subjects, and the accuracy of a probe."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import xarray as xr

from headatlas.methods import measures_of, title_of
from headatlas.report.numbers import plain, plain_list
from headatlas.results.changes import change_matrix
from headatlas.results.outcomes import all_outcomes

Maps = Mapping[str, xr.Dataset]
NONE_CLEAR = (
    "No head's importance clears the shuffled-label control,"
    " so no single bright cell of its maps is evidence by itself."
)
# Accuracies closer than this are called alike if the number of questions is not known.
DEFAULT_MARGIN = 0.05


def tests(maps: Maps, charts: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the test of every tested map, with the index of its chart."""
    keys = [(row["method"], row["measure"], row["subject"]) for row in charts]
    for method, measure, subject, outcome in all_outcomes(maps):
        key = (method, measure, subject)
        numbers = {
            "before": outcome.accuracy,
            "after": outcome.accuracy_after,
            "guess": outcome.guess,
            "change": outcome.effect,
            "random": outcome.random,
            "random_low": outcome.random_low,
            "random_high": outcome.random_high,
            "low": outcome.low["zero"],
            "high": outcome.high["zero"],
            "p": outcome.p,
        }
        words = {"outcome": outcome.outcome, "reason": outcome.reason, "selective": outcome.selective}
        curve = {0: 0.0} | outcome.curve if outcome.curve else {}
        yield {
            "title": title_of(method),
            "measure": measure,
            "subject": subject,
            "chart": keys.index(key) if key in keys else None,
            "heads": outcome.n_heads,
            "prompts": outcome.prompts,
            **{name: plain(value) for name, value in numbers.items()},
            **words,
            "removed": sorted(curve),
            "curve": plain_list(curve[n] for n in sorted(curve)),
        }


def special(maps: Maps) -> Iterator[dict[str, Any]]:
    """Yield the effect of removing each subject's heads on every subject."""
    for method, result in maps.items():
        matrix = change_matrix(result)
        if matrix is not None:
            yield {
                "title": title_of(method),
                "rows": matrix.rows,
                "columns": matrix.columns,
                "values": [plain_list(row) for row in matrix.values],
                "measure": matrix.measure,
            }


def evidence(maps: Maps) -> dict[str, Any] | None:
    """Return the accuracy of a probe (a result with `accuracy`), and of baselines that do not read heads."""
    probes = [(m, r) for m, r in maps.items() if "accuracy" in r and not r.accuracy.ndim]
    if not probes:
        return None
    method, result = probes[0]
    rows = [("The probe, on held-out questions", result.accuracy.item())]
    # What word counts reach limits what a probe shows about functions.
    if "bag_of_words" in result and result.bag_of_words.dims == ("wording",):
        words = zip(result.wording.values.tolist(), result.bag_of_words.values.tolist(), strict=True)
        rows += [(f"Bag of words: {name}", value) for name, value in words]
    elif "bag_of_words_accuracy" in result:
        rows.append(("Bag of words", result.bag_of_words_accuracy.item()))
    best_words = max((v for name, v in rows[1:] if not math.isnan(v)), default=math.nan)
    single = {"control_accuracy": "Probe on shuffled labels", "majority_accuracy": "Always the commonest class"}
    rows += [(text, result[name].item()) for name, text in single.items() if name in result]
    above = result.get(measures_of(method)[0].above)
    per = result.accuracy_per_function if "accuracy_per_function" in result else xr.DataArray([], dims="function")
    names: Any = result["function"].values if per.size else []
    return {
        "method": method,
        "rows": [{"name": name, "value": plain(value)} for name, value in rows if not math.isnan(value)],
        "per_function": [{"name": str(n), "value": plain(v)} for n, v in zip(names, per.values, strict=True)],
        "summary": " ".join(_summary(result, best_words, above)),
        "caution": NONE_CLEAR if above is not None and not above.any() else "",
    }


def _summary(result: xr.Dataset, words: float, above: xr.DataArray | None) -> Iterator[str]:
    accuracy = result.accuracy.item()
    split = "questions" in result and "split" in result.questions.dims and "test" in result["split"].values
    test = int(result.questions.sel(split="test").sum()) if split else 0
    margin = 2 * math.sqrt(accuracy * (1 - accuracy) / test) if test else DEFAULT_MARGIN  # two standard errors
    number = f"{test} " if test else ""
    yield f"The probe names the function of {accuracy:.0%} of {number}held-out questions."
    if not math.isnan(words):
        level = f"counting words reaches up to {words:.0%}"
        if accuracy <= words:
            yield f"But {level}: the wording alone explains its success, so its maps are no evidence of functions."
        elif accuracy - words < margin:
            yield f"But {level}, which is too close to call: much of what it reads may be wording, not function."
        else:
            yield f"By contrast, {level}, so it reads more than wording."
    if above is None:
        return
    if above.any():
        clear = f"{int(above.sum()):,} of {above.size:,} importances clear the shuffled-label control"
        yield f"{clear}; the others could be chance."
    else:
        yield NONE_CLEAR
