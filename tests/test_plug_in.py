"""docs/how-to/adding-a-method.md, followed: a package with one file, installed with HeadAtlas; broken packages."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import headatlas as ha
from headatlas.cli import plug_ins
from headatlas.errors import CannotDo
from headatlas.methods import methods
from headatlas.testing import check_method, tiny_lm, tiny_tokenizer
from tests.registry import find_methods_again
from tests.test_cli import headatlas

PAGE = (Path(__file__).parent.parent / "docs" / "how-to" / "adding-a-method.md").read_text()
CODE, TOML = (re.search(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)[1] for kind in ("python", "toml"))


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Where the example is installed."""
    package, site = tmp_path_factory.mktemp("package"), tmp_path_factory.mktemp("site")
    (package / "headatlas_size.py").write_text(CODE)
    (package / "pyproject.toml").write_text(TOML)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", site, package], check=True, cwd=package)
    return site


@pytest.fixture
def installed(site, monkeypatch):
    monkeypatch.syspath_prepend(site)
    find_methods_again()
    yield site
    find_methods_again()


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny_lm().model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def task(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("tasks") / "words.jsonl"
    rows = [{"prompt": f"w{i} w{i + 1}", "target": f" w{i + 2}"} for i in range(40)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_it_is_short() -> None:
    assert len(CODE.splitlines()) < 60


def test_it_keeps_the_contract(installed) -> None:
    check_method(methods()["size"].function, limit=4)


def test_it_is_listed_and_has_a_command(installed, model, task, tmp_path, capsys) -> None:
    code, out, _ = headatlas(capsys, "methods", "--json")
    assert code == 0
    [row] = [row for row in json.loads(out) if row["name"] == "size"]
    assert row["title"] == "Size of what heads write"
    assert row["source"] == "headatlas-size"
    code, out, _ = headatlas(capsys, "size", "--help")
    assert code == 0
    assert "Prompts of each task" in out
    code, out, _ = headatlas(capsys, "size", model, "--data", task, "--limit", 4, "--out", tmp_path)
    assert code == 0
    assert "words" in out
    assert (tmp_path / "size.nc").is_file()
    assert ha.size(str(model), [task], limit=4, out=tmp_path).attrs["method"] == "size"


def test_in_a_run(installed, model, tmp_path) -> None:
    local_atlas = ha.run(model, tmp_path / "a", methods=["size", "taylor"])
    assert set(local_atlas) == {"size", "taylor"}
    again = ha.run(model, tmp_path / "a", methods=["size", "taylor"])
    assert again.info["methods"] == local_atlas.info["methods"]  # nothing was done twice
    names = {path.name for path in (tmp_path / "a" / "figures").iterdir()}
    assert {"importance-size.png", "agreement.png", "layers.png"} <= names
    assert "How much a head writes" in (tmp_path / "a" / "figures" / "importance-size.txt").read_text()
    assert "Size of what heads write" in (tmp_path / "a" / "report.html").read_text()
    rows = local_atlas.heads("math", 3)
    assert set(rows.method) == {"size", "taylor"}
    card = local_atlas["size"].heads.card("L1.H2")
    assert [s.method for s in card.standings] == ["size", "size"]
    assert np.isfinite(ha.compare(local_atlas["size"]["size"], local_atlas["taylor"].contribution).spearman).all()


@pytest.mark.slow
def test_with_every_engine(installed, model, tmp_path) -> None:
    ha.run(model, tmp_path / "a", methods=["size"], draw=False)
    expected = (tmp_path / "a" / "size.nc").read_bytes()
    ha.run(model, tmp_path / "b", methods=["size"], workers=1, draw=False)
    assert (tmp_path / "b" / "size.nc").read_bytes() == expected
    code = (
        "import sys, torch, headatlas as ha; torch.set_num_threads(int(sys.argv[3]));"
        " ha.run(*sys.argv[1:3], methods=['size'], engine='ray', workers=1, draw=False)"
    )
    threads = os.environ.get("TEST_THREADS", "1")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(installed), *filter(None, sys.path)])}
    command = [sys.executable, "-c", code, str(model), str(tmp_path / "c"), threads]
    subprocess.run(command, check=True, env=environment)
    assert (tmp_path / "c" / "size.nc").read_bytes() == expected


def installed_by_hand(folder: Path, name: str, value: str, code: str, group: str = "headatlas.methods") -> None:
    """What an installed package with one module and one entry point is."""
    (folder / f"{value.partition(':')[0]}.py").write_text(code)
    info = folder / f"broken_{name}-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: broken-{name}\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n")


WRONG_DIMS = '''
import headatlas as ha, xarray as xr
@ha.method(title="t", measures=[ha.Measure("score", over="task")])
def wrong(lm: ha.LM) -> xr.Dataset:
    """Something."""
    return xr.Dataset({"score": (("layer", "head"), [[1.0]])})
'''


@pytest.mark.parametrize(
    ("name", "code", "line"),
    [
        (
            "lost",
            "import nowhere",
            "method lost of broken-lost is left out: ModuleNotFoundError: No module named 'nowhere'",
        ),
        ("gate", WRONG_DIMS, "method gate of broken-gate is left out: the name is taken by the method of headatlas"),
        ("plain", "def plain(lm): ...", "is not declared with @headatlas.method"),
        ("other", WRONG_DIMS.replace("def wrong", "def another"), "its function is called 'another'"),
    ],
)
def test_a_broken_one_is_one_line_and_the_others_work(name, code, line, tmp_path, monkeypatch, capsys) -> None:
    function = {"gate": "wrong", "other": "another"}.get(name, name)
    installed_by_hand(tmp_path, name, f"broken_{name}:{function}", code)
    monkeypatch.syspath_prepend(tmp_path)
    find_methods_again()
    try:
        code, out, err = headatlas(capsys, "methods")
        assert code == 0
        assert [message for message in err.splitlines() if line in message]
        assert err.count("left out") == 1
        assert "Causal head gating" in out
    finally:
        find_methods_again()


def test_a_result_that_is_not_as_declared_is_one_line(tmp_path, monkeypatch) -> None:
    installed_by_hand(tmp_path, "wrong", "broken_dims:wrong", WRONG_DIMS)
    monkeypatch.syspath_prepend(tmp_path)
    find_methods_again()
    try:
        with pytest.raises(
            CannotDo, match=r"method wrong: score is over \(layer, head\), expected \(task, layer, head\)"
        ):
            ha.wrong(tiny_lm())
        made = ha.run(tiny_lm(), tmp_path / "atlas", methods=["wrong", "pattern"], draw=False)
        assert list(made) == ["pattern"]
        assert "expected (task, layer, head)" in made.info["methods"]["wrong"]["why"]
    finally:
        find_methods_again()


class TestCommands:
    """Functions of other packages, named by entry points of the group `headatlas.commands`."""

    @pytest.fixture
    def install(self, tmp_path, monkeypatch):
        """Installs a package of one command."""

        def install(name: str, value: str, code: str) -> None:
            folder = tmp_path / "site"
            folder.mkdir()
            installed_by_hand(folder, name, value, code, "headatlas.commands")
            monkeypatch.syspath_prepend(folder)
            find_methods_again()

        yield install
        find_methods_again()

    def test_the_one_of_the_page(self, installed, install, model, task, tmp_path, capsys) -> None:
        code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[1]
        entry = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[1]
        name, value = re.search(r'"headatlas.commands"]\n(.*) = "(.*)"', entry).groups()
        install(name, value, code)
        ha.size(str(model), [task], limit=4, out=tmp_path)
        assert "List the heads that write most." in headatlas(capsys, "--help")[1]
        assert "Number of heads per task." in headatlas(capsys, name, "--help")[1]
        ended, out, err = headatlas(capsys, name, tmp_path, "--top", 2, "--json")
        assert (ended, err) == (0, "")
        assert len(json.loads(out)) == 2
        ended, _, err = headatlas(capsys, name, tmp_path / "nowhere")
        assert ended == 2
        assert err.startswith("error: atlas is ")

    @pytest.mark.parametrize(
        ("value", "code", "line"),
        [
            ("broken_lost:lost", "import nowhere", "ModuleNotFoundError: No module named 'nowhere'"),
            ("broken_less:lost", "", "AttributeError: module 'broken_less' has no attribute 'lost'"),
            ("broken_five:lost", "lost = 5", "TypeError: 5 is not a callable object"),
        ],
    )
    def test_a_broken_one_matters_only_when_it_is_used(self, install, value, code, line, capsys) -> None:
        install("lost", value, code)
        assert headatlas(capsys, "--version")[2] == ""
        assert headatlas(capsys, "tasks")[2] == ""
        ended, out, err = headatlas(capsys, "--help")
        assert ended == 0
        assert "List the built-in tasks" in out
        assert err == f"command lost of broken-lost is left out: {line}\n"
        find_methods_again()
        ended, _, err = headatlas(capsys, "lost")
        assert ended == 2
        assert err == f"command lost of broken-lost is left out: {line}\nerror: No such command 'lost'.\n"

    @pytest.mark.parametrize("name", ["run", "function-vector"])
    def test_a_name_that_is_taken_stays_ours(self, install, name, capsys) -> None:
        install(name, "broken_taken:taken", "def taken() -> None:\n    '''Not ours.'''\n")
        ended, out, err = headatlas(capsys, "--help")
        assert ended == 0
        assert "Not ours." not in out
        assert err == f"command {name} of broken-{name} is left out: the name is taken\n"
        assert "Not ours." not in headatlas(capsys, name, "--help")[1]

    @pytest.mark.parametrize("name", ["benchmark", "plant"])
    def test_without_the_package_the_error_names_it(self, name, monkeypatch, capsys) -> None:
        monkeypatch.setattr(plug_ins, "entry_points", lambda group: ())
        find_methods_again()
        ended, _, err = headatlas(capsys, name, "--out", "somewhere")
        find_methods_again()
        assert ended == 2
        assert err.startswith(
            f"error: No such command {name!r}. It is part of the package headatlas-bench: run `pip install"
        )
        with pytest.raises(AttributeError, match="headatlas.benchmark is now headatlas_bench.benchmark"):
            ha.benchmark  # noqa: B018
