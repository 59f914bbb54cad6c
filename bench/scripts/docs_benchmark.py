"""The benchmark's tables and figure in docs/evidence/benchmark.md: `make docs-benchmark`."""

import json
import sys
from pathlib import Path
from textwrap import fill

import xarray as xr

from headatlas.figures.style import save
from headatlas.results.store import load
from headatlas_bench import tables
from headatlas_bench.benchmarking import with_means
from headatlas_bench.contenders import contenders
from headatlas_bench.functions import FUNCTIONS
from headatlas_bench.holds import accept
from headatlas_bench.known import planted_folder
from headatlas_bench.names import HARDER, PLAIN
from headatlas_bench.quality_and_cost import quality_and_cost

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from docs_pages import FIGURES, ROOT, table, write_block

BEGIN, END = "<!-- benchmark: written by `make docs-benchmark` -->\n", "<!-- end of benchmark -->"
COUNTED = fill(
    "*forward* and *backward* are passes of one example, per function;"
    " *seconds* are for all functions (or relations) of a model, on the machine that ran it."
    " The other columns are of the default model: *agreement*, *stability* and *removal* of an atlas;"
    " *between halves* and *between seeds*, how far maps agree with the quick preset's examples.",
    120,
)


def page_block(run: dict) -> str:
    rows = run["plantings"]
    harder = [row for row in rows if row["first"] not in ("the decoys", "the harmful")]
    decoys = [row for row in rows if row["first"] == "the decoys"]
    parts = {
        "### The planted models": table(run["planted"]),
        "### The harder ones": table(run["harder"]),
        "### Every method": [*table(run["table"]), "", COUNTED],
        "### Harder plantings: AUROC for the heads that must come first": table(tables.side_by_side(harder)),
        "### Their 95 % intervals, over models and functions": table(tables.side_by_side(harder, "95 %")),
        "### Seeds: from the lowest to the highest AUROC of one function in one model": table(run["seeds"]),
        "### Decoys: the share that is marked, and AUROC as if they were wanted": table(
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


def planted() -> list[dict]:
    rows = []
    for name in PLAIN:
        truth = json.loads((planted_folder(name) / "truth.json").read_text())
        rows += [
            {"model": name, "function": f, "heads": " ".join(truth["functions"][f])} | truth["measured"][f]
            for f in FUNCTIONS
        ]
    return rows


def harder() -> list[dict]:
    """What is planted in the other models, and what was measured of it."""
    rows = []
    for name in HARDER:
        truth = json.loads((planted_folder(name) / "truth.json").read_text())
        left_out = accept(truth["measured"])
        for function, circuit in truth["circuits"].items():
            parts = circuit["parts"] | {k: circuit[k] for k in ("decoys", "harmful") if circuit[k]}
            measured = {k: v for k, v in truth["measured"][function].items() if k != "harm"}
            measured["harm"] = " ".join(str(v) for v in truth["measured"][function].get("harm", [])) or None
            heads = "; ".join(f"{part} {' '.join(heads)}" for part, heads in parts.items())
            what = {"model": name, "function": function, "planting": circuit["planting"], "heads": heads}
            rows.append(what | measured | {"accepted": "no" if function in left_out else "yes"})
    return rows


def with_stability(rows: list[dict]) -> list[dict]:
    """Beside a method's first row: how far its maps of the default model agree, with the fewest examples measured."""
    measured = json.loads((FIGURES / "stability.json").read_text())["rows"]
    means: dict[tuple[str, str], float] = {}
    for row in sorted(measured, key=lambda row: row["examples"] or 0, reverse=True):
        values = [v for v in row["spearman"].values() if v is not None]
        means[row["method"], row["over"]] = round(sum(values) / len(values), 2)
    seen: set[str] = set()
    for row in rows:
        method = contenders()[row["method"]].method
        first, _ = method not in seen, seen.add(method)
        for over, title in (("half", "between halves"), ("seed", "between seeds")):
            row[title] = means.get((method, over)) if first else None
    return rows


def newest(before: list[dict], now: list[dict], keys: tuple[str, ...]) -> list[dict]:
    """Rows of an earlier run, where they were not measured again, then those that are new."""
    measured = {tuple(row[k] for k in keys): row for row in now}
    kept = [measured.pop(tuple(row[k] for k in keys), row) for row in before]
    return [*kept, *measured.values()]


def over_seeds(results: list[xr.Dataset]) -> xr.Dataset:
    """Every cell, by the benchmark's seed."""
    groups = {m: g for r in results for m, g in zip(r.model.values.tolist(), r.group.values.tolist(), strict=True)}
    cells = [
        r.drop_dims(("over", "real"), errors="ignore").drop_vars("group").expand_dims(seed=[int(r.attrs["seed"])])
        for r in results
    ]
    merged = xr.merge(cells, join="outer", compat="no_conflicts", combine_attrs="override")
    return merged.assign_coords(group=("model", [groups[m] for m in merged.model.values.tolist()]))


def seed_spread(merged: xr.Dataset) -> list[dict]:
    """How far the AUROC of one function in one model goes apart between seeds of the benchmark, for each contender."""
    auroc = merged.auroc.isel(model=[tables.HARDER in g for g in merged.group.values])
    if auroc.sizes["seed"] < 2:
        return []
    repeated = auroc.where(auroc.notnull().all("seed"))
    apart = repeated.max("seed") - repeated.min("seed")
    rows = zip(
        apart.contender.values.tolist(), apart.mean(("model", "subject")), apart.max(("model", "subject")), strict=True
    )
    return [
        {"method": name, "mean": round(float(mean), 3), "most": round(float(most), 3)}
        for name, mean, most in rows
        if mean.notnull()
    ]


def main(*folders: str) -> None:
    """Writes what was measured in these folders; of what was not, what an earlier run gave."""
    results = [load(Path(folder) / "benchmark.nc") for folder in folders]
    merged = over_seeds(results)
    order = {"contender": contenders(), "model": dict.fromkeys(m for r in results for m in r.model.values.tolist())}
    merged = merged.reindex({k: [v for v in of if v in merged[k].values] for k, of in order.items()})
    result = with_means(merged.mean("seed"))  # first: seeds of one model are not models of their own
    real = [r for r in results if "real" in r.dims]
    before = json.loads((FIGURES / "benchmark.json").read_text())
    by_function = result.auroc.isel(model=(result.group == "functions").values.nonzero()[0]).mean("model")
    functions = [
        {"method": name} | {f: round(float(by_function.sel(contender=name, subject=f)), 2) for f in FUNCTIONS}
        for name in result.contender.values.tolist()
        if set(FUNCTIONS) <= set(by_function.subject.values) and by_function.sel(contender=name).notnull().any()
    ]
    run = {
        "planted": planted(),
        "harder": harder(),
        "table": with_stability(newest(before["table"], tables.benchmark(result), ("method", "truth"))),
        "plantings": newest(before.get("plantings", []), tables.plantings(result), ("planting", "first", "method")),
        "seeds": newest(before.get("seeds", []), seed_spread(merged), ("method",)),
        "functions": newest(before["functions"], functions, ("method",)),
        "real model": str(real[0].attrs["real"]) if real else before["real model"],
        "real": tables.real(real[0]) if real else before["real"],
    }
    if {"ablate", "gate", "maps"} <= set(result.contender.values.tolist()):
        save(quality_and_cost(result), FIGURES / "benchmark.png", "png", dpi=110)
    (FIGURES / "benchmark.json").write_text(json.dumps(run, indent=1, ensure_ascii=False) + "\n")
    write_block(ROOT / "docs" / "evidence" / "benchmark.md", BEGIN, page_block(run), END)


if __name__ == "__main__":
    main(*sys.argv[1:])
