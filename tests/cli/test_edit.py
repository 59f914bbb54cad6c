"""`headatlas edit` and `headatlas evaluate`."""

import json

import numpy as np
import pytest

import headatlas as ha
from tests.test_cli import headatlas


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": f"w{i} w3", "target": f" w{i + 1}"}) for i in range(30)))
    return path


def test_edit_writes_a_checkpoint_and_evaluate_measures_it_again(capsys, folder, data, tmp_path) -> None:
    np.save(tmp_path / "d.npy", np.ones(10))
    options = ["--remove", "L1.H3,l0.h0", "--scale", "L2.H1=0.5", "--steer", f"L2.H1={tmp_path / 'd.npy'}*3"]
    measured = ["--tasks", data, "--draws", 2, "--limit", 4]
    code, out, _ = headatlas(capsys, "edit", folder, "--out", tmp_path / "new", *options, *measured)
    assert code == 0
    assert out.startswith("removed L0.H0, L1.H3\nscaled L2.H1 × 0.5\nsteered L2.H1\n")
    assert "random" in out
    assert out.endswith(f"wrote {tmp_path / 'new'} (0 MB)\n")
    lm = ha.load(tmp_path / "new")
    assert not lm.weights.W_O(1, 3).any()
    both = [folder, tmp_path / "new", "--tasks", data, "--text", data, "--json"]
    code, out, _ = headatlas(capsys, "evaluate", *both)
    assert code == 0
    tasks, texts = json.loads(out).values()
    assert (tasks[0]["task"], tasks[0]["examples"]) == ("mine", 6)
    assert [row["model"] for row in texts] == [str(folder), str(tmp_path / "new")]
    code, out, _ = headatlas(capsys, "evaluate", *both[:4])
    assert "accuracy a" in out
    again = ["--out", tmp_path / "again", *options[:2], "--no-measure", "--json"]
    code, out, _ = headatlas(capsys, "edit", folder, *again)
    assert json.loads(out)["removed"] == ["L0.H0", "L1.H3"]
    assert json.loads(out)["folder"] == str(tmp_path / "again")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give --remove, --scale, --steer, or --set with --atlas"),
        (["--remove", "L9.H0"], "head L9.H0 is out of range: this model has L0 to L2, H0 to H5"),
        (["--remove", "L9H0"], "'L9H0' is not a head"),
        (["--scale", "L0.H9=0.5"], "out of range"),
        (["--steer", "L0.H1=none.npy"], "no such file"),
        (["--set", "math by gate"], "--set is 'math by gate' without --atlas"),
        (["--set", "math", "--atlas", "."], "expected such as 'math by dissociate'"),
        (["--remove", "L0.H0", "--atlas", "none"], "no such folder"),
        (["--remove", "L0.H0", "--tasks", "none"], "'none' is neither built in"),
        (["--remove", "L0.H0", "--out", "."], "--out is '.', which exists"),
    ],
)
def test_mistakes_are_told_before_torch_is_imported(capsys, folder, tmp_path, monkeypatch, options, message) -> None:
    monkeypatch.setattr("headatlas.cli.edit.import_torch", lambda: pytest.fail("too late"))
    code, out, err = headatlas(capsys, "edit", folder, "--out", tmp_path / "new", *options)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "new").exists()
