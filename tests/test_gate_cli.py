"""`headatlas gate`, `ablate` and `tasks`."""

import json

import pytest

from headatlas.results.store import load
from tests.test_cli import headatlas


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "<mine>.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": f"w{i} w3", "target": f" w{i + 1}"}) for i in range(30)))
    return path


def test_gate_prints_tables_and_writes_the_file(capsys, folder, data, tmp_path) -> None:
    options = ["--data", data, "--seeds", 2, "--updates", 3, "--out", tmp_path / "out"]
    code, out, err = headatlas(capsys, "gate", folder, *options)
    assert code == 0
    assert "<mine>: the whole model gets" in err
    assert "Heads switched off against on" in out
    assert f"wrote {tmp_path / 'out' / 'gate.nc'}" in out
    found = load(tmp_path / "out" / "gate.nc")
    assert found.gate.sizes == {"fit": 3, "task": 1, "seed": 2, "layer": 3, "head": 6}
    assert found.attrs["free_updates"] == found.attrs["pressed_updates"] == 3
    code, out, _ = headatlas(capsys, "gate", folder, *options, "--json")
    parts = json.loads(out)
    roles = parts["Heads by role (share of heads with a score of 0.5 or more, in every seed and in any)"]
    always = found.share.sel(task="<mine>", role="facilitation", share_over="always").item()
    assert roles[0]["always"] == f"{always:.1%}"


def test_contrastive_gating(capsys, folder, data, tmp_path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text(data.read_text().replace('"w', '"w5 w'))
    options = ["--keep", data, "--lose", other, "--updates", 2, "--out", tmp_path / "out"]
    code, out, _ = headatlas(capsys, "gate", folder, *options)
    assert code == 0
    assert "Kept and lost" in out
    assert load(tmp_path / "out" / "contrast.nc").attrs["lose"] == "other"


@pytest.mark.parametrize("how", ["zero", "mean", "resample", "taylor", "ig", "pattern"])
def test_ablate(capsys, folder, data, tmp_path, how) -> None:
    options = ["--data", data, "--how", how, "--examples", 3, "--out", tmp_path / "out"]
    code, out, _ = headatlas(capsys, "ablate", folder, *options)
    assert code == 0
    name = how if how in ("taylor", "ig", "pattern") else "ablate"
    assert f"wrote {tmp_path / 'out' / name}.nc" in out
    found = load(tmp_path / "out" / f"{name}.nc")
    assert found.attrs.get("how", how) == how
    code, out, _ = headatlas(capsys, "ablate", folder, *options, "--json")
    assert len(next(iter(json.loads(out).values()))) == (3 if how == "pattern" else 1)


def test_tasks_are_listed(capsys) -> None:
    code, out, _ = headatlas(capsys, "tasks")
    assert code == 0
    assert all(name in out for name in ("math", "syntax", "commonsense", "aba_abb", "--data"))
    code, out, _ = headatlas(capsys, "tasks", "--json")
    assert all(row["train"] + row["held out"] >= 400 for row in json.loads(out))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["gate", "--tasks", "maths"], 2, "Did you mean 'math'?"),
        (["gate", "--seeds", "0"], 2, "seeds is 0, expected a whole number from 1"),
        (["gate", "--strength", "-1"], 2, "strength is -1.0, expected a number above 0"),
        (["gate", "--preset", "slow"], 2, "preset is 'slow', expected one of quick, full"),
        (["gate", "--keep", "math"], 2, "lose is missing"),
        (["gate", "--tokens", "0"], 2, "tokens is 0"),
        (["ablate", "--how", "noise"], 2, "how is 'noise', expected one of zero, mean, resample"),
        (["ablate", "--examples", "1"], 2, "examples is 1"),
        (["gate", "--data", "empty.jsonl"], 2, "has 0 examples"),
        (["gate", "--data", "blank.jsonl"], 1, "example 1 has target '', expected text"),
        (["gate", "--data", "one.csv"], 2, "has 1 example, expected at least 2"),
        (["gate", "--data", "long.jsonl"], 2, "but the model's context is"),
    ],
)
def test_asked_wrongly(capsys, folder, tmp_path, monkeypatch, arguments, code, message) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "blank.jsonl").write_text('{"prompt": "w1", "target": ""}\n')
    (tmp_path / "one.csv").write_text("prompt,target\nw1,w2\n")
    long = [json.dumps({"prompt": "w1 " * (500 + i), "target": "w2"}) for i in range(5)]
    (tmp_path / "long.jsonl").write_text("\n".join(long))
    verb, *options = arguments
    ended, out, err = headatlas(capsys, verb, folder, *options, "--out", tmp_path / "out")
    lines = [line for line in err.splitlines() if line.startswith("error:")]
    assert (ended, len(lines), out) == (code, 1, "")
    assert message in lines[0]
