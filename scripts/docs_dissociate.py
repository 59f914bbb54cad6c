"""What docs/methods/dissociate.md shows of a model answering before and after: `make docs-dissociate`."""

import json
import sys

from docs_pages import FIGURES, ROOT, save_pictures, table, write_block

import headatlas as ha
from headatlas.tasks.bundles import held_out_bundles
from headatlas.tasks.prompts import load_tasks

SHOWN = ("importance-dissociate", "trade-off", "specialisation-dissociate")
BEGIN, END = (
    "<!-- before and after: written by `make docs-dissociate` -->\n",
    "<!-- end of before and after -->",
)
ASKED = 16  # held-out prompts of each task


def block(run: dict) -> str:
    """The page's part: how many prompts are answered right, and one prompt of each task."""
    tasks = run["tasks"]
    lines = [
        f"Held-out prompts answered right, of {run['asked']} of each task, by {run['model']} whole and without the"
        " heads that the",
        "quick preset found for one task (`make docs-dissociate`):",
        "",
        *table({"without the heads of": row} | {t: right[t] for t in tasks} for row, right in run["right"].items()),
    ]
    lines += ["", "One prompt of each, and how the model goes on:", "", "```"]
    for example in run["examples"]:
        lines.append(f"{example['task']}: {example['prompt']!r}  (right: {example['target']!r})")
        lines += [f"    {name:<24}{answer!r}" for name, answer in example["said"].items()]
    return "\n".join([*lines, "```", ""])


def main(folder: str) -> None:
    atlas = ha.open(folder)
    result, lm = atlas["dissociate"], ha.load(atlas.info["model"]["name"])
    save_pictures({"dissociate": result}, SHOWN)
    names = [str(f) for f in result.function.values]
    rows = {"none": None} | {
        name: result.heads.gates(name) for name in names if result.selected.sel(function=name).any()
    }
    right: dict[str, dict[str, int]] = {row: {} for row in rows}
    examples = []
    for task in load_tasks(lm, names):
        prompts = [a for bundle in held_out_bundles(lm, task, ASKED) for a in bundle.examples]
        replies = {row: answers(lm, prompts, gate) for row, gate in rows.items()}
        for row in rows:
            right[row][task.name] = sum(s == list(a.target) for s, a in zip(replies[row], prompts, strict=True))
        shown = next(i for i, a in enumerate(prompts) if replies["none"][i] == list(a.target))
        decode = lm.tokenizer.decode
        examples.append(
            {
                "task": task.name,
                "prompt": decode(prompts[shown].prompt, skip_special_tokens=True).split("\n")[-1],
                "target": decode(prompts[shown].target),
                "said": {
                    f"without {row}" if gate is not None else "whole": decode(replies[row][shown])
                    for row, gate in rows.items()
                },
            }
        )
    run = {"model": lm.name, "asked": ASKED, "tasks": names, "right": right, "examples": examples}
    (FIGURES / "dissociate-run.json").write_text(json.dumps(run, indent=2, ensure_ascii=False) + "\n")
    write_block(ROOT / "docs" / "methods" / "dissociate.md", BEGIN, block(run), END)


def answers(lm: ha.LM, prompts: list, gate: object) -> list[list[int]]:
    """As many tokens as each target has, greedily, with the gate in force."""
    answered = []
    for a in prompts:
        if gate is None:
            new = lm.generate_ids([list(a.prompt)], len(a.target))
        else:
            with lm.gated(gate):
                new = lm.generate_ids([list(a.prompt)], len(a.target))
        answered.append(new[0])
    return answered


if __name__ == "__main__":
    main(sys.argv[1])
