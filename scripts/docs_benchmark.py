"""The benchmark's tables and figure in README.md and docs/evidence/benchmark.md: `make docs-benchmark`."""

import json
import sys
from pathlib import Path
from textwrap import fill

from headatlas.figures.benchmark import quality_and_cost
from headatlas.figures.style import save
from headatlas.planted import tables
from headatlas.planted.functions import FUNCTIONS
from headatlas.planted.known import SHIPPED, planted_folder
from headatlas.results.store import load

ROOT = Path(__file__).parent.parent
FIGURES = ROOT / "docs" / "figures"
BEGIN, END = "<!-- benchmark: written by `make docs-benchmark` -->\n", "<!-- end of benchmark -->"
COUNTED = fill(
    "*forward* and *backward* are passes of one example, per function;"
    " *seconds* are for all functions (or relations) of a model, on the machine that ran it.",
    120,
)


def table(rows: list[dict]) -> list[str]:
    keys = list(dict.fromkeys(key for row in rows for key in row))
    lines = ["| " + " | ".join(keys) + " |", "| " + " | ".join("---" for _ in keys) + " |"]
    cells = [["–" if row.get(key) is None else str(row[key]) for key in keys] for row in rows]
    return lines + ["| " + " | ".join(row) + " |" for row in cells]


def readme_block(run: dict) -> str:
    """Every method once, at the lowest noise."""
    short = [row for row in run["table"] if "noise" not in row["truth"] or row["truth"].endswith("noise 0")]
    return "\n".join([*table(short), "", COUNTED]) + "\n"


def page_block(run: dict) -> str:
    parts = {
        "### The planted models": table(run["planted"]),
        "### Every method": [*table(run["table"]), "", COUNTED],
        "### AUROC by function, mean of the models": table(run["functions"]),
        f"### Where no truth is known: {run['real model']}": table(run["real"]),
    }
    return "\n".join(line for title, lines in parts.items() for line in (title, "", *lines, "")) + "\n"


def planted() -> list[dict]:
    rows = []
    for name in SHIPPED:
        truth = json.loads((planted_folder(name) / "truth.json").read_text())
        rows += [
            {"model": name, "function": f, "heads": " ".join(truth["functions"][f])} | truth["measured"][f]
            for f in FUNCTIONS
        ]
    return rows


def main(folder: str) -> None:
    result = load(Path(folder) / "benchmark.nc")
    by_function = result.auroc.isel(model=(result.group == "functions").values.nonzero()[0]).mean("model")
    run = {
        "planted": planted(),
        "table": tables.benchmark(result),
        "functions": [
            {"method": name} | {f: round(float(by_function.sel(contender=name, subject=f)), 2) for f in FUNCTIONS}
            for name in result.contender.values.tolist()
            if result.truth.sel(contender=name) == "functions"
        ],
        "real model": str(result.attrs.get("real", "")),
        "real": tables.real(result),
    }
    save(quality_and_cost(result), FIGURES / "benchmark.png", "png", dpi=110)
    (FIGURES / "benchmark.json").write_text(json.dumps(run, indent=1, ensure_ascii=False) + "\n")
    pages = {ROOT / "README.md": readme_block(run), ROOT / "docs" / "evidence" / "benchmark.md": page_block(run)}
    for page, block in pages.items():
        before, mark, rest = page.read_text().partition(BEGIN)
        if mark:
            page.write_text(before + BEGIN + block + END + rest.partition(END)[2])


if __name__ == "__main__":
    main(sys.argv[1])
