"""What the page shows of heads beside their scores: categories, roles over all seeds, salient tokens."""

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
from headatlas.tasks.relations import CATEGORIES

COLOURS = dict(zip(CATEGORIES, PALETTES[PUBLISHED].categories, strict=True))
SEVERAL = dict(zip((2, 3, 4), PALETTES[PUBLISHED].several, strict=True))
OTHERS = ("#17becf", "#bcbd22", "#7f7f7f", "#393b79")  # categories of the user's own
TOKENS = 120_000  # salient tokens written into the page at most: 16,000 heads would else need tens of megabytes
Grid = Mapping[str, list[int]]  # numbers of the layers and heads


def categories(results: Iterable[xr.Dataset], grid: Grid) -> dict[str, Any] | None:
    """For every head the categories it belongs to, as bits; −1 where there is no head. As the legend orders them."""
    dims = {"category", "layer", "head"}
    found = ((r, m) for r in results if (m := stored_members(r)) is not None and dims <= set(m.dims))
    result, belongs = next(found, (None, None))
    if result is None or belongs is None:
        return None
    member = members_above_chance(result, belongs).transpose("category", "layer", "head").astype(float).reindex(grid)
    names = [str(n) for n in result["category_name" if "category_name" in result.coords else "category"].values]
    spare = iter(OTHERS * len(names))
    colours = [COLOURS.get(n) or next(spare) for n in names]
    bits = (np.nan_to_num(member.values) > 0).astype(int) * (1 << np.arange(len(names)))[:, None, None]
    known = member.notnull().all("category").values
    for measure in measures_of(str(result.attrs.get("method")))[:1]:
        if measure.name in result and {measure.over, "layer", "head"} == set(result[measure.name].dims):
            scored = result[measure.name].notnull().any(measure.over)
            known &= scored.transpose("layer", "head").reindex(grid, fill_value=False).values
    several = [
        {"count": c, "name": f"{c} categories", "colour": SEVERAL.get(c, SEVERAL[4])} for c in range(2, len(names) + 1)
    ]
    return {
        "names": names,
        "colours": colours,
        "several": several[::-1],
        "bits": np.where(known, bits.sum(0), -1).ravel().tolist(),
        "threshold": plain(result.attrs.get("threshold")),
    }


def always(results: Iterable[xr.Dataset], grid: Grid) -> Iterator[dict[str, Any]]:
    """What heads do to every task over all seeds: the least and the most. With the outcome of the task's test."""
    for result in results:
        if not has_always_any(result):
            continue
        method = str(result.attrs["method"])
        tested = outcomes(method, result)
        dim = subject_dim(result["always"])
        for i, task in enumerate(result[dim].values.tolist()):
            outcome = tested.get((measures_of(method)[0].name, str(task)))
            for name, title in OVER.items():
                notes = [f"{SEEDS[name]} of {result.sizes['seed']} seeds"] if "seed" in result.sizes else []
                test = {
                    "tested": on_grid(outcome.removed, result, grid) if outcome else [],
                    "notes": notes + ([outcome.text] if outcome else []),
                }
                values = result[name].isel({dim: i}).transpose("layer", "head").reindex(grid).values
                words = str(task).replace("_", " ").capitalize()
                yield {"title": f"{words} ({title})", "task": str(task), "values": pack(values)} | test


def tokens(results: Iterable[xr.Dataset], grid: Grid) -> dict[str, Any] | None:
    """Return tokens as numbers in one list of texts: most are shared by many heads. Fewer where heads are many."""
    declared = [(result, lists) for result in results if (lists := lists_of(result)) is not None]
    if not declared:
        return None
    result, lists = declared[0]
    ranks = result.sizes["rank"]
    outputs = result.sizes["output"]
    while ranks > 1 and len(grid["layer"]) * len(grid["head"]) * ranks * (1 + 2 * outputs) > TOKENS:
        outputs = min(outputs, max(2, ranks - 2))
        ranks -= 1
    cut = result.isel(rank=slice(ranks), output=slice(outputs)).transpose("layer", "head", "rank", "output", ...)
    names = {"token": lists.tokens, "promoted": lists.written, "demoted": lists.demoted}  # on the page
    texts = {key: cut[name].reindex(grid, fill_value="").values for key, name in names.items()}
    # as objects: NumPy's own type for text drops NUL at the end
    together = np.concatenate([t.ravel().astype(object) for t in texts.values()])
    each, back = np.unique(together, return_inverse=True)
    places = np.split(back.astype("<u4"), np.cumsum([t.size for t in texts.values()])[:-1])
    return {
        "texts": each.tolist(),
        "ranks": ranks,
        "outputs": outputs,
        "gains": pack(cut[lists.value].reindex(grid).values),
    } | {name: base64.b64encode(p.tobytes()).decode() for name, p in zip(texts, places, strict=True)}
