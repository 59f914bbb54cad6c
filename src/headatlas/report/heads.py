"""What the page shows about heads in addition to scores: categories, roles over seeds, salient tokens."""

import base64
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import xarray as xr

from headatlas.figures.figure_names import PUBLISHED
from headatlas.figures.gates import OVER, SEEDS, has_always_any
from headatlas.figures.style import PALETTES
from headatlas.methods import lists_of, measures_of
from headatlas.methods._chance import members_above_chance, stored_members
from headatlas.report.charts import on_grid
from headatlas.report.numbers import pack, plain
from headatlas.results.about import subject_dim
from headatlas.results.outcomes import outcomes
from headatlas.results.stored_reliability import reliability_notes
from headatlas.tasks.relations import CATEGORIES

CATEGORY_COLOURS = dict(zip(CATEGORIES, PALETTES[PUBLISHED].categories, strict=True))
SEVERAL_COLOURS = dict(zip((2, 3, 4), PALETTES[PUBLISHED].several, strict=True))
# Colours for categories that users define.
OTHER_COLOURS = ("#17becf", "#bcbd22", "#7f7f7f", "#393b79")
# Salient tokens on the page. Without a limit, models with 16,000 heads would need tens of megabytes.
MAX_TOKENS = 120_000
Grid = Mapping[str, list[int]]
"""The numbers of the layers and heads on the page."""


def categories(results: Iterable[xr.Dataset], grid: Grid) -> dict[str, Any] | None:
    """Return the categories of every head as bits, −1 for a missing head; and the legend."""
    dims = {"category", "layer", "head"}
    candidates = ((r, m) for r in results if (m := stored_members(r)) is not None and dims <= set(m.dims))
    result, is_member = next(candidates, (None, None))
    if result is None or is_member is None:
        return None
    member = members_above_chance(result, is_member).transpose("category", "layer", "head").astype(float).reindex(grid)
    names = [str(n) for n in result["category_name" if "category_name" in result.coords else "category"].values]
    spare = iter(OTHER_COLOURS * len(names))
    colours = [CATEGORY_COLOURS.get(n) or next(spare) for n in names]
    bits = (np.nan_to_num(member.values) > 0).astype(int) * (1 << np.arange(len(names)))[:, None, None]
    exists = member.notnull().all("category").values
    for measure in measures_of(str(result.attrs.get("method")))[:1]:
        if measure.name in result and {measure.over, "layer", "head"} == set(result[measure.name].dims):
            scored = result[measure.name].notnull().any(measure.over)
            exists &= scored.transpose("layer", "head").reindex(grid, fill_value=False).values
    several = [
        {"count": n, "name": f"{n} categories", "colour": SEVERAL_COLOURS.get(n, SEVERAL_COLOURS[4])}
        for n in range(2, len(names) + 1)
    ]
    return {
        "names": names,
        "colours": colours,
        "several": several[::-1],
        "bits": np.where(exists, bits.sum(0), -1).ravel().tolist(),
        "threshold": plain(result.attrs.get("threshold")),
    }


def always(results: Iterable[xr.Dataset], grid: Grid) -> Iterator[dict[str, Any]]:
    """Yield the minimum and maximum over seeds of the heads' scores for every task, with the outcome of its test."""
    for result in results:
        if not has_always_any(result):
            continue
        method = str(result.attrs["method"])
        tested = outcomes(result)
        reliability = reliability_notes(result, measures_of(method)[0].name)
        dim = subject_dim(result["always"])
        for i, task in enumerate(result[dim].values.tolist()):
            outcome = tested.get((measures_of(method)[0].name, str(task)))
            for name, title in OVER.items():
                seeds = f"{SEEDS[name]} of {result.sizes['seed']} seeds" if "seed" in result.sizes else ""
                lines = (seeds, reliability.get(str(task), ""), outcome.text if outcome else "")
                test = {
                    "tested": on_grid(outcome.heads, result, grid) if outcome else [],
                    "notes": [line for line in lines if line],
                }
                values = result[name].isel({dim: i}).transpose("layer", "head").reindex(grid).values
                words = str(task).replace("_", " ").capitalize()
                yield {"title": f"{words} ({title})", "task": str(task), "values": pack(values)} | test


def tokens(results: Iterable[xr.Dataset], grid: Grid) -> dict[str, Any] | None:
    """Return the salient tokens of heads as indices into one list of texts, since many heads share tokens.

    With many heads, fewer tokens per head are returned.
    """
    declared = [(result, lists) for result in results if (lists := lists_of(result)) is not None]
    if not declared:
        return None
    result, lists = declared[0]
    ranks = result.sizes["rank"]
    outputs = result.sizes["output"]
    while ranks > 1 and len(grid["layer"]) * len(grid["head"]) * ranks * (1 + 2 * outputs) > MAX_TOKENS:
        outputs = min(outputs, max(2, ranks - 2))
        ranks -= 1
    cut = result.isel(rank=slice(ranks), output=slice(outputs)).transpose("layer", "head", "rank", "output", ...)
    names = {"token": lists.tokens, "promoted": lists.written, "demoted": lists.demoted}  # on the page
    texts = {key: cut[name].reindex(grid, fill_value="").values for key, name in names.items()}
    # As objects, because NumPy's text type drops NUL characters at the end.
    all_texts = np.concatenate([t.ravel().astype(object) for t in texts.values()])
    unique, indices = np.unique(all_texts, return_inverse=True)
    places = np.split(indices.astype("<u4"), np.cumsum([t.size for t in texts.values()])[:-1])
    return {
        "texts": unique.tolist(),
        "ranks": ranks,
        "outputs": outputs,
        "gains": pack(cut[lists.value].reindex(grid).values),
    } | {name: base64.b64encode(p.tobytes()).decode() for name, p in zip(texts, places, strict=True)}
