"""data/build.py writes what the package ships, byte by byte."""

import importlib
from pathlib import Path

import pytest

import headatlas

SHIPPED = Path(headatlas.__file__).parent / "tasks" / "data"
BUILDERS = Path(__file__).parents[2] / "data"


@pytest.mark.parametrize(
    "name",
    ["relations", "gate", "varied", pytest.param("stories", marks=pytest.mark.slow)],  # it takes 20 s
)
def test_the_builder_writes_the_shipped_bytes(name, monkeypatch) -> None:
    monkeypatch.syspath_prepend(BUILDERS)
    made = {file: text.encode() for file, text in importlib.import_module(name).files().items()}
    assert made == {path.name: path.read_bytes() for path in (SHIPPED / name).iterdir()}
