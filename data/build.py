"""Build the data of headatlas.tasks from the word lists in data/words.

    python data/build.py [FOLDER]     # default: src/headatlas/tasks/data

relations.py pairs words. gate.py, stories.py and varied.py write prompts and questions. Random choices have fixed
seeds, so every run writes the same files (tests/tasks/test_built_data.py).
"""

import sys
from pathlib import Path

import gate
import relations
import stories
import varied

DATA = Path(__file__).parents[1] / "src" / "headatlas" / "tasks" / "data"


def build(folder: Path) -> None:
    """Write the files of every builder into its folder."""
    for module in (relations, gate, stories, varied):
        target = folder / module.__name__
        target.mkdir(parents=True, exist_ok=True)
        for name, text in module.files().items():
            (target / name).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else DATA)
