"""One kind of mistake has one exit code, whatever the command: 2 for a usage error, 1 if a valid request failed.

A path that does not exist, or is of the wrong kind, an unknown name and a value out of range are usage errors. A file
that exists and cannot be used is a failure.
"""

import json

import pytest
from typer.main import get_command

from headatlas import cli
from headatlas.methods import method_names
from tests.test_cli import headatlas

COMMANDS = get_command(cli.app).list_commands(None)
METHOD_COMMANDS = {name.replace("_", "-") for name in method_names()}  # made by one function, so testing some is enough
LISTINGS = {"models", "tasks", "methods"}
NEEDS_MODEL = {  # arguments of each command that takes a model; MODEL and OUT are filled in
    "run": ["run", "MODEL", "--methods", "pattern", "--out", "OUT"],
    "run --plan": ["run", "MODEL", "--plan"],
    "gate": ["gate", "MODEL", "--out", "OUT"],
    "salient": ["salient", "MODEL", "--out", "OUT"],  # from its parameters alone
    "head": ["head", "MODEL", "L0.H0"],
    "view": ["view", "MODEL", "--no-open"],
    "edit": ["edit", "MODEL", "--remove", "L0.H0", "--out", "OUT"],
    "evaluate": ["evaluate", "MODEL", "MODEL", "--tasks", "math"],
    "test": ["test", "MODEL", "--heads", "L0.H0", "--task", "math"],
    "benchmark": ["benchmark", "--models", "MODEL", "--out", "OUT"],
}
NEEDS_ATLAS = {
    "figures": ["figures", "ATLAS"],
    "report": ["report", "ATLAS"],
    "heads": ["heads", "ATLAS"],
    "compare": ["compare", "ATLAS", "ATLAS"],
    "view": ["view", "MODEL", "--no-open", "--atlas", "ATLAS"],
    "test": ["test", "MODEL", "--from", "ATLAS", "--method", "taylor", "--subject", "math"],
    "export": ["export", "ATLAS", "--to", "headkv", "--out", "OUT"],
    "head": ["head", "MODEL", "L0.H0", "--atlas", "ATLAS"],
    "benchmark": ["benchmark", "--methods", "norm", "--atlas", "ATLAS", "--out", "OUT"],
}
NEEDS_DATA = {
    "maps": ["maps", "MODEL", "--relations", "DATA.json", "--out", "OUT"],
    "gate": ["gate", "MODEL", "--data", "DATA.jsonl", "--out", "OUT"],
    "test": ["test", "MODEL", "--heads", "L0.H0", "--data", "DATA.jsonl"],
    "contrast": ["contrast", "MODEL", "--keep", "math", "--lose", "DATA.jsonl", "--out", "OUT"],
    "probe": ["probe", "MODEL", "--questions", "DATA.json", "--out", "OUT"],
    "probe, test": ["probe", "MODEL", "--questions", "GOOD.json", "--test", "DATA.json", "--out", "OUT"],
    "import": ["import", "DATA.json", "--out", "OUT"],
    "import, kind": ["import", "DATA.json", "--as", "importance", "--out", "OUT"],
    "influence": ["influence", "MODEL", "--texts", "DATA.jsonl", "--out", "OUT"],
}
WRITES = {name: a for name, a in NEEDS_MODEL.items() if "OUT" in a} | {
    "import": ["import", "GOOD.csv", "--out", "OUT"],
    "import, kind": ["import", "GOOD.csv", "--as", "importance", "--out", "OUT"],
    "plant": ["plant", "OUT"],
    "export": ["export", "empty", "--to", "headkv", "--out", "OUT"],
}


@pytest.fixture
def place(tmp_path, folder, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "GOOD.json").write_text(json.dumps([{"question": "w1", "generated": []}]))
    (tmp_path / "GOOD.csv").write_text("function,layer,head,importance\na,0,0,1\n")
    (tmp_path / "a-file").write_text("{")
    (tmp_path / "empty").mkdir()
    return tmp_path


def ended(capsys, arguments, **values) -> int:
    """The exit code, of a command that says one line and nothing else."""
    for placeholder, value in values.items():
        arguments = [a.replace(placeholder, str(value)) for a in arguments]
    code, out, err = headatlas(capsys, *arguments)
    assert out == ""
    assert [line for line in err.splitlines() if line.startswith("error: ")] == err.splitlines()[-1:], err
    assert "unexpected" not in err, err
    return code


def each_command(table: dict[str, list[str]]):
    return pytest.mark.parametrize("arguments", table.values(), ids=table)


@each_command(NEEDS_MODEL)
def test_a_model_that_is_not_there(capsys, place, arguments) -> None:
    assert ended(capsys, arguments, MODEL="no/such/folder", OUT="out") == 2
    assert ended(capsys, arguments, MODEL="a-file", OUT="out") == 2


@each_command({name: a for name, a in NEEDS_MODEL.items() if name != "benchmark"})
def test_a_model_that_cannot_be_used(capsys, place, arguments) -> None:
    """benchmark takes planted models only: another folder is a wrong name there."""
    assert ended(capsys, arguments, MODEL="empty", OUT="out") == 1


@each_command(NEEDS_ATLAS)
def test_an_atlas_that_is_not_there(capsys, place, folder, arguments) -> None:
    for atlas in ("nowhere", "a-file"):
        assert ended(capsys, arguments, ATLAS=atlas, MODEL=folder, OUT="out") == 2


@each_command(NEEDS_ATLAS)
def test_an_atlas_that_cannot_be_used(capsys, place, folder, arguments) -> None:
    assert ended(capsys, arguments, ATLAS="empty", MODEL=folder, OUT="out") == 1
    (place / "empty" / "atlas.json").write_text("{")
    assert ended(capsys, arguments, ATLAS="empty", MODEL=folder, OUT="out") == 1


@each_command(NEEDS_DATA)
def test_data_that_is_not_there(capsys, place, folder, arguments) -> None:
    assert ended(capsys, arguments, DATA="nowhere", MODEL=folder, OUT="out") == 2


@each_command(NEEDS_DATA)
def test_data_that_cannot_be_read(capsys, place, folder, arguments) -> None:
    for name in ("data.json", "data.jsonl"):
        (place / name).write_text("{")
    assert ended(capsys, arguments, DATA="data", MODEL=folder, OUT="out") == 1


@each_command(WRITES)
def test_a_folder_for_results_that_is_a_file(capsys, place, folder, arguments) -> None:
    assert ended(capsys, arguments, OUT="a-file", MODEL=folder) == 2


COUNTS = {
    "run": "--workers",
    "gate": "--seeds",
    "maps": "--dynamic",
    "heads": "--top",
    "compare": "--top",
    "import": "--heads",
    "export": "--sink",
    "head": "--tokens",
    "benchmark": "--seed",
    "plant": "--steps",
}


@pytest.mark.parametrize("command", sorted({*COMMANDS} - METHOD_COMMANDS | {*COUNTS}))
def test_options_and_values(capsys, place, command) -> None:
    assert ended(capsys, [command, "--no-such-option"]) == 2
    if command in COUNTS:
        assert ended(capsys, [command, COUNTS[command], "many"]) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["gate", "MODEL", "--seeds", "100000000"],
        ["gate", "MODEL", "--batch", "1000000000"],
        ["gate", "MODEL", "--updates", "1000000000000"],
        ["gate", "MODEL", "--shots", "1000000000"],
        ["gate", "MODEL", "--seeds", "-1"],
        ["dissociate", "MODEL", "--tasks", "math,syntax", "--seeds", "100000000"],
        ["dissociate", "MODEL", "--tasks", "math,syntax", "--limit", "0"],
        ["ablate", "MODEL", "--limit", "0"],
        ["streaming", "MODEL", "--recent", "0"],
        ["head", "MODEL", "L0.H0", "--tokens", "0"],
        ["run", "MODEL", "--workers", "100000000"],
        ["run", "MODEL", "--gpus-per-job", "100000000"],
        ["run", "MODEL", "--device", "cuda:99"],
        ["plant", "new", "--steps", "0"],
        ["plant", "new", "--kv-heads", "3"],
        ["benchmark", "--seed", "-1"],
        ["compare", "empty", "--top", "0"],
        ["import", "GOOD.csv", "--heads", "0", "--out", "out"],
        ["export", "empty", "--to", "duo-attention", "--recent", "0", "--out", "out"],
        ["import", "GOOD.csv", "--layers", "1000000000", "--out", "out"],
    ],
    ids=" ".join,
)
def test_counts_that_cannot_be(capsys, place, folder, arguments) -> None:
    assert ended(capsys, arguments, MODEL=folder) == 2


def test_every_command_is_in_a_table() -> None:
    tables = (NEEDS_MODEL, NEEDS_ATLAS, NEEDS_DATA, WRITES)
    assert {a[0] for table in tables for a in table.values()} >= {*COMMANDS} - METHOD_COMMANDS - LISTINGS
