"""The command: what it prints, how it ends, and that an error is one line."""

import json
import os
import shutil
import subprocess
import sys

import pytest

import headatlas as ha
from headatlas import cli
from headatlas.errors import BadArgument, BadFile
from headatlas.models.gguf import from_gguf
from headatlas.models.lm import LM
from headatlas.tasks.relations import load_relations
from tests.models.tiny import TINY, build, tokenizer
from tests.models.tiny_gguf import tiny_llama, write_gguf


@pytest.fixture
def folder(tmp_path):
    build(TINY[0]).save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


def headatlas(capsys, *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_run_writes_the_atlas_and_says_what_could_not_be_done(capsys, folder, tmp_path) -> None:
    """This model's tokenizer knows none of the built-in words, so there is nothing to map."""
    tokenizer().save_pretrained(folder)
    code, out, err = headatlas(capsys, "run", folder, "--out", tmp_path / "atlas")
    assert code == 0
    assert err.count("a map of a task that the model fails shows little") == 4  # taylor and gate, of both tasks
    assert "maps failed: relations: none of the 20 has 30 pairs left" in out
    assert "dissociate failed: task 'aba_abb' needs 40 words that are single tokens" in out
    assert "could not be drawn" not in out
    made = ha.open(tmp_path / "atlas")
    model = made.info["model"]
    assert (model["n_layers"], model["n_heads"], model["n_kv_heads"], model["d_head"]) == (3, 6, 2, 10)
    assert model["fingerprint"] in out
    assert made.info["run"]["versions"]["torch"]
    assert [name for name, m in made.info["methods"].items() if m["complete"]] == [
        "pattern",
        "salient",
        "taylor",
        "gate",
        "probe",
    ]
    with pytest.raises(
        BadArgument, match="'maps' is not in this atlas, which has pattern, salient, taylor, gate, probe"
    ):
        made["maps"]


def test_an_atlas_gives_its_maps(tmp_path, monkeypatch) -> None:
    lm = LM(build(TINY[0]), tokenizer(), "tiny")
    mine = [{"name": "one", "category": "Knowledge", "pairs": [[f"w{i}", f"w{i + 1}"] for i in range(40)]}]
    monkeypatch.setattr("headatlas.tasks.relations.load_relations", lambda _: load_relations(mine))
    made = ha.run(lm, tmp_path / "atlas", methods=["maps", "salient", "pattern", "taylor"])
    assert made.complete == ["pattern", "salient", "taylor", "maps"]
    assert made["maps"].score.sel(relation="one").shape == (3, 6)
    assert "maps" in repr(made)
    results = [f"{name}.nc" for name in ("maps", "pattern", "salient", "taylor", "tests")]
    assert {"atlas.json", "figures", "report.html", *results} == set(os.listdir(tmp_path / "atlas"))


def test_models_lists_families_and_says_the_same_as_json(capsys) -> None:
    code, table, _ = headatlas(capsys, "models")
    assert code == 0
    code, text, _ = headatlas(capsys, "models", "--json")
    families = json.loads(text)["families"]
    assert code == 0
    assert len(families) == 28
    assert all(row["model_type"] in table for row in families)


def test_models_are_listed_with_sizes_and_deleted_by_name(capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HEADATLAS_CACHE", str(tmp_path / "cache"))
    write_gguf(tmp_path / "tiny.gguf", tiny_llama())
    converted = from_gguf(tmp_path / "tiny.gguf")
    old = converted.with_name(converted.name.removesuffix("-v2"))  # as earlier versions named it
    shutil.copytree(converted, old)
    assert headatlas(capsys, "models", "--where")[1] == f"{tmp_path / 'cache'}\n"
    rows = {row["model"]: row for row in json.loads(headatlas(capsys, "models", "--json")[1])["cached"]}
    assert rows[converted.name]["note"] == "converted"
    assert rows[old.name]["note"] == "of another version: not used"
    assert isinstance(rows[old.name]["size_mb"], int)
    code, _, err = headatlas(capsys, "models", "--delete", "tinny")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "model 'tinny' is not in the cache; it holds: tiny-" in err
    code, out, _ = headatlas(capsys, "models", "--delete", old.name)
    assert (code, out) == (0, f"deleted {old} (0 MB)\n")
    assert converted.is_dir()
    shutil.copytree(converted, old)
    assert headatlas(capsys, "models", "--delete", "tiny")[0] == 0  # by the file's name: all that were made of it
    assert list((tmp_path / "cache" / "models").iterdir()) == []
    assert (tmp_path / "tiny.gguf").is_file()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["rum"], 2, "run"),
        (["run", "--nope"], 2, "--nope"),
        (["run", "--out"], 2, "--out"),
        (["run", "/no/such/folder"], 2, "no such file or folder"),
        (["run", "x.gguf"], 2, "no such file"),
        (["run", "smolm2"], 1, "Did you mean 'smollm2'"),
        (["run", "--dtype", "int3"], 2, "dtype is 'int3'"),
        (["run", "--device", "cuda:99"], 2, "cuda:99"),
        (["run", "/"], 1, "no config.json"),
        (["run", "--out", __file__], 2, "which is a file"),
    ],
)
def test_an_error_is_one_line_and_a_code(capsys, arguments, code, message) -> None:
    ended, out, err = headatlas(capsys, *arguments)
    assert (ended, out) == (code, "")
    assert err.startswith("error: ")
    assert message in err
    assert len(err.splitlines()) == 1


def test_debug_shows_the_traceback() -> None:
    command = [sys.executable, "-c", "from headatlas.cli import main; main()", "run", "/no/such/folder", "--debug"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode
    assert "Traceback" in done.stderr
    assert "BadArgument" in done.stderr


def test_an_interruption_is_one_line_and_1(capsys, folder, monkeypatch) -> None:
    def stop(*a, **k) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("headatlas.runs.run.run", stop)
    code, _, err = headatlas(capsys, "run", folder)
    assert (code, err) == (1, "error: interrupted: the same command with --out atlas resumes\n")


def test_a_bug_is_one_line_too(capsys, folder, monkeypatch) -> None:
    monkeypatch.setattr("headatlas.runs.run.run", lambda *a, **k: 1 / 0)
    code, _, err = headatlas(capsys, "run", folder)
    assert code == 1
    assert err == "error: unexpected ZeroDivisionError: division by zero (please report it, with --debug)\n"


def test_help_version_and_the_methods_do_not_load_torch() -> None:
    code = (
        "import sys; from headatlas.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: print([m for m in ('torch', 'xarray', 'numpy', 'matplotlib') if m in sys.modules])"
    )
    for arguments in (["--help"], ["--version"], ["gate", "--help"], ["methods"]):
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
        assert done.stdout.rstrip().endswith("[]"), arguments
        assert done.stderr == ""


def test_a_folder_that_is_no_atlas(tmp_path) -> None:
    for content, message in [
        (None, "is not an atlas"),
        ("{", "is not JSON"),
        ("[]", "expected an object"),
        ("{}", "lacks model"),
    ]:
        if content is not None:
            (tmp_path / "atlas.json").write_text(content)
        with pytest.raises(BadFile, match=message):
            ha.open(tmp_path)
