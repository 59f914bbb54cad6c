"""What the pages say is what the program does."""

import importlib.util
import json
import re
import shlex
from pathlib import Path

import pytest
import typer.main

from headatlas.cli.app import app
from headatlas.models.cache import cache_folder
from headatlas.models.families import FAMILIES

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("page", ["README.md", "docs/heads.md"])
def test_python_on_the_pages_runs(page, default_lm, capsys) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    assert blocks
    converted = next(p for p in (cache_folder() / "models").glob("SmolLM2*") if p.is_dir())
    exec("\n".join(blocks).replace("path/to/folder", str(converted)), {})
    shown = re.findall(r"print\(.*\)  # (.*)", "\n".join(blocks))
    assert capsys.readouterr().out.splitlines() == shown


def test_the_readme_counts_and_lists_what_is_here() -> None:
    readme = (ROOT / "README.md").read_text()
    assert f"{len(FAMILIES)} families" in readme
    folders = {p.parent.name for p in (ROOT / "src" / "headatlas").glob("*/__init__.py")}
    assert folders <= set(re.findall(r"^  (\w+)/", readme, flags=re.MULTILINE))
    for page in re.findall(r"\]\((docs/[\w.-]+)\)", readme):
        assert (ROOT / page).is_file()


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_pictures_and_pages_that_are_linked_are_there() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\(((?!https?:|#)[^)#]+)", page.read_text()):
            assert (page.parent / link).is_file(), f"{page.name}: {link}"


EXAMPLE = ("adding-a-method.md", "size")  # the method that the page adds; tests/test_plug_in.py runs it


def _commands() -> dict:
    """All commands by name: those written by hand, and one for each method."""
    group = typer.main.get_command(app)
    return {name: group.get_command(None, name) for name in group.list_commands(None)}


def test_commands_on_the_pages_exist_with_their_options() -> None:
    """Every line of a code block that calls headatlas: its command, its options, and choices that are written out."""
    commands = _commands()
    seen = set()
    for page in PAGES:
        blocks = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        lines = [line for language, text in blocks if not language for line in text.splitlines()]
        for line in lines:
            if not line.startswith("headatlas ") or (page.name, line.split()[1]) == EXAMPLE:
                continue
            call = re.split(r"\s{3,}|#", line)[0].replace("[", "").replace("]", "")
            name, *words = shlex.split(call)[1:]
            assert name in commands, f"{page.name}: {line}"
            seen.add(name)
            options = {o for p in commands[name].params for o in (*p.opts, *p.secondary_opts)}
            for word in words:
                assert not word.startswith("--") or word.split("=")[0] in options, f"{page.name}: {line}"
    assert seen >= {"run", "maps", "gate", "probe", "ablate", "figures", "report", "heads", "head", "compare", "import"}


def test_every_command_is_on_the_first_page() -> None:
    readme = (ROOT / "README.md").read_text()
    missing = [name for name in _commands() if not re.search(rf"\b{name}\b", readme)]
    assert not missing


def test_the_reference_is_what_methods_declare() -> None:
    """`make docs` writes it."""
    assert (ROOT / "docs" / "reference.md").read_text() == _script("docs_reference").page()


def _script(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_the_tables_of_the_benchmark_are_those_it_gave() -> None:
    """What `make docs-benchmark` wrote stands there unchanged."""
    script = _script("docs_benchmark")
    run = json.loads((ROOT / "docs" / "figures" / "benchmark.json").read_text())
    assert script.BEGIN + script.readme_block(run) + script.END in (ROOT / "README.md").read_text()
    assert script.BEGIN + script.page_block(run) + script.END in (ROOT / "docs" / "benchmark.md").read_text()
    assert run["planted"] == script.planted()


def test_the_benchmark_says_that_targets_are_met() -> None:
    run = json.loads((ROOT / "docs" / "figures" / "benchmark.json").read_text())
    auroc = {(row["method"], row["truth"]): row["AUROC"] for row in run["table"]}
    assert auroc["gate", "functions"] >= 0.95
    assert auroc["ablate", "functions"] >= 0.95
    assert auroc["probe-written", "functions"] >= 0.90
    assert auroc["maps", "relations, noise 0"] >= 0.98


def test_the_numbers_of_the_readme_are_those_of_the_default_run() -> None:
    """What `make docs-figures` wrote into the README stands there unchanged."""
    script = _script("docs_figures")
    run = json.loads((ROOT / "docs" / "figures" / "default-run.json").read_text())
    assert script.BEGIN + script.block(run) + script.END in (ROOT / "README.md").read_text()


def test_answers_before_and_after_are_those_of_the_run() -> None:
    """What `make docs-dissociate` wrote into its page stands there unchanged."""
    script = _script("docs_dissociate")
    run = json.loads((ROOT / "docs" / "figures" / "dissociate-run.json").read_text())
    assert script.BEGIN + script.block(run) + script.END in (ROOT / "docs" / "dissociate.md").read_text()
