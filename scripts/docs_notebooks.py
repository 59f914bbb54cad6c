"""Execute the notebooks of docs/notebooks and store them with their outputs: `make docs-notebooks`.

Names select some of them: `python scripts/docs_notebooks.py first-atlas`. With --check, a notebook that takes over two
minutes is an error. A notebook that raises is always an error, and its file is not changed.
"""

import os
import re
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
MAX_SECONDS = 120
# Text of a progress bar that the terminal has erased.
ERASED = re.compile(r".*\x1b\[1A\x1b\[2K", re.DOTALL)
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


def strip(notebook: nbformat.NotebookNode, folder: str) -> None:
    """Remove progress, widgets, and paths of this machine; warnings are printed to the terminal."""
    notebook.metadata = nbformat.from_dict({"kernelspec": notebook.metadata.kernelspec})
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({})
        if cell.cell_type != "code":
            continue
        for output in [o for o in cell.outputs if o.get("name") == "stderr"]:
            print(output.text, file=sys.stderr)
        cell.outputs = [
            o for o in cell.outputs if o.get("name") != "stderr" and "widget" not in str([*o.get("data", ())])
        ]
        for output in cell.outputs:
            texts = output if "text" in output else output.get("data", {})
            for kind in [k for k in texts if k.startswith("text")]:
                text = ESCAPE.sub("", ERASED.sub("", texts[kind]))
                texts[kind] = text.replace(folder + "/", "").replace(folder, ".").replace(str(Path.home()), "~")


def execute(file: Path) -> float:
    """Run a notebook in an empty folder and store it. Returns the seconds it took."""
    notebook = nbformat.read(file, as_version=4)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=10 * MAX_SECONDS, record_timing=False, coalesce_streams=True)
        client.execute(cwd=folder)
    strip(notebook, folder)
    nbformat.write(notebook, file)
    return time.monotonic() - start


if __name__ == "__main__":
    # Notebooks call `!headatlas`.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    notebooks = [f for f in NOTEBOOKS if f.stem in sys.argv] or NOTEBOOKS
    seconds = {file.stem: execute(file) for file in notebooks}
    print(*(f"{name}: {duration:.0f} s" for name, duration in seconds.items()), sep="\n")
    sys.exit("--check" in sys.argv and max(seconds.values()) > MAX_SECONDS)
