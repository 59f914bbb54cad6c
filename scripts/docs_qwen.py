"""Write the figures and tables of docs/evidence/larger-model.md, from an atlas of Qwen2.5-Coder-1.5B-Instruct.

python scripts/docs_qwen.py ATLAS [BLOCK …]

ATLAS is written by `headatlas run MODEL.gguf --preset full --dtype bfloat16 --out ATLAS`. Writes the parts of the page
that the atlas has results for, or only the parts named, and copies the atlas with its page to docs/atlases.
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
# Full presets: of dissociate on the four tasks; of probe and dissociate on the varied questions.
TASKS = ATLAS.with_name(f"{ATLAS.name}-tasks")
VARIED = ATLAS.with_name(f"{ATLAS.name}-varied")
PICTURE_NAMES = (
    *("importance-probe", "categories", "tests", "importance-function_vector", "always-any"),
    *("importance-retrieval", "agreement"),
)
# Relations in the first figure of the README.
README_RELATIONS = ["country_to_capital", "verb_to_past_tense", "word_to_antonym", "adj_to_comparative"]
BEGIN, END = "<!-- {}: written by `python scripts/docs_qwen.py ATLAS` -->\n", "<!-- end -->"
# Share of all heads that is removed in the table of functions; numbers of heads in the tables of relations and gates.
REMOVED_SHARE = 0.2
N_REMOVED = 8
N_GATED = 16


def function_rows(probe: xr.Dataset, dissociate: xr.Dataset) -> list[dict]:
    """Make a row per function: accuracy of the probe, removal of its top heads, and the verdict of dissociate."""
    target_number = REMOVED_SHARE * probe.sizes["layer"] * probe.sizes["head"]
    heads = min(probe.n_removed.values.tolist(), key=lambda n: abs(n - target_number))
    removed = probe.sel(n_removed=heads, measure="log_p")
    rows = []
    for name in probe.function.values.tolist():
        scores = removed.sel(function=name)
        verdict = str(dissociate.verdict.sel(function=name).item())
        rows.append(
            {
                "function": name,
                "the probe names it": f"{float(scores.accuracy_per_function):.0%}",
                f"log P, {heads} top heads removed": f"{float(scores.effect):+.2f}",
                "random heads": f"{float(scores.random_effect.mean()):+.2f}",
                "p": f"{float(scores.p):.3f}",
                "p, corrected": f"{float(scores.p_corrected):.3f}",
                "dissociate": verdict,
            }
        )
    return rows


def dissociate_rows(result: xr.Dataset, subject: str) -> list[dict]:
    """Make a row per function or task: what it and the others lose without the heads selected for it."""
    rows = []
    for name in result.function.values.tolist():
        scores = result.sel(function=name)
        row = {
            subject: name,
            "heads": int(scores.n_removed),
            "its own": "",
            "random heads": "",
            "the others": "",
            "p": "",
        }
        if scores.n_removed > 0:
            others = scores.other_effect.dropna("other").values
            row |= {
                "its own": f"{float(scores.effect):+.2f}",
                "random heads": f"{float(scores.random_effect.mean()):+.2f}",
                "the others": f"±{abs(others).mean():.2f} ({others.min():+.2f} to {others.max():+.2f})",
                "p": f"{float(scores.p_corrected):.3f}",
            }
        rows.append(row | {"verdict": str(scores.verdict.item())})
    return rows


def gate_rows(result: xr.Dataset) -> list[dict]:
    """Make a row per task and role: the share of heads with the role, and the effect of removing the first of them."""
    rows = []
    for name in result.task.values.tolist():
        for role in result.role.values.tolist():
            scores = result.sel(task=name, role=role, n_removed=N_GATED)
            shares = {over: float(scores.share.sel(share_over=over)) for over in ("always", "any")}
            rows.append(
                {
                    "task": name,
                    "role": role,
                    "heads in all seeds": f"{shares['always']:.0%}",
                    "in any": f"{shares['any']:.0%}",
                    f"log P, {N_GATED} of them off": f"{float(scores.effect):+.2f}",
                    "random heads": f"{float(scores.random_effect.mean()):+.2f}",
                    "p, corrected": f"{float(scores.p_corrected):.2f}",
                }
            )
    return rows


def vector_rows(result: xr.Dataset) -> list[dict]:
    """Make a row per task: accuracy with few-shot examples, without, and with the task's function vector."""
    rows = []
    for name in result.task.values.tolist():
        scores = result.sel(task=name)
        accuracy = scores.baseline.sel(measure="accuracy")
        accuracy_with_vector = accuracy.sel(prompt="zero_shot") + scores.effect.sel(measure="accuracy")
        rows.append(
            {
                "task": name,
                "with ten examples": f"{float(accuracy.sel(prompt='few_shot')):.0%}",
                "without": f"{float(accuracy.sel(prompt='zero_shot')):.0%}",
                "without, vector added": f"{float(accuracy_with_vector):.0%}",
                "at layer": int(scores.added_at),
                "random heads' vectors add": f"{float(scores.random_effect.sel(measure='accuracy').mean()):+.0%}",
                "p, corrected": f"{float(scores.p_corrected):.2f}",
            }
        )
    return rows


def relation_rows(maps: xr.Dataset) -> list[dict]:
    """Make a row per relation that the model can answer: what it loses without the relation's top heads."""
    rows = []
    for name in maps.relation.values.tolist():
        scores = maps.sel(relation=name, n_removed=N_REMOVED)
        accuracy = scores.sel(measure="accuracy")
        if np.isnan(scores.p):
            continue
        best_head = scores.score.argmax(("layer", "head"))
        random_accuracy = accuracy.baseline + accuracy.random_effect.mean()
        rows.append(
            {
                "relation": name,
                "best head": f"L{int(best_head['layer'])}.H{int(best_head['head'])} {float(scores.score.max()):.2f}",
                "answered right": f"{float(accuracy.baseline):.0%}",
                f"without its {N_REMOVED} top heads": f"{float(accuracy.baseline + accuracy.effect):.0%}",
                f"without {N_REMOVED} random ones": f"{float(random_accuracy):.0%}",
                "log P": f"{float(scores.effect.sel(measure='log_p')):+.2f}",
                "random": f"{float(scores.random_effect.sel(measure='log_p').mean()):+.2f}",
                "p, corrected": f"{float(scores.p_corrected):.3f}",
            }
        )
    return rows


def passing_counts(maps: xr.Dataset) -> list[dict]:
    """Count the relations that pass for each number of heads."""
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
    """Describe the accuracy of a probe and its baselines."""
    return wrap(
        f"The probe names the function of {float(probe.accuracy):.0%} of the test questions. Words alone name"
        f" {float(probe.bag_of_words.max()):.0%} at most, shuffled labels {float(probe.control_accuracy):.0%}.",
        120,
    )


def make_blocks(results: dict[str, xr.Dataset]) -> dict[str, list[str]]:
    """Make the parts of the page that there are results for."""
    keys = ("method", "subject", "top heads", "removed", "change", "random", "p")
    rows = tables.evidence_in_words(tables.evidence(results, 2))
    blocks = {"evidence": table([{key: row[key] for key in keys} for row in rows])}
    if {"probe", "dissociate"} <= set(results):
        blocks["functions"] = table(function_rows(results["probe"], results["dissociate"]))
    if "gate" in results:
        blocks["gates"] = table(gate_rows(results["gate"]))
    if "probe" in results:
        blocks["words"] = probe_in_words(results["probe"])
    if "function_vector" in results:
        blocks["vectors"] = table(vector_rows(results["function_vector"]))
    if "maps" in results:
        blocks |= {"relations": table(relation_rows(results["maps"])), "proven": table(passing_counts(results["maps"]))}
    return blocks


def draw(results: dict[str, xr.Dataset], varied: dict[str, xr.Dataset], tasks: dict[str, xr.Dataset]) -> None:
    save_pictures(results, PICTURE_NAMES, "qwen-")
    for name, other_results in (("varied", varied), ("tasks", tasks)):
        save_pictures({"dissociate": other_results["dissociate"]}, ("importance-dissociate",), f"qwen-{name}-")
    readme_maps = results["maps"].sel(relation=README_RELATIONS)
    save_pictures({"maps": readme_maps}, ("importance-maps", "tests"), "qwen-four-")


def main(folder: str, *names: str) -> None:
    ATLAS.mkdir(parents=True, exist_ok=True)
    for file in [*Path(folder).glob("*.nc"), Path(folder) / "atlas.json"]:
        shutil.copy(file, ATLAS)
    atlas = ha.open(ATLAS)
    write_report(atlas.results, atlas.info, ATLAS / REPORT)
    varied = ha.open(VARIED).results
    tasks = ha.open(TASKS).results
    draw(atlas.results, varied, tasks)
    blocks = make_blocks(atlas.results)
    blocks["varied"] = table(dissociate_rows(varied["dissociate"], "function"))
    blocks["varied words"] = probe_in_words(varied["probe"])
    blocks["varied functions"] = table(function_rows(varied["probe"], varied["dissociate"]))
    blocks["tasks"] = table(dissociate_rows(tasks["dissociate"], "task"))
    for name in names or blocks:
        write_block(PAGE, BEGIN.format(name), "\n".join([*blocks[name], ""]), END)


if __name__ == "__main__":
    main(*sys.argv[1:])
