"""Write the figures and tables of docs/evidence/larger-model.md, from an atlas of Qwen2.5-Coder-1.5B-Instruct.

python scripts/docs_qwen.py ATLAS [BLOCK …]

ATLAS is written by `headatlas run MODEL.gguf --preset full --dtype bfloat16 --out ATLAS`. Writes the parts of the page
that the atlas has results for, or only the parts named, and copies the atlas with its page to docs/atlases.
"""

import shutil
import sys
from collections import Counter
from pathlib import Path
from textwrap import wrap

import numpy as np
import xarray as xr
from docs_pages import ROOT, save_pictures, table, write_block

import headatlas as ha
from headatlas.report import PAGE as REPORT
from headatlas.report.page import write_report
from headatlas.results import tables
from headatlas.results.outcomes import Outcome, outcomes

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


def in_words(outcome: Outcome | None) -> dict[str, str]:
    """Make the columns of the test of a map: the change without its top heads and without random ones, and outcome."""
    if outcome is None:
        return {"outcome": "not tested"}
    columns = {"heads": str(outcome.n_heads)}
    if not np.isnan(outcome.effect):
        columns |= {"log P": f"{outcome.effect:+.2f}", "random heads": f"{outcome.random:+.2f}"}
        columns |= {"p, corrected": f"{outcome.p:.3f}"}
    return columns | {"outcome": outcome.outcome, "selective": outcome.selective or "–"}


def function_rows(probe: xr.Dataset, dissociate: xr.Dataset) -> list[dict]:
    """Make a row per function: accuracy of the probe, and the outcome of the tests of both maps."""
    of_probe = outcomes(probe)
    of_dissociate = outcomes(dissociate)
    rows = []
    for name in probe.function.values.tolist():
        other = of_dissociate.get(("importance", name))
        row = {"function": name, "the probe names it": f"{float(probe.accuracy_per_function.sel(function=name)):.0%}"}
        row |= in_words(of_probe.get(("importance", name)))
        rows.append(row | {"dissociate": other.outcome if other else "not tested"})
    return rows


def dissociate_rows(result: xr.Dataset, subject: str) -> list[dict]:
    """Make a row per function or task: what it and the others lose without the top heads of its map."""
    tested = outcomes(result)
    rows = []
    for name in result.function.values.tolist():
        outcome = tested.get(("importance", name))
        changes = np.array(list(outcome.others.values())) if outcome else np.empty(0)
        changes = changes[np.isfinite(changes)]
        row = {subject: name, **in_words(outcome)}
        if len(changes):
            row["the others"] = f"±{abs(changes).mean():.2f} ({changes.min():+.2f} to {changes.max():+.2f})"
        rows.append(row)
    return rows


def gate_rows(result: xr.Dataset) -> list[dict]:
    """Make a row per task and role: the share of heads with the role, and the test of its top heads."""
    tested = outcomes(result)
    rows = []
    for name in result.task.values.tolist():
        for role in result.role.values.tolist():
            share = result.share.sel(task=name, role=role)
            shares = {over: f"{float(share.sel(share_over=over)):.0%}" for over in ("always", "any")}
            row = {"task": name, "role": role, "heads in all seeds": shares["always"], "in any": shares["any"]}
            rows.append(row | in_words(tested.get((role, name))))
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
    """Make a row per relation that was tested: what the model loses without the relation's top heads."""
    rows = []
    for (measure, name), outcome in outcomes(maps).items():
        if measure != "score" or np.isnan(outcome.effect):
            continue
        score = maps.score.sel(relation=name)
        best_head = score.argmax(("layer", "head"))
        rows.append(
            {
                "relation": name,
                "best head": f"L{int(best_head['layer'])}.H{int(best_head['head'])} {float(score.max()):.2f}",
                "answered right": f"{outcome.accuracy:.0%}",
                "without its top heads": f"{outcome.accuracy_after:.0%}",
                **in_words(outcome),
            }
        )
    return rows


def outcome_counts(maps: xr.Dataset) -> list[dict]:
    """Count the relations of each outcome."""
    return [dict(Counter(outcome.outcome for (measure, _), outcome in outcomes(maps).items() if measure == "score"))]


def probe_in_words(probe: xr.Dataset) -> list[str]:
    """Describe the accuracy of a probe and its baselines."""
    return wrap(
        f"The probe names the function of {float(probe.accuracy):.0%} of the test questions. Words alone name"
        f" {float(probe.bag_of_words.max()):.0%} at most, shuffled labels {float(probe.control_accuracy):.0%}.",
        120,
    )


def make_blocks(results: dict[str, xr.Dataset]) -> dict[str, list[str]]:
    """Make the parts of the page that there are results for."""
    keys = ("method", "subject", "top heads", "log P", "random heads", "interval", "outcome")
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
        blocks["relations"] = table(relation_rows(results["maps"]))
        blocks["outcomes"] = table(outcome_counts(results["maps"]))
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
