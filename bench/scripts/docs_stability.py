"""Write how stable each map is to docs/evidence/default-model.md: `make docs-stability`.

python bench/scripts/docs_stability.py DIR     DIR is what `python -m headatlas_bench.stability` wrote
"""

import json
import sys
from pathlib import Path
from textwrap import fill
from typing import Any

from headatlas_bench import stability

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from docs_pages import FIGURES, ROOT, table, write_block

RUN = FIGURES / "stability.json"
PAGE = ROOT / "docs" / "evidence" / "default-model.md"
BEGIN, END = "<!-- stability -->\n", "<!-- end of stability -->"
EXPLANATION = (
    "*Between halves* is the Spearman correlation over heads of two maps, each of half of the *examples*; in brackets,"
    " the range over tasks, functions or relations. *Whole map* is the expected correlation of two maps of all these"
    " examples, by the Spearman–Brown formula 2r / (1 + r); it is not measured. *Between seeds* compares single seeds,"
    " with the data of the {preset} preset. *Takes* is the fewest examples, both halves together, that reached 0.8; if"
    " none did, it is extrapolated by the formula from the largest number measured."
)


def block(run: dict[str, Any]) -> str:
    """Return the generated part of the page."""
    lines = [
        f"Measured on {run['model']} ({run['device']}, float32) by `python -m headatlas_bench.stability`:",
        "",
        *table(stability.table(run)),
        "",
        *fill(EXPLANATION.format(preset=run["preset"]), 120).splitlines(),
    ]
    if rows := stability.table_by_examples(run):
        lines += ["", "By the number of examples, both halves together:", "", *table(rows)]
    if errors := {row["method"]: row["error"] for row in run["rows"] if "error" in row}:
        error_lines = [f"{name}: {message}" for name, message in errors.items()]
        lines += ["", "Not measured:", ""]
        lines += [fill(line, 120, initial_indent="- ", subsequent_indent="  ") for line in error_lines]
    return "\n".join(lines) + "\n"


def main(folder: str) -> None:
    run = json.loads((Path(folder) / stability.FILE).read_text())
    RUN.write_text(json.dumps(run, indent=1, ensure_ascii=False) + "\n")
    write_block(PAGE, BEGIN, block(run), END)


if __name__ == "__main__":
    main(sys.argv[1])
