"""`headatlas maps` and `headatlas head`."""

import json

import pytest

from headatlas.cli.atlas import EVIDENCE_TITLE
from headatlas.results.store import load
from headatlas.tasks.relations import load_relations
from tests.test_cli import headatlas


@pytest.fixture
def relations(tmp_path):
    (tmp_path / "rel").mkdir()
    for name, shift in (("one", 1), ("<script>", 4)):
        pairs = [[f"w{i}", f"w{(i + shift) % 57}"] for i in range(35)]
        content = {"category": "Knowledge", "pairs": pairs, "prompt": "w3 {} w4"}
        (tmp_path / "rel" / f"{name}.json").write_text(json.dumps(content))
    return tmp_path / "rel"


def test_maps_prints_tables_and_writes_the_file(capsys, folder, relations, tmp_path) -> None:
    options = ["--relations", relations, "--out", tmp_path / "out", "--dynamic", 3, "--no-tests"]
    code, out, err = headatlas(capsys, "maps", folder, *options)
    assert code == 0
    assert [line.partition(" took ")[0] for line in err.splitlines()][1:] == ["maps"]
    assert "one" in out
    assert "<script>" in out
    assert "dynamic correlation" in out
    result = load(tmp_path / "out" / "maps.nc")
    assert {"score", "dynamic", "baseline_score"} <= set(result.data_vars)
    code, out, _ = headatlas(capsys, "maps", folder, *options, "--json")
    assert code == 0
    assert [row["relation"] for row in json.loads(out)["Relations (MAPS): each relation"]] == ["<script>", "one"]


def test_maps_and_run_say_that_nothing_was_found(capsys, folder, relations, tmp_path, monkeypatch) -> None:
    """Of a model with random weights."""
    options = ["--relations", relations, "--out", tmp_path / "out"]
    nothing = "maps: no relation has a head above chance in this model: the best is "
    code, out, _ = headatlas(capsys, "maps", folder, *options)
    assert code == 0
    assert any(line.startswith(nothing) for line in out.splitlines())
    assert out.count("no head above chance (best ") == 4  # scores and suppression of two relations
    _, out, _ = headatlas(capsys, "head", folder, "L1.H2", "--tokens", 2, "--atlas", tmp_path / "out")
    assert "at chance" in out
    _, out, _ = headatlas(capsys, "head", folder, "L1.H2", "--tokens", 2, "--atlas", tmp_path / "out", "--json")
    standings = json.loads(out)["standings"]
    assert {row["rank"] for row in standings} == {None}
    assert all(row["value"] <= row["chance"] for row in standings)
    monkeypatch.setattr("headatlas.tasks.relations.load_relations", lambda _: load_relations(relations))
    code, out, _ = headatlas(capsys, "run", folder, "--methods", "maps", "--no-tests", "--out", tmp_path / "run")
    assert code == 0
    assert f"{EVIDENCE_TITLE}: none\n" in out
    assert any(line.startswith(nothing) for line in out.splitlines())
    code, out, _ = headatlas(capsys, "maps", folder, *options[:3], tmp_path / "without", "--no-baselines")
    assert code == 0
    assert "no head above chance" not in out
    assert " chance\n" not in out


def test_head_shows_what_it_amplifies(capsys, folder, relations, tmp_path) -> None:
    headatlas(capsys, "maps", folder, "--relations", relations, "--out", tmp_path / "out")
    code, out, err = headatlas(capsys, "head", folder, "L1.H2", "--tokens", 4, "--atlas", tmp_path / "out")
    assert (code, err) == (0, "")
    assert "L1.H2" in out
    code, out, _ = headatlas(capsys, "head", folder, "l1.h2", "--tokens", 4, "--json")
    assert code == 0
    assert len(json.loads(out)["operations"]) == 4


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["head", "L9.H0"], 2, "out of range: this model has L0 to L2, H0 to H5"),
        (["head", "nine"], 2, "write it as L12.H5"),
        (["head", "L0.H0", "--atlas", "/nowhere"], 2, "--atlas is '/nowhere': no such folder"),
        (["head", "L0.H0", "--describe", "localhost"], 2, "expected the address of an endpoint"),
        (["head", "L0.H0", "--describe", "http://127.0.0.1:9/v1"], 1, "gave no answer"),
        (["maps", "--relations", "/nowhere"], 2, "--relations is '/nowhere': no such file or folder"),
        (["maps", "--k", "0"], 2, "k is 0"),
        (["maps", "--threshold", "2"], 2, "threshold is 2"),
        (["maps"], 2, "none of the 20 has 30 pairs left"),
    ],
)
def test_errors_are_one_line(capsys, folder, tmp_path, arguments, code, message) -> None:
    command, *rest = arguments
    out = [] if command == "head" else ["--out", tmp_path / "out"]
    ended, _, err = headatlas(capsys, command, folder, *rest, *out)
    assert ended == code, err
    assert message in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "out" / "maps.nc").exists()


def test_describe_asks_the_endpoint_it_is_given(capsys, folder, endpoint) -> None:
    endpoint.says = ["It maps words to words."]
    options = ["--tokens", 3, "--describe", endpoint.address, "--describe-model", "m"]
    code, out, err = headatlas(capsys, "head", folder, "L1.H2", *options)
    assert (code, err) == (0, "")
    assert "It maps words to words." in out
    [content] = endpoint.requests
    assert endpoint.path == "/v1/chat/completions"
    assert content["model"] == "m"
    assert content["messages"][0]["content"].count("→") == 3
