"""Write the benchmark's tables and figure to docs/evidence/benchmark.md: `make docs-benchmark`."""

import json
import sys
from pathlib import Path
from textwrap import fill

import xarray as xr

from headatlas.figures.style import save
from headatlas.results.store import load
from headatlas_bench import tables
from headatlas_bench.acceptance import accept
from headatlas_bench.benchmarking import add_means
from headatlas_bench.contenders import contenders
from headatlas_bench.functions import FUNCTIONS
from headatlas_bench.ground_truth import planted_folder
from headatlas_bench.names import HARDER, PLAIN
from headatlas_bench.quality_and_cost import quality_and_cost

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from docs_pages import FIGURES, ROOT, table, write_block

BEGIN, END = "<!-- benchmark: written by `make docs-benchmark` -->\n", "<!-- end of benchmark -->"
COLUMN_NOTES = fill(
    "*forward* and *backward* are passes of one example, per function;"
    " *seconds* are for all functions (or relations) of a model, on the machine that ran it."
    " The other columns are of the default model: *agreement*, *stability* and *removal* of an atlas;"
    " *between halves* and *between seeds*, the correlation of maps with the quick preset's examples.",
    120,
)


def page_block(run: dict) -> str:
    """Return the generated part of the page."""
    rows = run["plantings"]
    carrier_rows = [row for row in rows if row["first"] not in ("the decoys", "the harmful")]
    decoys = [row for row in rows if row["first"] == "the decoys"]
    parts = {
        "### The planted models": table(run["planted"]),
        "### The harder ones": table(run["harder"]),
        "### Every method": [*table(run["table"]), "", COLUMN_NOTES],
        "### Harder plantings: AUROC for the heads that must come first": table(tables.side_by_side(carrier_rows)),
        "### Their 95 % intervals, over models and functions": table(tables.side_by_side(carrier_rows, "95 %")),
        "### Seeds: from the lowest to the highest AUROC of one function in one model": table(run["seeds"]),
        "### Decoys: the share that is marked, and AUROC for finding them": table(
            [{"method": r["method"], "marked": r["marked"], "AUROC": r["AUROC"], "95 %": r["95 %"]} for r in decoys]
        ),
        "### Always and any: the share of the heads with a score of at least 0.5": table(
            [row for row in tables.side_by_side(rows, "own") if row["method"] in ("gate", "gate-any", "gate-always")]
        ),
        "### Harmful heads": table(
            [
                {k: r[k] for k in ("method", "AUROC", "95 %", "marked", "graded")}
                for r in rows
                if r["first"] == "the harmful"
            ]
        ),
        "### AUROC by function, mean of the models": table(run["functions"]),
        f"### Where no truth is known: {run['real model']}": table(run["real"]),
    }
    return "\n".join(line for title, lines in parts.items() for line in (title, "", *lines, "")) + "\n"


def planted_rows() -> list[dict]:
    """Make a row per function of the plain models."""
    rows = []
    for name in PLAIN:
        truth = json.loads((planted_folder(name) / "truth.json").read_text())
        rows += [
            {"model": name, "function": f, "heads": " ".join(truth["functions"][f])} | truth["measured"][f]
            for f in FUNCTIONS
        ]
    return rows


def harder_rows() -> list[dict]:
    """Make a row per function of the harder models: what is planted, and what was measured."""
    rows = []
    for name in HARDER:
        truth = json.loads((planted_folder(name) / "truth.json").read_text())
        left_out = accept(truth["measured"])
        for function, circuit in truth["circuits"].items():
            parts = circuit["parts"] | {k: circuit[k] for k in ("decoys", "harmful") if circuit[k]}
            measured = {k: v for k, v in truth["measured"][function].items() if k != "harm"}
            measured["harm"] = " ".join(str(v) for v in truth["measured"][function].get("harm", [])) or None
            heads = "; ".join(f"{part} {' '.join(heads)}" for part, heads in parts.items())
            description = {"model": name, "function": function, "planting": circuit["planting"], "heads": heads}
            rows.append(description | measured | {"accepted": "no" if function in left_out else "yes"})
    return rows


def with_stability(rows: list[dict]) -> list[dict]:
    """Add the stability of maps of the default model to each method's first row, with the fewest examples measured."""
    measured = json.loads((FIGURES / "stability.json").read_text())["rows"]
    means: dict[tuple[str, str], float] = {}
    for row in sorted(measured, key=lambda row: row["examples"] or 0, reverse=True):
        values = [v for v in row["spearman"].values() if v is not None]
        means[row["method"], row["over"]] = round(sum(values) / len(values), 2)
    seen_methods: set[str] = set()
    for row in rows:
        method = contenders()[row["method"]].method
        first = method not in seen_methods
        seen_methods.add(method)
        for over, title in (("half", "between halves"), ("seed", "between seeds")):
            row[title] = means.get((method, over)) if first else None
    return rows


def update_rows(earlier: list[dict], new_rows: list[dict], keys: tuple[str, ...]) -> list[dict]:
    """Replace the rows of an earlier run that were measured again, and append those that are new."""
    new_by_key = {tuple(row[k] for k in keys): row for row in new_rows}
    updated = [new_by_key.pop(tuple(row[k] for k in keys), row) for row in earlier]
    return [*updated, *new_by_key.values()]


def over_seeds(results: list[xr.Dataset]) -> xr.Dataset:
    """Merge results along a new dimension, the benchmark's seed."""
    group_by_model = {
        m: g for r in results for m, g in zip(r.model.values.tolist(), r.group.values.tolist(), strict=True)
    }
    cells = [
        r.drop_dims(("over", "real"), errors="ignore").drop_vars("group").expand_dims(seed=[int(r.attrs["seed"])])
        for r in results
    ]
    merged = xr.merge(cells, join="outer", compat="no_conflicts", combine_attrs="override")
    return merged.assign_coords(group=("model", [group_by_model[m] for m in merged.model.values.tolist()]))


def seed_spread(merged: xr.Dataset) -> list[dict]:
    """Return, for each contender, how much the AUROC of one function in one model differs between seeds."""
    auroc = merged.auroc.isel(model=[tables.HARDER_SEPARATOR in g for g in merged.group.values])
    if auroc.sizes["seed"] < 2:
        return []
    repeated = auroc.where(auroc.notnull().all("seed"))
    spread = repeated.max("seed") - repeated.min("seed")
    rows = zip(
        spread.contender.values.tolist(),
        spread.mean(("model", "subject")),
        spread.max(("model", "subject")),
        strict=True,
    )
    return [
        {"method": name, "mean": round(float(mean), 3), "most": round(float(largest), 3)}
        for name, mean, largest in rows
        if mean.notnull()
    ]


def main(*folders: str) -> None:
    """Write the results in these folders; rows that they do not contain stay as an earlier run wrote them."""
    results = [load(Path(folder) / "benchmark.nc") for folder in folders]
    merged = over_seeds(results)
    order = {"contender": contenders(), "model": dict.fromkeys(m for r in results for m in r.model.values.tolist())}
    merged = merged.reindex({k: [v for v in names if v in merged[k].values] for k, names in order.items()})
    # Seeds of one model are averaged first: they are not separate models.
    result = add_means(merged.mean("seed"))
    real = [r for r in results if "real" in r.dims]
    earlier = json.loads((FIGURES / "benchmark.json").read_text())
    by_function = result.auroc.isel(model=(result.group == "functions").values.nonzero()[0]).mean("model")
    functions = [
        {"method": name} | {f: round(float(by_function.sel(contender=name, subject=f)), 2) for f in FUNCTIONS}
        for name in result.contender.values.tolist()
        if set(FUNCTIONS) <= set(by_function.subject.values) and by_function.sel(contender=name).notnull().any()
    ]
    run = {
        "planted": planted_rows(),
        "harder": harder_rows(),
        "table": with_stability(update_rows(earlier["table"], tables.benchmark(result), ("method", "truth"))),
        "plantings": update_rows(
            earlier.get("plantings", []), tables.plantings(result), ("planting", "first", "method")
        ),
        "seeds": update_rows(earlier.get("seeds", []), seed_spread(merged), ("method",)),
        "functions": update_rows(earlier["functions"], functions, ("method",)),
        "real model": str(real[0].attrs["real"]) if real else earlier["real model"],
        "real": tables.real_model_rows(real[0]) if real else earlier["real"],
    }
    if {"ablate", "gate", "maps"} <= set(result.contender.values.tolist()):
        save(quality_and_cost(result), FIGURES / "benchmark.png", "png", dpi=110)
    (FIGURES / "benchmark.json").write_text(json.dumps(run, indent=1, ensure_ascii=False) + "\n")
    write_block(ROOT / "docs" / "evidence" / "benchmark.md", BEGIN, page_block(run), END)


if __name__ == "__main__":
    main(*sys.argv[1:])
