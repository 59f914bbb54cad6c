"""Run the examples of the method pages and store their output and figures: `make docs-examples`."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from docs_pages import FIGURES, ROOT, save_pictures

import headatlas as ha
from headatlas.figures.style import save
from headatlas.tasks.relations import load_relations

EXAMPLES = ROOT / "docs" / "examples"
COMPARED_FILES = [f"atlas/{method}.nc" for method in ("pattern", "taylor", "ig", "ablate")]
COMMANDS = {
    "maps": "headatlas maps smollm2 --dynamic 25 --out atlas",
    "pattern": "headatlas pattern smollm2 --out atlas",
    "copying": "headatlas copying smollm2 --out atlas",
    "function-vector": "headatlas function-vector smollm2 --out atlas",
    "influence": "headatlas influence smollm2 --out atlas",
    "retrieval": "headatlas retrieval smollm2 --out atlas",
    "salient": "headatlas salient smollm2 --out atlas",
    "head": "headatlas head smollm2 L23.H4 --atlas atlas",
    "taylor": "headatlas taylor smollm2 --tasks math,syntax --limit 16 --out atlas",
    "ig": "headatlas ig smollm2 --tasks math,syntax --limit 8 --out atlas",
    "ablate": "headatlas ablate smollm2 --tasks math,syntax --limit 16 --out atlas",
    "streaming": "headatlas streaming smollm2 --out atlas",
    "streaming-learned": "headatlas streaming smollm2 --kind learned --out learned",
    "contrast": "headatlas contrast smollm2 --keep languages.jsonl --lose capitals.jsonl --shots 2 --out atlas",
    "agree": f"headatlas compare {' '.join(COMPARED_FILES)} --top 20",
}
PICTURE_NAMES = [
    f"importance-{method}" for method in ("pattern", "retrieval", "taylor", "ig", "ablate", "streaming", "contrast")
]


def write_matched_tasks(folder: Path) -> None:
    """Write two files of tasks about the same countries, line by line: their language, and their capital."""
    relations = {relation.name: dict(relation.pairs) for relation in load_relations()}
    language = relations["country_to_language"]
    capital = relations["country_to_capital"]
    countries = [country for country in language if country in capital]
    prompts_and_answers = {
        "languages": ("People in {} mostly speak", language),
        "capitals": ("The capital of {} is", capital),
    }
    for name, (prompt, answers) in prompts_and_answers.items():
        rows = [{"prompt": prompt.format(c), "target": f" {answers[c]}"} for c in countries]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def main(folder: str, *names: str) -> None:
    """Run all examples, or only those named."""
    work_folder = Path(folder)
    work_folder.mkdir(exist_ok=True)
    EXAMPLES.mkdir(exist_ok=True)
    write_matched_tasks(work_folder)
    path = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for name, command in COMMANDS.items():
        if not names or name in names:
            process = subprocess.run(
                shlex.split(command),
                cwd=work_folder,
                check=True,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | path,
            )
            lines = [line.rstrip() for line in process.stdout.splitlines()]
            (EXAMPLES / f"{name}.txt").write_text("\n".join([f"$ {command}", *lines]) + "\n")
    save_pictures(ha.open(work_folder / "atlas").results, PICTURE_NAMES)
    comparison = ha.figures.agreed(ha.compare(*(work_folder / name for name in COMPARED_FILES)))
    save(comparison, FIGURES / "agree.png", "png", dpi=110)


if __name__ == "__main__":
    main(*sys.argv[1:])
