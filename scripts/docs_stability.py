"""How stable each map is, in docs/evidence/default-model.md: `make docs-stability`.

python scripts/docs_stability.py DIR     DIR has what benchmarks/stability.py wrote
"""

import json
import sys
from pathlib import Path
from textwrap import fill
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import stability  # noqa: E402

RUN = ROOT / "docs" / "figures" / "stability.json"
PAGE = ROOT / "docs" / "evidence" / "default-model.md"
BEGIN, END = "<!-- stability -->\n", "<!-- end of stability -->"
READ = (
    "*Between halves* is the Spearman correlation of two maps over heads, each of half of the *examples*; in"
    " brackets, the range over tasks, functions or relations. *Whole map* is what two maps of all these examples would"
    " agree to, by the Spearman–Brown formula 2r / (1 + r): it is not measured. *Between seeds* compares single seeds,"
    " with the data of the {preset} preset. *Takes* is the fewest examples, both halves together, that were measured at"
    " 0.8 or more; where none was, the formula's extrapolation from the most that were measured, which says so."
)


def block(run: dict[str, Any]) -> str:
    """The page's part."""
    lines = [
        f"Measured on {run['model']} ({run['device']}, float32) by `python benchmarks/stability.py`:",
        "",
        *stability.show(stability.table(run)),
        "",
        *fill(READ.format(preset=run["preset"]), 120).splitlines(),
    ]
    if rows := stability.table_by_examples(run):
        lines += ["", "By the number of examples, both halves together:", "", *stability.show(rows)]
    if errors := {row["method"]: row["error"] for row in run["rows"] if "error" in row}:
        told = [f"{name}: {why}" for name, why in errors.items()]
        lines += ["", "Not measured:", ""]
        lines += [fill(line, 120, initial_indent="- ", subsequent_indent="  ") for line in told]
    return "\n".join(lines) + "\n"


def main(folder: str) -> None:
    run = json.loads((Path(folder) / stability.FILE).read_text())
    RUN.write_text(json.dumps(run, indent=1, ensure_ascii=False) + "\n")
    before, mark, rest = PAGE.read_text().partition(BEGIN)
    if not mark:
        raise SystemExit(f"{PAGE} has no {BEGIN.strip()}: nowhere to write the table to")
    PAGE.write_text(before + BEGIN + block(run) + END + rest.partition(END)[2])


if __name__ == "__main__":
    main(sys.argv[1])
