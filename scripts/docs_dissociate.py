"""Write the answers before and after removal to docs/methods/dissociate.md: `make docs-dissociate`."""

import json
import sys

from docs_pages import FIGURES, ROOT, save_pictures, table, write_block

import headatlas as ha
from headatlas.evidence.control import gates_without, top_heads
from headatlas.evidence.heads_test import number_of_heads
from headatlas.tasks.bundles import held_out_bundles
from headatlas.tasks.prompts import load_tasks

PICTURE_NAMES = ("importance-dissociate",)
BEGIN, END = (
    "<!-- before and after: written by `make docs-dissociate` -->\n",
    "<!-- end of before and after -->",
)
# Held-out prompts.
PROMPTS_PER_TASK = 16


def block(run: dict) -> str:
    """Return the generated part of the page: correct answers per task, and one prompt of each task."""
    tasks = run["tasks"]
    lines = [
        f"Held-out prompts answered correctly, of {run['asked']} per task, by the whole {run['model']} and without the",
        f"{run['removed']} (`make docs-dissociate`):",
        "",
        *table({"without the heads of": row} | {t: n_right[t] for t in tasks} for row, n_right in run["right"].items()),
    ]
    lines += ["", "One prompt of each task, and the model's continuation:", "", "```"]
    for example in run["examples"]:
        lines.append(f"{example['task']}: {example['prompt']!r}  (right: {example['target']!r})")
        lines += [f"    {name:<24}{answer!r}" for name, answer in example["said"].items()]
    return "\n".join([*lines, "```", ""])


def main(folder: str) -> None:
    atlas = ha.open(folder)
    result = atlas["dissociate"]
    lm = ha.load(atlas.info["model"]["name"])
    save_pictures({"dissociate": result}, PICTURE_NAMES)
    names = [str(f) for f in result.function.values]
    n_heads = number_of_heads(lm.n_layers * lm.n_heads)
    sets = [top_heads(result.importance.sel(function=name).values, n_heads) for name in names]
    rows = {"none": None} | dict(zip(names, gates_without(sets, (lm.n_layers, lm.n_heads)), strict=True))
    n_right: dict[str, dict[str, int]] = {row: {} for row in rows}
    examples = []
    for task in load_tasks(lm, names):
        prompts = [a for bundle in held_out_bundles(lm, task, PROMPTS_PER_TASK) for a in bundle.examples]
        replies = {row: generate_answers(lm, prompts, gate) for row, gate in rows.items()}
        for row in rows:
            n_right[row][task.name] = sum(s == list(a.target) for s, a in zip(replies[row], prompts, strict=True))
        index = next(i for i, a in enumerate(prompts) if replies["none"][i] == list(a.target))
        decode = lm.tokenizer.decode
        examples.append(
            {
                "task": task.name,
                "prompt": decode(prompts[index].prompt, skip_special_tokens=True).split("\n")[-1],
                "target": decode(prompts[index].target),
                "said": {
                    f"without {row}" if gate is not None else "whole": decode(replies[row][index])
                    for row, gate in rows.items()
                },
            }
        )
    removed = f"{n_heads} top heads of the quick preset's map of one task"
    run = {
        "model": lm.name,
        "asked": PROMPTS_PER_TASK,
        "removed": removed,
        "tasks": names,
        "right": n_right,
        "examples": examples,
    }
    (FIGURES / "dissociate-run.json").write_text(json.dumps(run, indent=2, ensure_ascii=False) + "\n")
    write_block(ROOT / "docs" / "methods" / "dissociate.md", BEGIN, block(run), END)


def generate_answers(lm: ha.LM, prompts: list, gate: object) -> list[list[int]]:
    """Generate the length of each target greedily, with the gate applied."""
    generated = []
    for a in prompts:
        if gate is None:
            tokens = lm.generate_ids([list(a.prompt)], len(a.target))
        else:
            with lm.gated(gate):
                tokens = lm.generate_ids([list(a.prompt)], len(a.target))
        generated.append(tokens[0])
    return generated


if __name__ == "__main__":
    main(sys.argv[1])
