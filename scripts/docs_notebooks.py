"""Execute the notebooks of docs/notebooks and store them with their outputs: `make docs-notebooks`.

Names choose some of them: `python scripts/docs_notebooks.py first-atlas`. With --check, one that takes over two minutes
is an error. A notebook that raises is an error always, and stays as it was.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
LIMIT = 120  # seconds
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def strip(notebook: nbformat.NotebookNode, folder: str) -> None:
    """Leave only what is the same on every machine: no progress, no widgets, no paths."""
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": {"name": "python"}})
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({})
        if cell.cell_type != "code":
            continue
        for output in [o for o in cell.outputs if o.get("name") == "stderr"]:
            print(output.text, file=sys.stderr)
        cell.outputs = [o for o in cell.outputs if o.get("name") != "stderr" and not _is_widget(o)]
        for output in cell.outputs:
            texts = output if "text" in output else output.get("data", {})
            for kind in [k for k in texts if k.startswith("text")]:
                texts[kind] = texts[kind].replace(folder + "/", "").replace(folder, ".").replace(str(Path.home()), "~")


def _is_widget(output: nbformat.NotebookNode) -> bool:
    return any("widget" in kind for kind in output.get("data", {}))


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
