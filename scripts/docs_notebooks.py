"""Execute the notebooks of docs/notebooks and store them with their outputs: `make docs-notebooks`.

Names choose some of them: `python scripts/docs_notebooks.py first-atlas`. With --check, one that takes over two minutes
is an error. A notebook that raises is an error always, and stays as it was.
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
LIMIT = 120  # seconds
ERASED = re.compile(r".*\x1b\[1A\x1b\[2K", re.DOTALL)  # what a bar wrote on a terminal before it was done
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


def strip(notebook: nbformat.NotebookNode, folder: str) -> None:
    """Leave out progress, widgets, and paths of this machine; warnings go to the terminal."""
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
    """Run a notebook in an empty folder and store it; the seconds that took."""
    notebook = nbformat.read(file, as_version=4)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=10 * LIMIT, record_timing=False, coalesce_streams=True)
        client.execute(cwd=folder)
    strip(notebook, folder)
    nbformat.write(notebook, file)
    return time.monotonic() - start


if __name__ == "__main__":
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # for `!headatlas`
    chosen = [f for f in NOTEBOOKS if f.stem in sys.argv] or NOTEBOOKS
    seconds = {file.stem: execute(file) for file in chosen}
    print(*(f"{name}: {took:.0f} s" for name, took in seconds.items()), sep="\n")
    sys.exit("--check" in sys.argv and max(seconds.values()) > LIMIT)
