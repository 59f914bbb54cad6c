"""`headatlas dissociate`."""

import json

import pytest

from headatlas.results.store import load
from tests.test_cli import headatlas


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "<mine>.jsonl"
    rows = [{"prompt": f"w{i} w3", "target": f" w{i + 1}", "kind": ("one", "two")[i % 2]} for i in range(40)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_dissociate_prints_tables_and_writes_the_file(capsys, folder, data, tmp_path) -> None:
    options = ["--data", data, "--updates", 3, "--out", tmp_path / "out"]
    code, out, _ = headatlas(capsys, "dissociate", folder, *options)
    assert code == 0
    assert "Dissociate: top heads" in out
    assert f"wrote {tmp_path / 'out' / 'dissociate.nc'}" in out
    result = load(tmp_path / "out" / "dissociate.nc")
    assert result.function.values.tolist() == ["one", "two"]
    code, out, _ = headatlas(capsys, "dissociate", folder, *options, "--json")
    first = next(iter(json.loads(out).values()))
    assert [row["function"] for row in first] == ["one", "two"]


@pytest.mark.parametrize(
    ("options", "status", "text"),
    [
        (["--tasks", "maths"], 2, "Did you mean 'math'"),
        (["--preset", "slow"], 2, "quick, full"),
        (["--functions", "Retrieval"], 2, "expected at least 2"),
        (["--data", "none.json"], 2, "--data is 'none.json': no such file"),
    ],
)
def test_bad_input_is_one_line(capsys, folder, tmp_path, options, status, text) -> None:
    code, _, err = headatlas(capsys, "dissociate", folder, *options, "--out", tmp_path / "out")
    assert code == status
    assert text in err
    assert "Traceback" not in err
