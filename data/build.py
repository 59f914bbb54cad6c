"""Build the data that headatlas.tasks comes with, from the word lists in data/words.

    python data/build.py [FOLDER]     # by default src/headatlas/tasks/data

relations.py pairs words. gate.py, stories.py and varied.py write prompts and questions: what they draw is drawn with
fixed seeds, so the same files come out every time (tests/tasks/test_built_data.py).
"""

import sys
from pathlib import Path

import gate
import relations
import stories
import varied

DATA = Path(__file__).parents[1] / "src" / "headatlas" / "tasks" / "data"


def build(folder: Path) -> None:
    """Write the files of every kind into its folder."""
    for module in (relations, gate, stories, varied):
        target = folder / module.__name__
        target.mkdir(parents=True, exist_ok=True)
        for name, text in module.files().items():
            (target / name).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else DATA)
