"""What the page shows as evidence: removal curves, effects on other functions, and the accuracy of a probe."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from headatlas.methods import measures_of, title_of
from headatlas.report.numbers import plain, plain_list
from headatlas.results.curves import change_matrix, ranking_measure, stack_removal_curves

Maps = Mapping[str, xr.Dataset]
NONE_CLEAR = (
    "No head's importance clears the shuffled-label control,"
    " so no single bright cell of its maps is evidence by itself."
)
SWITCHED = (
    "Heads are switched off, compared with on. log P must fall for facilitating heads, rise for interfering ones and"
    " stay for irrelevant ones, more so than for random heads."
)
# Accuracies closer than this are called alike if the number of questions is not known.
DEFAULT_MARGIN = 0.05
TEST_VARIABLES = ("verdict", "n_removed", "effect", "other_effect", "random_effect", "p_corrected")


def curves(maps: Maps, charts: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield removal curves, each with the index of the chart whose top heads were removed."""
    all_curves = stack_removal_curves(maps)
    for i in range(all_curves.sizes["curve"]):
        curve = all_curves.isel(curve=i)
        curve = curve.isel(removed=curve.top.notnull().values)
        names = {n: str(curve[n].item()) for n in ("method", "subject", "measure", "ranked_by")}
        method = names["method"]
        why = ranking_measure(method, names["ranked_by"])
        key = (method, why, names["subject"])
        keys = [(row["method"], row["measure"], row["subject"]) for row in charts]
        chart = keys.index(key) if key in keys else None
        role = why if "role" in maps[method].effect.dims else ""
        values = {n: plain_list(curve[n].values) for n in ("top", "lowest", "random", "random_low", "random_high", "p")}
        description = SWITCHED if role else ""
        about = {"title": title_of(method), "description": description, "role": role, "why": why, "chart": chart}
        yield names | about | {"removed": curve.removed.values.tolist()} | values


def special(maps: Maps) -> Iterator[dict[str, Any]]:
    """Yield the effect of removing each function's heads on every function, and the outcome of each function's test."""
    for method, result in maps.items():
        measured = change_matrix(result)
        verdicts = list(_verdicts(result))
        if measured is None and not verdicts:
            continue
        rows, columns, values, measure = measured or ([], [], np.empty((0, 0)), "")
        yield {
            "title": title_of(method),
            "rows": rows,
            "columns": columns,
            "values": [plain_list(row) for row in values],
            "measure": measure,
            "verdicts": verdicts,
        }


def _verdicts(result: xr.Dataset) -> Iterator[dict[str, Any]]:
    if not set(TEST_VARIABLES) <= set(result.data_vars) or result.verdict.ndim != 1:
        return
    (over,) = result.verdict.dims
    for i, name in enumerate(result[over].values.tolist()):
        row = result.isel({over: i})
        means = {"target": row.effect, "others": abs(row.other_effect).mean(), "random": row.random_effect.mean()}
        yield {
            "function": str(name),
            "heads": int(row.n_removed),
            **{k: plain(v.item()) for k, v in means.items()},
            "p": plain(row.p_corrected.item()),
            "verdict": str(row.verdict.item()),
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
        "verdict": " ".join(_verdict(result, best_words, above)),
        "caution": NONE_CLEAR if above is not None and not above.any() else "",
    }


def _verdict(result: xr.Dataset, words: float, above: xr.DataArray | None) -> Iterator[str]:
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
