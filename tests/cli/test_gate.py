"""`headatlas gate`, `contrast`, the methods of single heads, and `tasks`."""

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
    assert "Causal head gating: top heads" in out
    assert f"wrote {tmp_path / 'out' / 'gate.nc'}" in out
    result = load(tmp_path / "out" / "gate.nc")
    assert result.gate.sizes == {"fit": 3, "task": 1, "seed": 2, "layer": 3, "head": 6}
    assert result.attrs["free_updates"] == result.attrs["pressed_updates"] == 3
    code, out, _ = headatlas(capsys, "gate", folder, *options, "--json")
    parts = json.loads(out)
    always = result.share.sel(task="<mine>", role="facilitation", share_over="always").item()
    shares = next(rows for title, rows in parts.items() if title.startswith("share of heads"))
    assert shares[0]["<mine>"] == pytest.approx(always, rel=0.01)


def test_contrastive_gating(capsys, folder, data, tmp_path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text(data.read_text().replace('"w', '"w5 w'))
    options = ["--keep", data, "--lose", other, "--updates", 2, "--out", tmp_path / "out"]
    code, out, _ = headatlas(capsys, "contrast", folder, *options)
    assert code == 0
    assert "Contrastive gating: top heads" in out
    assert load(tmp_path / "out" / "contrast.nc").attrs["lose"] == "other"


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("ablate", ["--kind", "zero"]),
        ("ablate", ["--kind", "mean"]),
        ("ablate", ["--kind", "resample"]),
        ("taylor", []),
        ("ig", []),
    ],
)
def test_methods_of_single_heads(capsys, folder, data, tmp_path, command, options) -> None:
    options = ["--data", data, *options, "--limit", 3, "--out", tmp_path / "out"]
    code, out, _ = headatlas(capsys, command, folder, *options)
    assert code == 0
    assert out.endswith(f"wrote {tmp_path / 'out' / command}.nc\n")
    result = load(tmp_path / "out" / f"{command}.nc")
    assert result.contribution.sizes == {"task": 1, "layer": 3, "head": 6}
    code, out, _ = headatlas(capsys, command, folder, *options, "--json")
    assert len(next(iter(json.loads(out).values()))) == 1


def test_tables_of_a_method_without_its_own(capsys, folder, tmp_path) -> None:
    """The top heads of each subject of each measure."""
    code, out, _ = headatlas(capsys, "pattern", folder, "--out", tmp_path / "out", "--json")
    assert code == 0
    score = load(tmp_path / "out" / "pattern.nc").score
    [(title, rows)] = json.loads(out).items()
    assert title == "Attention patterns: top heads"
    assert [row["pattern"] for row in rows] == score.pattern.values.tolist()
    for row, map_scores in zip(rows, score, strict=True):
        best = map_scores.stack(place=("layer", "head")).idxmax().item()
        assert row["top heads"].startswith(f"L{best[0]}.H{best[1]} {map_scores.max().item():.3g}, ")


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
        (["gate", "--strength", "much"], 2, "--strength is 'much', expected a number."),
        (["gate", "--preset", "slow"], 2, "preset is 'slow', expected one of quick, full"),
        (["contrast", "--keep", "math"], 2, "Missing option '--lose'"),
        (["gate", "--batch-tokens", "0"], 2, "batch_tokens is 0"),
        (["ablate", "--kind", "noise"], 2, "kind is 'noise', expected one of zero, mean, resample"),
        (["ablate", "--limit", "1"], 2, "limit is 1"),
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
    assert (ended, len(lines)) == (code, 1)
    assert message in lines[0]
    # how many tokens are run at once is checked only when the model is: the plan was printed by then
    assert out.startswith("Plan for ") if "--batch-tokens" in arguments else out == ""
