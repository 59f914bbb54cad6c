"""Figures and tables of docs/evidence/larger-model.md, from an atlas of Qwen2.5-Coder-1.5B-Instruct.

python scripts/docs_qwen.py ATLAS [BLOCK …]

ATLAS is made by `headatlas run MODEL.gguf --preset full --dtype bfloat16 --out ATLAS`. Writes those parts of the page
that the atlas has results for, or only the parts named; and docs/atlases, the atlas itself with its page.
"""

import shutil
import sys
from pathlib import Path
from textwrap import wrap

import numpy as np
import xarray as xr
from docs_pages import ROOT, save_pictures, table, write_block

import headatlas as ha
from headatlas.report import PAGE as REPORT
from headatlas.report.page import write_report
from headatlas.results import tables

PAGE = ROOT / "docs" / "evidence" / "larger-model.md"
ATLAS = ROOT / "docs" / "atlases" / "qwen2.5-coder-1.5b-instruct"
TASKS = ATLAS.with_name(f"{ATLAS.name}-tasks")  # dissociate by its full preset, on the four tasks
VARIED = ATLAS.with_name(f"{ATLAS.name}-varied")  # probe and dissociate by their full presets, on the varied questions
SHOWN = (
    *("importance-probe", "categories", "removal-probe", "trade-off", "importance-function_vector", "always-any"),
    *("removal-maps", "importance-retrieval", "agreement"),
)
FOUR = ["country_to_capital", "verb_to_past_tense", "word_to_antonym", "adj_to_comparative"]  # README's first figure
MARK, END = "<!-- {}: written by `python scripts/docs_qwen.py ATLAS` -->\n", "<!-- end -->"
FRACTION = 0.2  # of all heads: how many are removed in the table of functions
REMOVED = 8  # heads in the table of relations
OFF = 16  # heads in the table of gates


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
                "p": f"{float(one.p):.3f}",
                "p, corrected": f"{float(one.p_corrected):.3f}",
                "dissociate": verdict,
            }
        )
    return rows


def dissociated(result: xr.Dataset, subject: str) -> list[dict]:
    """What functions or tasks lose without the heads found for each, and what the others do."""
    rows = []
    for name in result.function.values.tolist():
        one = result.sel(function=name)
        row = {subject: name, "heads": int(one.n_removed), "its own": "", "random heads": "", "the others": "", "p": ""}
        if one.n_removed > 0:
            others = one.other_effect.dropna("other").values
            row |= {
                "its own": f"{float(one.effect):+.2f}",
                "random heads": f"{float(one.random_effect.mean()):+.2f}",
                "the others": f"±{abs(others).mean():.2f} ({others.min():+.2f} to {others.max():+.2f})",
                "p": f"{float(one.p_corrected):.3f}",
            }
        rows.append(row | {"verdict": str(one.verdict.item())})
    return rows


def gates(result: xr.Dataset) -> list[dict]:
    """How many heads have each role, and what switching off the first of them does."""
    rows = []
    for name in result.task.values.tolist():
        for role in result.role.values.tolist():
            one = result.sel(task=name, role=role, n_removed=OFF)
            has = {over: float(one.share.sel(share_over=over)) for over in ("always", "any")}
            rows.append(
                {
                    "task": name,
                    "role": role,
                    "heads in all seeds": f"{has['always']:.0%}",
                    "in any": f"{has['any']:.0%}",
                    f"log P, {OFF} of them off": f"{float(one.effect):+.2f}",
                    "random heads": f"{float(one.random_effect.mean()):+.2f}",
                    "p, corrected": f"{float(one.p_corrected):.2f}",
                }
            )
    return rows


def vectors(result: xr.Dataset) -> list[dict]:
    """What adding the vector of a task's heads to prompts without examples does."""
    rows = []
    for name in result.task.values.tolist():
        one = result.sel(task=name)
        accuracy = one.baseline.sel(measure="accuracy")
        added = accuracy.sel(prompt="zero_shot") + one.effect.sel(measure="accuracy")
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


def relations(maps: xr.Dataset) -> list[dict]:
    """What the model loses of each relation it can answer without the heads whose weights implement it."""
    rows = []
    for name in maps.relation.values.tolist():
        one = maps.sel(relation=name, n_removed=REMOVED)
        right = one.sel(measure="accuracy")
        if np.isnan(one.p):
            continue
        best = one.score.argmax(("layer", "head"))
        rows.append(
            {
                "relation": name,
                "best head": f"L{int(best['layer'])}.H{int(best['head'])} {float(one.score.max()):.2f}",
                "answered right": f"{float(right.baseline):.0%}",
                f"without its {REMOVED} top heads": f"{float(right.baseline + right.effect):.0%}",
                f"without {REMOVED} random ones": f"{float(right.baseline + right.random_effect.mean()):.0%}",
                "log P": f"{float(one.effect.sel(measure='log_p')):+.2f}",
                "random": f"{float(one.random_effect.sel(measure='log_p').mean()):+.2f}",
                "p, corrected": f"{float(one.p_corrected):.3f}",
            }
        )
    return rows


def proven(maps: xr.Dataset) -> list[dict]:
    """How many relations pass for each number of heads."""
    tested = [maps.p_corrected.sel(n_removed=n).dropna("relation") for n in maps.n_removed.values]
    return [
        {
            "heads removed": "relations that pass",
            **{
                str(n): f"{int((p < 0.05).sum())} of {p.size}"
                for n, p in zip(maps.n_removed.values, tested, strict=True)
            },
        }
    ]


def probe_in_words(probe: xr.Dataset) -> list[str]:
    return wrap(
        f"The probe names the function of {float(probe.accuracy):.0%} of the test questions. Words alone name"
        f" {float(probe.bag_of_words.max()):.0%} at most, shuffled labels {float(probe.control_accuracy):.0%}.",
        120,
    )


def tables_of(results: dict[str, xr.Dataset]) -> dict[str, list[str]]:
    """The parts of the page that there are results for."""
    keys = ("method", "subject", "top heads", "removed", "change", "random", "p")
    rows = tables.evidence_in_words(tables.evidence(results, 2))
    blocks = {"evidence": table([{key: row[key] for key in keys} for row in rows])}
    if {"probe", "dissociate"} <= set(results):
        blocks["functions"] = table(functions(results["probe"], results["dissociate"]))
    if "gate" in results:
        blocks["gates"] = table(gates(results["gate"]))
    if "probe" in results:
        blocks["words"] = probe_in_words(results["probe"])
    if "function_vector" in results:
        blocks["vectors"] = table(vectors(results["function_vector"]))
    if "maps" in results:
        blocks |= {"relations": table(relations(results["maps"])), "proven": table(proven(results["maps"]))}
    return blocks


def draw(results: dict[str, xr.Dataset], varied: dict[str, xr.Dataset], tasks: dict[str, xr.Dataset]) -> None:
    save_pictures(results, SHOWN, "qwen-")
    for name, beside in (("varied", varied), ("tasks", tasks)):
        save_pictures({"dissociate": beside["dissociate"]}, ("importance-dissociate", "trade-off"), f"qwen-{name}-")
    four = results["maps"].sel(relation=FOUR)
    save_pictures({"maps": four}, ("importance-maps", "removal-maps"), "qwen-four-")


def main(folder: str, *chosen: str) -> None:
    ATLAS.mkdir(parents=True, exist_ok=True)
    for file in [*Path(folder).glob("*.nc"), Path(folder) / "atlas.json"]:
        shutil.copy(file, ATLAS)
    atlas = ha.open(ATLAS)
    write_report(atlas.results, atlas.info, ATLAS / REPORT)
    varied, tasks = ha.open(VARIED).results, ha.open(TASKS).results
    draw(atlas.results, varied, tasks)
    blocks = tables_of(atlas.results)
    blocks["varied"] = table(dissociated(varied["dissociate"], "function"))
    blocks["varied words"] = probe_in_words(varied["probe"])
    blocks["varied functions"] = table(functions(varied["probe"], varied["dissociate"]))
    blocks["tasks"] = table(dissociated(tasks["dissociate"], "task"))
    for name in chosen or blocks:
        write_block(PAGE, MARK.format(name), "\n".join([*blocks[name], ""]), END)


if __name__ == "__main__":
    main(*sys.argv[1:])
