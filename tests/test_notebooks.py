"""The notebooks are whole: executed in order, without errors, and of names that exist.

They take minutes, so they are not executed here: `make docs-notebooks` does that.
"""

import ast
import re
from pathlib import Path

import nbformat
import pytest

import headatlas as ha

NOTEBOOKS = sorted((Path(__file__).parent.parent / "docs" / "notebooks").glob("*.ipynb"))
MOST = 600_000  # bytes


@pytest.fixture(params=NOTEBOOKS, ids=lambda file: file.stem)
def file(request) -> Path:
    return request.param


def _code(file: Path) -> list[nbformat.NotebookNode]:
    return [cell for cell in nbformat.read(file, as_version=4).cells if cell.cell_type == "code"]


def _python(source: str) -> str:
    """Without the lines that only a notebook understands: %matplotlib, !headatlas."""
    return re.sub(r"^[%!].*$", "", source, flags=re.MULTILINE)


def test_there_are_three() -> None:
    assert len(NOTEBOOKS) == 3


def test_it_is_valid_and_small(file) -> None:
    nbformat.validate(nbformat.read(file, as_version=4))
    assert file.stat().st_size < MOST


def test_it_was_executed_in_order_and_without_errors(file) -> None:
    cells = _code(file)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert outputs
    assert not [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]


def test_nothing_of_the_machine_is_stored(file) -> None:
    assert not re.search(r"(?<![\w+/])/(tmp|home|root|work)/", file.read_text())
    assert "\\u001b" not in file.read_text()  # no escapes of a terminal
    assert not [cell for cell in _code(file) if cell.metadata]


def test_every_public_name_in_it_exists(file) -> None:
    names = set()
    for cell in _code(file):
        for node in ast.walk(ast.parse(_python(cell.source))):
            if isinstance(node, ast.Attribute) and re.fullmatch(r"ha(\.\w+)+", name := ast.unparse(node)):
                names.add(name)
    assert "ha.load" in names
    for name in names:
        value = ha
        for part in name.split(".")[1:]:
            value = getattr(value, part)


def test_links_lead_somewhere(file) -> None:
    texts = [c.source for c in nbformat.read(file, as_version=4).cells if c.cell_type == "markdown"]
    for link in re.findall(r"\]\(((?!https?:|#)[^)#]+)", "\n".join(texts)):
        assert (file.parent / link).is_file(), link
