"""Figures and tables of docs/evidence/larger-model.md, from an atlas of Qwen2.5-Coder-1.5B-Instruct.

python scripts/docs_qwen.py ATLAS     made by `headatlas run MODEL.gguf --preset full --dtype bfloat16 --out ATLAS`
"""

import json
import sys
from pathlib import Path
from textwrap import wrap

import xarray as xr
from docs_benchmark import table

import headatlas as ha
from headatlas.figures.all import pictures
from headatlas.figures.style import save
from headatlas.results import tables

ROOT = Path(__file__).parent.parent
FIGURES = ROOT / "docs" / "figures"
PAGE = ROOT / "docs" / "evidence" / "larger-model.md"
SHOWN = ("importance-probe", "categories", "removal-probe", "trade-off", "importance-function_vector", "always-any")
MARK, END = "<!-- {}: written by `python scripts/docs_qwen.py ATLAS` -->\n", "<!-- end -->"
FRACTION = 0.2  # of all heads: how many are removed in the table of functions


def functions(probe: xr.Dataset, dissociate: xr.Dataset) -> list[dict]:
    """What is known of the eight functions, each from its own test."""
    wanted = FRACTION * probe.sizes["layer"] * probe.sizes["head"]
    heads = min(probe.n_removed.values.tolist(), key=lambda n: abs(n - wanted))
    removed = probe.sel(n_removed=heads, measure="log_p")
    rows = []
    for name in probe.function.values.tolist():
        one, verdict = removed.sel(function=name), str(dissociate.verdict.sel(function=name).item())
        rows.append(
            {
                "function": name,
                "the probe names it": f"{float(one.accuracy_per_function):.0%}",
                f"log P, {heads} top heads removed": f"{float(one.effect):+.2f}",
                "random heads": f"{float(one.random_effect.mean()):+.2f}",
                "p": f"{float(one.p):.2f}",
                "dissociate": verdict,
            }
        )
    return rows


def vectors(result: xr.Dataset) -> list[dict]:
    """What adding the vector of a task's heads to prompts without examples does."""
    rows = []
    for name in result.task.values.tolist():
        one = result.sel(task=name)
        accuracy = one.baseline.sel(measure="accuracy")
        added = accuracy.sel(prompt="zero_shot") + one.vector_effect.sel(measure="accuracy")
        rows.append(
            {
                "task": name,
                "with ten examples": f"{float(accuracy.sel(prompt='few_shot')):.0%}",
                "without": f"{float(accuracy.sel(prompt='zero_shot')):.0%}",
                "without, vector added": f"{float(added):.0%}",
                "at layer": int(one.added_at),
                "random heads' vectors add": f"{float(one.random_effect.sel(measure='accuracy').mean()):+.0%}",
                "p, corrected": f"{float(one.p_corrected):.2f}",
            }
        )
    return rows


def main(folder: str) -> None:
    atlas = ha.open(folder)
    results, info = atlas.results, atlas.info
    for picture in pictures(results):
        if picture.name in SHOWN:
            save(picture.draw(), FIGURES / f"qwen-{picture.name}.png", "png", dpi=110)
    keys = ("method", "subject", "top heads", "removed", "change", "random", "p")
    evidence = tables.evidence_in_words(tables.evidence(results, 2))
    probe = results["probe"]
    blocks = {
        "functions": table(functions(probe, results["dissociate"])),
        "words": wrap(
            f"The probe names the function of {float(probe.accuracy):.0%} of the test questions. Words alone name"
            f" {float(probe.bag_of_words.max()):.0%} at most, shuffled labels {float(probe.control_accuracy):.0%}.",
            120,
        ),
        "vectors": table(vectors(results["function_vector"])),
        "evidence": table([{key: row[key] for key in keys} for row in evidence]),
        "seconds": table(
            [
                {"method": name, "seconds": f"{of['seconds']:.0f}"}
                for name, of in info["methods"].items()
                if of.get("complete") and "seconds" in of
            ]
        ),
    }
    page = PAGE.read_text()
    for name, block in blocks.items():
        before, mark, rest = page.partition(MARK.format(name))
        if not mark:
            raise SystemExit(f"{PAGE} has no {MARK.format(name).strip()}")
        page = before + mark + "\n".join([*block, ""]) + END + rest.partition(END)[2]
    PAGE.write_text(page)
    run = {"model": info["model"], "methods": info["methods"], "evidence": evidence}
    (FIGURES / "qwen-run.json").write_text(json.dumps(run, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
