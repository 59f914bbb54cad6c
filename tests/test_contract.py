"""Every registered method keeps the contract: `headatlas.testing`'s checks, one by one."""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import headatlas as ha
from headatlas.methods import get_method, method_names
from headatlas.results.stored_reliability import BY_HEAD, BY_SUBJECT, variable_name
from headatlas.tasks.prompts import Example
from headatlas.testing import CHECKS, MethodCase, tiny_lm, tiny_task

QUICK = {  # what makes them quick here; a new method is checked with its own defaults
    "ablate": {"limit": 8},
    "copying": {"words": [f"w{2 * i} w{2 * i + 1}" for i in range(12)], "texts": 3, "length": 8},
    "contrast": {"keep": tiny_task("first", 0), "lose": tiny_task("second", 1), "seeds": 2, "updates": 6},
    "dissociate": {"seeds": 2, "updates": 4},
    "function_vector": {"shots": 3, "limit": 3, "draws": 2},
    "gate": {"seeds": 2, "updates": 3},
    "ig": {"limit": 8, "steps": 3},
    "influence": {"limit": 2},
    "pattern": {"sequences": 3},
    "retrieval": {  # a random model answers nothing, so that every answer must do
        "needles": [
            {"needle": f"w1 w{i} w{i + 1}", "question": "w9", "answer": f"w{i} w{i + 1}"} for i in (20, 30, 40)
        ],
        "text": ["w2 w3 w4", "w5 w6 w7 w8"],
        "lengths": (40, 50),
        "depths": 2,
        "limit": 2,
        "recall": 0.0,
        "new_tokens": 6,
    },
    "streaming": {"draws": 3},
    "taylor": {"limit": 8},
}


@cache
def subject(name: str) -> MethodCase:
    return MethodCase(get_method(name).function, **QUICK.get(name, {}))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", method_names())
def test_contract(name, check) -> None:
    check(subject(name))


FILES = (Path(__file__).parent.parent / "docs" / "reference" / "files.md").read_text()


@pytest.mark.parametrize("name", method_names())
def test_every_variable_is_in_the_docs(name) -> None:
    section = re.search(rf"^### {name}\.nc\n(.*?)^##", FILES, flags=re.DOTALL | re.MULTILINE)[1]
    messages = {
        variable: dims
        for variables, dims, _ in re.findall(r"^\| (`.*?) \| (.*?) \| (.*?)\|$", section, flags=re.MULTILINE)
        for variable in re.findall(r"`(\w+)`", variables)
    }
    result = subject(name).result
    measures = get_method(name).measures
    messages |= {
        variable_name(variable, measure, measures): f"{measure.over}{dims}"
        for measure in measures
        for names, dims in ((BY_SUBJECT, ""), (BY_HEAD, ", layer, head"))
        for variable in names
    }
    assert {
        v: ", ".join(map(str, a.dims)) or "none: one number" for v, a in result.data_vars.items()
    }.items() <= messages.items()
    attributes = re.findall(
        r"`(\w+)`", "".join(re.findall(r"^\| (.*?) \|", FILES.partition("## Attributes")[2], flags=re.M))
    )
    assert set(attributes) <= set(result.attrs)


def test_the_reliability_of_every_file_is_in_the_docs() -> None:
    section = re.search(r"^## How reliable a map is\n(.*?)^##", FILES, flags=re.DOTALL | re.MULTILINE)[1]
    rows = re.findall(r"^\| (`.*?) \|", section, flags=re.MULTILINE)
    names = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert names == {*BY_SUBJECT, *BY_HEAD}


@pytest.mark.parametrize("name", ["maps", "pattern", "retrieval", "salient"])
def test_every_variable_says_what_it_is(name) -> None:
    for variable, values in subject(name).result.data_vars.items():
        assert {"long_name", "units", "description"} <= set(values.attrs), variable
        assert values.attrs["long_name"], variable
        assert values.attrs["description"].endswith("."), variable


@pytest.mark.parametrize("name", ["taylor", "ig", "ablate"])
def test_padding_does_not_matter(name) -> None:
    """A task's effects are the same whether a much longer example is in the batch or not."""
    lm, task = tiny_lm(), tiny_task("first", 0)
    short = replace(task, held_out=tuple(sorted(task.held_out, key=lambda e: len(e.prompt)))[:4])
    words = " ".join(f"w{i}" for i in np.random.default_rng(3).integers(57, size=41))
    long = Example(words[: words.rindex(" ")], words[words.rindex(" ") :])
    call = getattr(ha, name)

    def summed(examples: tuple[Example, ...]) -> np.ndarray:
        return call(lm, replace(short, held_out=examples), limit=8).contribution.values[0] * len(examples)

    alone = summed(short.held_out) + 0.5 * summed((long, replace(long, kind="again")))
    np.testing.assert_allclose(summed((*short.held_out, long)), alone, rtol=1e-3, atol=1e-5)
