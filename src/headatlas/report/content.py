"""What the page shows: an atlas's datasets as one plain dictionary that JSON can hold. How it looks is page.html, .css and .js."""

import base64
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from headatlas.figures.style import PALETTES, PUBLISHED
from headatlas.results.about import NAMES
from headatlas.results.chance import level_in_words, members, no_rank, none_in_words
from headatlas.results.curves import changes, removal
from headatlas.results.charts import MEASURES, overview
from headatlas.results.scale import range_of
from headatlas.tasks.relations import CATEGORIES
from headatlas.evidence.agreement import spearman_matrix

Maps = Mapping[str, xr.Dataset]
Content = dict[str, Any]


class Method(NamedTuple):
    subject: str  # what its charts are about
    says: dict[str, str]  # by measure: what a chart shows and does not show
    cite: tuple[str, str] | None = None  # reference, arXiv number


_GATES = ("Causal Head Gating, Nam et al., NeurIPS 2025", "2505.13737")
_GRADIENT = ("Are Sixteen Heads Really Better than One?, Michel, Levy & Neubig, NeurIPS 2019", "1905.10650")
METHODS: dict[str, Method] = {
    "probe": Method(
        "Function",
        {
            "importance": "How much a trained classifier leans on each head to tell the functions apart; it sums to 1 over heads."
            " It shows where a function can be read, not where it is needed: importance is not causal."
        },
        ("Cognitive Mirrors (probing cognitive functions of attention heads), Ma et al., NeurIPS 2025", "2512.10978"),
    ),
    "maps": Method(
        "Relation",
        {
            "score": "Share of the relation's word pairs that the head's parameters alone map from source to target."
            " No text is run: it says what a head can do, not when, or whether, it does it.",
            "suppression": "Share of the relation's word pairs whose target the head's parameters push down most."
            " No text is run: it says what a head can do, not when, or whether, it does it.",
        },
        (
            "Inferring Functionality of Attention Heads from their Parameters (MAPS), Elhelo & Geva, ACL 2025",
            "2412.11965",
        ),
    ),
    "gate": Method(
        "Task",
        {
            "facilitation": "How far a head's gate stays open although closing it is rewarded (mean over seeds): high means"
            " the task needs it. Gates are fitted together, so where heads can replace each other, seeds may choose differently.",
            "interference": "How far a head's gate closes although keeping it open is rewarded (mean over seeds): high means"
            " the head harms the task. It holds for this task's examples, not for the head in general.",
            "irrelevance": "How far a head's gate follows whichever way it is pushed (mean over seeds): high means the task does"
            " not mind. Irrelevant here may be essential elsewhere.",
        },
        _GATES,
    ),
    "dissociate": Method(
        "Function",
        {
            "importance": "Heads this function needs and the other functions can spare, from gates fitted for that; they sum to 1."
            " It is causal for the set of heads as a whole; one head's share is not its effect alone."
        },
        _GATES,
    ),
    "ablate": Method(
        "Task",
        {
            "effect": "Fall of log P(target) when this one head is removed; above 0 the head helps, below 0 it harms."
            " Causal, but blind to heads that stand in for each other."
        },
    ),
    "taylor": Method(
        "Task",
        {
            "effect": "Effect of removing a head as one gradient predicts it. A cheap estimate of ablation, not a removal."
        },
        _GRADIENT,
    ),
    "ig": Method(
        "Task",
        {
            "effect": "Effect of removing a head as gradients between closed and open gates predict it. An estimate, not a removal."
        },
    ),
    "pattern": Method(
        "Pattern",
        {
            "score": "How closely the head's attention follows the pattern on repeated random tokens."
            " It is where a head looks, not what that does."
        },
    ),
    "salient": Method("Token", {}),
}
COLOURS = dict(zip(CATEGORIES, PALETTES[PUBLISHED].categories, strict=True))
SEVERAL = dict(zip((2, 3, 4), PALETTES[PUBLISHED].several, strict=True))
OTHERS = ("#17becf", "#bcbd22", "#7f7f7f", "#393b79")  # categories of the user's own
TOKENS = 120_000  # salient tokens written into the page at most: 16,000 heads would else need tens of megabytes
NONE_CLEAR = "No head's importance clears the shuffled-label control, so no single bright cell of its maps is evidence by itself."
SWITCHED = (
    "Here heads are switched off against on. log P must fall for facilitating heads, rise for interfering ones and stay for"
    " irrelevant ones, more so than for random heads."
)
CLOSE = 0.05  # accuracies this near are called alike where the number of questions is not known


def content(maps: Maps, info: Mapping[str, Any]) -> Content:
    """Everything on the page, for datasets by method and what atlas.json says; whatever is not there is left out."""
    model = dict(info.get("model") or {})
    charts = overview(maps)
    layers, heads = (_grid(maps, dim, model.get(size)) for dim, size in (("layer", "n_layers"), ("head", "n_heads")))
    at = {"layer": layers, "head": heads}
    charts = charts.reindex(at, fill_value={"at_chance": False}) if charts.sizes["chart"] else charts
    rows = [_chart(charts.isel(chart=i)) for i in range(charts.sizes["chart"])]
    return {
        "model": str(model.get("name") or "a model"),
        "layers": layers,
        "heads": heads,
        "charts": rows,
        "groups": list(_groups(charts, maps)),
        "categories": _categories(maps.get("maps"), at),
        "always": list(_always(maps.get("gate"), at)),
        "curves": list(_curves(maps, rows)),
        "agreement": _agreement(charts),
        "special": list(_special(maps)),
        "probe": _probe(maps.get("probe")),
        "salient": _salient(maps.get("salient"), at),
        "provenance": _provenance(maps, info),
        "cite": _cite(maps),
    }


def _grid(maps: Maps, dim: str, size: object) -> list[int]:
    """Numbers of the layers or heads that the model or any dataset has."""
    named = [int(v) for found in maps.values() if dim in found.dims for v in found[dim].values]
    return sorted({*named, *range(size if isinstance(size, int) else 0)})


def _chart(one: xr.Dataset) -> Content:
    names = {n: one[n].item() for n in ("method", "measure", "subject")}
    interval = {n: pack(one[n].values) if one[n].notnull().any() else None for n in ("low", "high")}
    return names | {"score": pack(one.score.values)} | interval | _chance(one)


def _chance(one: xr.Dataset) -> Content:
    """Of a chart: the level that chance explains (a number, or one for each head), which heads are above it (None: all, or
    nothing tells), and what is said of it."""
    levels = np.unique(one.chance.values[np.isfinite(one.chance.values)])
    level = None if not len(levels) else _plain(levels[0]) if len(levels) == 1 else pack(one.chance.values)
    above = ~one.at_chance.values & np.isfinite(one.score.values)
    words, none = level_in_words(one.chance), bool(one.none_above)
    if none:
        words = none_in_words(one.method.item()) + f" (best {float(one.score.max()):.2g}; {words})" * bool(words)
    return {
        "chance": level,
        "above": np.flatnonzero(above).tolist() if one.at_chance.any() else None,
        "none": none,
        "unranked": no_rank(one.method.item()),
        "note": words,
    }


def _groups(charts: xr.Dataset, maps: Maps) -> Iterator[Content]:
    """Charts that are drawn side by side on one colour scale: those of one measure of one method. The probe's come first."""
    each = list(zip(charts.method.values.tolist(), charts.measure.values.tolist(), strict=True))
    order = list(MEASURES)
    for method, measure in sorted(dict.fromkeys(each), key=lambda g: order.index(g[0])):
        mine = [i for i, g in enumerate(each) if g == (method, measure)]
        about = METHODS[method]
        yield {
            "method": method,
            "measure": measure,
            "title": f"{NAMES[method]}: {measure}",
            "subject": about.subject,
            "says": about.says.get(measure, "") + _unproven(maps[method]) + _at_chance(charts.isel(chart=mine)),
            "charts": mine,
            "scale": _scale_above(charts.isel(chart=mine)),
        }


def _at_chance(charts: xr.Dataset) -> str:
    """How maps with a chance level are coloured, and which have no head above it."""
    if not charts.chance.notnull().any():
        return ""
    names = charts.subject.values[charts.none_above.values].tolist()
    which = "all of them" if len(names) == charts.sizes["chart"] else ", ".join(names)
    said = " Heads at chance have the colour of 0; a map without a head above chance is grey"
    return said + (f": {which}." if names else ".")


def _scale_above(charts: xr.Dataset) -> Content:
    """The scale of the maps that are not grey, for those that reach beyond chance."""
    values, coloured = charts.score.values, ~charts.none_above.values
    level = charts.chance.where(~charts.at_chance).values[coloured]
    shown = values[coloured] if coloured.any() else values
    largest = float(np.abs(values[np.isfinite(values)]).max(initial=0))
    return scale(shown, float(np.nanmax(level, initial=0.0))) | {"largest": largest}


def _unproven(found: xr.Dataset) -> str:
    """Which functions' heads were not proven to be their own."""
    if "proven" not in found:
        return ""
    names = [str(f) for f, p in zip(found["function"].values, found.proven.values, strict=True) if not p]
    return f" Not proven, so no evidence by itself (see Specialisation): {', '.join(names)}." if names else ""


def scale(values: np.ndarray, chance: float = 0.0) -> Content:
    """The colour scale of charts [chart, layer, head]: its ends and its ticks."""
    found = range_of(values, chance)
    span = found.high - found.low
    return {
        "low": found.low,
        "high": found.high,
        "largest": float(np.abs(values[np.isfinite(values)]).max(initial=0)),
        "diverging": found.signed,
        "ticks": [{"at": (t - found.low) / span, "text": s} for t, s in zip(found.ticks, found.labels, strict=True)],
    }


def _categories(maps: xr.Dataset | None, at: Mapping[str, list[int]]) -> Content | None:
    """For every head the categories it belongs to, as bits; −1 where there is no head. Kinds are in the order of the legend."""
    if maps is None or not {"category", "layer", "head"} <= set(maps.get("member", xr.DataArray()).dims):
        return None
    member = members(maps).transpose("category", "layer", "head").astype(float).reindex(at)
    names = [str(n) for n in maps["category_name" if "category_name" in maps.coords else "category"].values]
    spare = iter(OTHERS * len(names))
    colours = [COLOURS.get(n) or next(spare) for n in names]
    bits = (np.nan_to_num(member.values) > 0).astype(int) * (1 << np.arange(len(names)))[:, None, None]
    known = member.notnull().all("category").values
    if "score" in maps and {"relation", "layer", "head"} == set(maps.score.dims):
        known &= maps.score.notnull().any("relation").transpose("layer", "head").reindex(at).values
    several = [
        {"count": c, "name": f"{c} categories", "colour": SEVERAL.get(c, SEVERAL[4])} for c in range(2, len(names) + 1)
    ]
    return {
        "names": names,
        "colours": colours,
        "several": several[::-1],
        "bits": np.where(known, bits.sum(0), -1).ravel().tolist(),
        "threshold": _plain(maps.attrs.get("threshold")),
    }


def _always(gate: xr.Dataset | None, at: Mapping[str, list[int]]) -> Iterator[Content]:
    if gate is None:
        return
    there = [n for n in ("always", "any") if n in gate and set(gate[n].dims) == {"task", "layer", "head"}]
    for i, task in enumerate(gate["task"].values.tolist() if there else []):
        for name in there:
            values = gate[name].isel(task=i).transpose("layer", "head").reindex(at).values
            title = f"{str(task).replace('_', ' ').capitalize()} ({name.capitalize()})"
            yield {"title": title, "task": str(task), "values": pack(values)}


def _curves(maps: Maps, charts: Sequence[Content]) -> Iterator[Content]:
    """Removal curves, each with the chart whose top heads were removed: what tells whether one head was among them."""
    found = removal({m: d for m, d in maps.items() if _has_curves(m, d)})
    for i in range(found.sizes["curve"]):
        one = found.isel(curve=i)
        one = one.isel(removed=one.top.notnull().values)
        names = {n: str(one[n].item()) for n in ("method", "subject", "measure", "why")}
        measure = {"importance": MEASURES.get(names["method"], (("", ""),))[0][0]}.get(names["why"], names["why"])
        key = (names["method"], measure, names["subject"])
        of = next((c for c, row in enumerate(charts) if (row["method"], row["measure"], row["subject"]) == key), None)
        values = {n: _list(one[n].values) for n in ("top", "lowest", "random", "random_low", "random_high", "p")}
        title = NAMES.get(names["method"], names["method"])
        says = SWITCHED if names["method"] == "gate" else ""
        yield (
            names
            | {"why": measure, "title": title, "says": says, "chart": of, "removed": one.removed.values.tolist()}
            | values
        )


def _has_curves(method: str, found: xr.Dataset) -> bool:
    """Whether all is there that `removal` reads; datasets of the user's own may have half of it."""
    there = set(found.variables)
    if method == "gate":
        return {"switch_off", "switch_off_random", "switch_off_p", "task", "role", "switched"} <= there
    beside = {"removal_top", "removal_random", "removed", "measure"} <= there
    return beside and bool({"whole", "whole_model"} & there) and bool({"function", "relation"} & there)


def _special(maps: Maps) -> Iterator[Content]:
    """Whose heads were removed, and what that did to every function; and what the test says of each function's heads."""
    for method, found in maps.items():
        said = changes(found)
        verdicts = list(_verdicts(found))
        if said is None and not verdicts:
            continue
        rows, columns, values, measure = said or ([], [], np.empty((0, 0)), "")
        yield {
            "title": NAMES.get(method, method),
            "rows": rows,
            "columns": columns,
            "values": [_list(row) for row in values],
            "measure": measure,
            "verdicts": verdicts,
        }


def _verdicts(found: xr.Dataset) -> Iterator[Content]:
    if (
        not {"verdict", "heads", "own_effect", "other_effect", "random_effect", "p_corrected"} <= set(found)
        or found.verdict.ndim > 1
    ):
        return
    for i, name in enumerate(found["function"].values.tolist()):
        one = found.isel(function=i)
        means = {"own": one.own_effect, "others": one.other_effect.mean(), "random": one.random_effect.mean()}
        yield {
            "function": str(name),
            "heads": int(one.heads),
            **{k: _plain(v.item()) for k, v in means.items()},
            "p": _plain(one.p_corrected.item()),
            "verdict": str(one.verdict.item()),
        }


def _agreement(charts: xr.Dataset) -> Content | None:
    """Spearman over heads of every two charts; none where one is constant or fewer than three heads have both."""
    n = charts.sizes["chart"]
    if n < 2:
        return None
    return {"spearman": [_list(row) for row in spearman_matrix(charts.score.values.reshape(n, -1))]}


def _probe(probe: xr.Dataset | None) -> Content | None:
    """How well the probe does, beside what needs no understanding of functions."""
    if probe is None or "accuracy" not in probe or probe.accuracy.ndim:
        return None
    rows = [("The probe, on held-out questions", probe.accuracy.item())]
    if "bag_of_words" in probe and probe.bag_of_words.dims == ("wording",):
        words = zip(probe.wording.values.tolist(), probe.bag_of_words.values.tolist(), strict=True)
        rows += [(f"Bag of words: {name}", value) for name, value in words]
    elif "bag_of_words_accuracy" in probe:
        rows.append(("Bag of words", probe.bag_of_words_accuracy.item()))
    best_words = max((v for name, v in rows[1:] if not math.isnan(v)), default=math.nan)
    single = {"control_accuracy": "Probe on shuffled labels", "majority_accuracy": "Always the commonest class"}
    rows += [(text, probe[name].item()) for name, text in single.items() if name in probe]
    clears = int(probe.clears_control.sum()) if "clears_control" in probe else None
    per = probe.accuracy_per_function if "accuracy_per_function" in probe else None
    return {
        "rows": [{"name": name, "value": _plain(value)} for name, value in rows if not math.isnan(value)],
        "per_function": []
        if per is None
        else [{"name": str(n), "value": _plain(v)} for n, v in zip(probe["function"].values, per.values, strict=True)],
        "verdict": " ".join(_verdict(probe, best_words, clears)),
        "caution": NONE_CLEAR if clears == 0 else "",
    }


def _verdict(probe: xr.Dataset, words: float, clears: int | None) -> Iterator[str]:
    accuracy = probe.accuracy.item()
    asked = "questions" in probe and "split" in probe.questions.dims and "test" in probe["split"].values
    test = int(probe.questions.sel(split="test").sum()) if asked else 0
    margin = 2 * math.sqrt(accuracy * (1 - accuracy) / test) if test else CLOSE  # two standard errors
    of = f" of {test} held-out questions" if test else " of held-out questions"
    yield f"The probe names the function of {accuracy:.0%}{of}."
    if not math.isnan(words):
        level = f"counting words reaches up to {words:.0%}"
        if accuracy <= words:
            yield f"But {level}: the wording alone explains its success, so its maps are no evidence of functions."
        elif accuracy - words < margin:
            yield f"But {level}, which is too close to tell apart: much of what it reads may be wording rather than function."
        else:
            yield f"By contrast, {level}, so it reads more than wording."
    if clears == 0:
        yield NONE_CLEAR
    elif clears is not None:
        pairs = int(probe.clears_control.size)
        yield f"{clears:,} of {pairs:,} importances clear the shuffled-label control; the others could be chance."


def _salient(salient: xr.Dataset | None, at: Mapping[str, list[int]]) -> Content | None:
    """Tokens as numbers in one list of texts: most are shared by many heads. Fewer of each head where there are very many heads."""
    if salient is None or not {"layer", "head", "rank"} <= set(salient.get("token", xr.DataArray()).dims):
        return None
    lists = [n for n in ("strongest", "suppressed") if n in salient and "output" in salient[n].dims]
    ranks, outputs = salient.sizes["rank"], salient.sizes.get("output", 0)
    while ranks > 1 and len(at["layer"]) * len(at["head"]) * ranks * (1 + len(lists) * outputs) > TOKENS:
        ranks, outputs = ranks - 1, min(outputs, max(2, ranks - 2))
    cut = salient.isel(rank=slice(ranks)).isel(output=slice(outputs), missing_dims="ignore")
    texts = {
        n: cut[n].transpose("layer", "head", "rank", ...).reindex(at, fill_value="").values for n in ("token", *lists)
    }
    each, back = np.unique(np.concatenate([t.ravel() for t in texts.values()]).astype(str), return_inverse=True)
    places = np.split(back.astype("<u4"), np.cumsum([t.size for t in texts.values()])[:-1])
    gains = cut.amplification.transpose("layer", "head", "rank").reindex(at).values if "amplification" in cut else None
    return {
        "texts": each.tolist(),
        "ranks": ranks,
        "outputs": outputs,
        "amplification": None if gains is None else pack(gains),
        "strongest": None,
        "suppressed": None,
    } | {name: base64.b64encode(p.tobytes()).decode() for name, p in zip(texts, places, strict=True)}


def _provenance(maps: Maps, info: Mapping[str, Any]) -> list[Content]:
    """Tables of names and values: the model, the run, and every dataset's attributes, less what the run's table says already."""
    tables = [(name.capitalize(), dict(_flat(info.get(name) or {}))) for name in ("model", "run")]
    said = {(k.removeprefix("versions "), v) for _, rows in tables for k, v in rows.items()}
    rest = {k: v for k, v in info.items() if k not in ("model", "run", "methods")}
    tables.append(("Atlas", dict(_flat(rest))))
    for method, found in maps.items():
        title = NAMES.get(method, method)
        rows = dict(_flat(found.attrs))
        tables.append((title, {k: v for k, v in rows.items() if (k, v) not in said and k != "method" and v}))
    return [{"title": title, "rows": list(rows.items())} for title, rows in tables if rows]


def _flat(values: Mapping[Any, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        name = f"{before}{key}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name} ")
        elif isinstance(value, (list, tuple, np.ndarray)):
            yield name, ", ".join(map(str, value)) or "none"
        else:
            yield name, "none" if value is None else str(value)


def _cite(maps: Maps) -> list[Content]:
    cited = [METHODS[m].cite for m in METHODS if m in maps or (m == "maps" and "salient" in maps)]
    return [{"text": c[0], "arxiv": c[1]} for c in dict.fromkeys(cited) if c is not None]


def pack(values: np.ndarray) -> str:
    """Numbers as base64 of little-endian float32: a third of their size as text, and read by the browser at once."""
    return base64.b64encode(np.ascontiguousarray(values, "<f4").tobytes()).decode()


def _list(values: np.ndarray) -> list[float | None]:
    return [_plain(v) for v in values]


def _plain(value: Any) -> float | None:
    """A number for JSON, which has no NaN; five digits are more than can be seen."""
    return float(f"{float(value):.5g}") if value is not None and np.isfinite(value) else None
