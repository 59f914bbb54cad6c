"""The example in every method's docstring runs: on a tiny model, unless words must be real."""

import json
import re
from pathlib import Path

import pytest

import headatlas as ha
from headatlas.methods import get_method, method_names
from headatlas.models.lm import LM
from headatlas.testing import tiny_lm

REAL = ("maps",)  # whose relations are of real words


@pytest.fixture(scope="module")
def lm() -> LM:
    return tiny_lm(context=1024)


def examples(name: str) -> list[str]:
    return re.findall(r">>> (.*)", get_method(name).function.__doc__ or "")


@pytest.mark.parametrize("name", method_names())
def test_the_example_runs(name, lm, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for task, targets in (("capitals", "w1"), ("currencies", "w2")):
        rows = [{"prompt": f"w{i} w{i + 1}", "target": f" {targets}"} for i in range(20)]
        Path(f"{task}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    [example] = examples(name)
    code = example if name in REAL else example.replace('"smollm2"', "lm")
    assert f"ha.{name}(" in code
    assert eval(code, {"ha": ha, "lm": lm}) is not None  # noqa: S307  # our own docstrings
