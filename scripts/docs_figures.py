"""Write the figures and numbers of the default model from an atlas: `make docs-figures`."""

import json
import shutil
import sys
from pathlib import Path
from textwrap import fill

from docs_pages import FIGURES, ROOT, save_pictures, table, write_block

import headatlas as ha
from headatlas.comparison.repeats import reliability_warnings
from headatlas.figures import head_card
from headatlas.figures.style import save
from headatlas.results import tables

PICTURE_NAMES = (
    "importance-maps",
    "importance-probe",
    "categories",
    "always-any",
    "tests",
    "specialisation-probe",
    "layers",
    "agreement",
)
EXPLANATION = fill(
    "Intervals are 95 % bootstrap intervals (probe) or the range over seeds (gate). *Removed* is the number of removed"
    " top heads. *Random* is the same with random heads of the same layers; for maps, the highest score that chance"
    " explains. *p* is the share of draws in which random heads lower it as much.",
    120,
)
BEGIN, END = "<!-- default run: written by `make docs-figures` -->\n", "<!-- end of default run -->"


def block(run: dict) -> str:
    """Return the generated part of the page."""
    keys = ("method", "subject", "top heads", "removed", "change", "random", "p")
    lines = [
        f"Results of `make atlas` for {run['model']} ({run['shape']}):",
        "",
        *table({key: row[key] for key in keys} for row in run["evidence"]),
    ]
    lines += ["", EXPLANATION, "", "Warnings of the run:", ""]
    lines += [fill(line, 120, initial_indent="- ", subsequent_indent="  ") for line in run["warnings"]]
    durations = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in run["seconds"].items())
    lines += ["", fill(f"Time on {run['cores']}: {durations}; then the figures and the page.", 120)]
    return "\n".join(lines) + "\n"


def main(folder: str) -> None:
    atlas = ha.open(folder)
    results = atlas.results
    info = atlas.info
    save_pictures(results, PICTURE_NAMES)
    save(head_card(results, "L23.H4"), FIGURES / "card.png", "png", dpi=110)
    screenshot(Path(folder).resolve() / "report.html", FIGURES / "report.png")
    run = {
        "model": info["model"]["name"],
        "shape": f"{info['model']['n_layers']} layers × {info['model']['n_heads']} heads",
        "fingerprint": info["model"]["fingerprint"],
        "evidence": tables.evidence_in_words(tables.evidence(results, 2)),
        "warnings": [*tables.warnings(results), *reliability_warnings(results)],
        "seconds": {name: method["seconds"] for name, method in info["methods"].items()},
        "cores": "2 CPU cores",
    }
    (FIGURES / "default-run.json").write_text(json.dumps(run, indent=2, ensure_ascii=False) + "\n")
    write_block(ROOT / "docs" / "evidence" / "default-model.md", BEGIN, block(run), END)


def screenshot(page: Path, path: Path) -> None:
    """Take a picture of the report with one head selected."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1300, "height": 900})
        tab.goto(page.as_uri())
        tab.fill("#head", "L23.H4")
        tab.press("#head", "Enter")
        tab.wait_for_function("document.querySelectorAll('#small .js-plotly-plot').length > 0")
        tab.screenshot(path=path)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
