"""What the pages say is what the program does."""

import inspect
import json
import re
import shlex
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import typer.main

import headatlas as ha
from headatlas.cli.app import app
from headatlas.methods import get_method, methods, preset_methods
from headatlas.models.cache import cache_folder
from headatlas.models.families import FAMILIES
from headatlas_bench.contenders import contenders
from headatlas_bench.names import TRUTH_KINDS
from tests.figures import synthetic
from tests.figures.made_tests import with_tests

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/read-and-change-heads.md"])
def test_python_on_the_pages_runs(page, default_lm, capsys) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    assert blocks
    converted = next(p for p in (cache_folder() / "models").glob("SmolLM2*") if p.is_dir())
    exec("\n".join(blocks).replace("path/to/folder", str(converted)), {})
    shown = re.findall(r"print\(.*\)  # (.*)", "\n".join(blocks))
    assert capsys.readouterr().out.splitlines() == shown


def test_the_first_pages_count_and_list_what_is_here() -> None:
    readme, contributing = ((ROOT / page).read_text() for page in ("README.md", "CONTRIBUTING.md"))
    assert f"{len(FAMILIES)} families" in readme
    folders = {p.parent.name for p in (ROOT / "src" / "headatlas").glob("*/__init__.py")}
    listed = re.findall(r"^\| ([\w, ]+) \|", contributing, flags=re.MULTILINE)
    assert folders <= {name for row in listed for name in row.split(", ")}
    for page in re.findall(r"(?:\]\(|\]: )((?!https?:)[\w./-]+)", readme):
        assert (ROOT / page).is_file()


def test_the_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 100
    assert not [line for line in lines if len(line) > 120]


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_pictures_and_pages_that_are_linked_are_there() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\(((?!https?:|#)[^)#]+)", page.read_text()):
            assert (page.parent / link).is_file(), f"{page.name}: {link}"


EXAMPLE = ("adding-a-method.md", "size")  # the method that the page adds; tests/test_plug_in.py runs it


def _commands() -> dict:
    """Return all commands by name, those of methods included."""
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


def test_every_method_is_on_the_first_page() -> None:
    readme = (ROOT / "README.md").read_text()
    table = [line.split("|")[1] for line in readme.partition("| method |")[2].partition("\n\n")[0].splitlines()[2:]]
    listed = re.findall(r"`(\w+)`", " ".join(table))
    assert sorted(listed) == sorted(name for name, method in methods().items() if method.source == "headatlas")
    index = (ROOT / "docs" / "methods" / "index.md").read_text()
    assert not [name for name in preset_methods("full") if f"({name.replace('_', '-')}.md)" not in index]


@pytest.mark.parametrize("page", ["methods.md", "commands.md"])
def test_the_reference_is_what_methods_and_commands_declare(page) -> None:
    """`make docs` writes it."""
    assert (ROOT / "docs" / "reference" / page).read_text() == import_module("docs_reference").pages()[page]


def test_the_reference_tells_the_options_that_all_methods_have() -> None:
    common = set(inspect.signature(ha.taylor).parameters) - {"model", *get_method("taylor").options}
    assert set(re.findall(r"^\| `(\w+)`", import_module("docs_reference").METHODS, flags=re.MULTILINE)) == common


PROSE = [ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md")] + PAGES


@pytest.mark.parametrize("page", PROSE, ids=lambda p: str(p.relative_to(ROOT)))
def test_lines_of_prose_are_short(page) -> None:
    """At most 120 characters; tables and printed output may be longer."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert not [line for line in prose.splitlines() if len(line) > 120 and not line.lstrip().startswith("|")]


def test_the_tables_of_the_benchmark_are_those_it_gave() -> None:
    """The page has what `make docs-benchmark` writes."""
    script = import_module("docs_benchmark")
    run = json.loads((ROOT / "docs" / "figures" / "benchmark.json").read_text())
    page = (ROOT / "docs" / "evidence" / "benchmark.md").read_text()
    assert script.BEGIN + script.page_block(run) + script.END in page
    assert run["planted"] == script.planted_rows()


def test_the_benchmark_has_every_method_or_says_why_not() -> None:
    run = json.loads((ROOT / "docs" / "figures" / "benchmark.json").read_text())
    measured = {row["method"] for row in run["table"]}
    _, _, remaining_text = (ROOT / "docs" / "evidence" / "benchmark.md").read_text().partition("**Not here:**")
    excluded = set(re.findall(r"`(\w+)`", remaining_text.partition("\n\n")[0]))
    copying = {"pattern-induction", "copying", "retrieval", "streaming"}  # explained in the text
    for name, method in methods().items():
        if method.source == "headatlas":
            assert set(method.truths) <= measured | copying
            assert bool(method.truths) != (name in excluded)


def test_harder_plantings_are_those_that_ship_and_every_method_is_measured_on_them() -> None:
    run = json.loads((ROOT / "docs" / "figures" / "benchmark.json").read_text())
    assert run["harder"] == import_module("docs_benchmark").harder_rows()
    plantings = {row["planting"] for row in run["plantings"]}
    assert plantings == {"redundant", "backup", "decoy", "shared", "relay", "harmful"}
    by_kind = {kind: {n for n, c in contenders().items() if c.truth.kind == kind} for kind in TRUTH_KINDS}
    for planting, first in {(row["planting"], row["first"]) for row in run["plantings"]}:
        measured_methods = {
            row["method"] for row in run["plantings"] if (row["planting"], row["first"]) == (planting, first)
        }
        assert measured_methods == by_kind["interference" if first == "the harmful" else "functions"]
    ig = {
        row["planting"]: row["AUROC"]
        for row in run["plantings"]
        if (row["method"], row["first"]) == ("ig", "both sets")
    }
    assert min(ig["redundant"], ig["backup"]) >= 0.95


def test_the_benchmark_says_that_targets_are_met() -> None:
    run = json.loads((ROOT / "docs" / "figures" / "benchmark.json").read_text())
    auroc = {(row["method"], row["truth"]): row["AUROC"] for row in run["table"]}
    assert auroc["gate", "functions"] >= 0.95
    assert auroc["ablate", "functions"] >= 0.95
    assert auroc["probe-written", "functions"] >= 0.90
    assert auroc["maps", "relations, noise 0"] >= 0.98


def test_the_numbers_of_the_default_run_are_those_it_gave() -> None:
    """The page has what `make docs-figures` writes."""
    script = import_module("docs_figures")
    run = json.loads((ROOT / "docs" / "figures" / "default-run.json").read_text())
    page = (ROOT / "docs" / "evidence" / "default-model.md").read_text()
    assert script.BEGIN + script.block(run) + script.END in page


def test_examples_are_of_the_commands_that_the_script_runs() -> None:
    """What `make docs-examples` wrote begins with its command."""
    first = {p.stem: p.read_text().partition("\n")[0] for p in (ROOT / "docs" / "examples").glob("*.txt")}
    assert first == {name: f"$ {command}" for name, command in import_module("docs_examples").COMMANDS.items()}


def test_answers_before_and_after_are_those_of_the_run() -> None:
    """The page has what `make docs-dissociate` writes."""
    script = import_module("docs_dissociate")
    run = json.loads((ROOT / "docs" / "figures" / "dissociate-run.json").read_text())
    assert script.BEGIN + script.block(run) + script.END in (ROOT / "docs" / "methods" / "dissociate.md").read_text()


def test_no_placeholder_ships() -> None:
    placeholder = re.compile(r"\b(XX+|TODO|FIXME|TBD)\b|\?\?\?")
    sources = [
        *PAGES,
        ROOT / "CHANGELOG.md",
        *(ROOT / "src").rglob("*.py"),
        *(ROOT / "bench").rglob("*.py"),
        *(ROOT / "src").rglob("*.js"),
    ]
    placeholders = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sources
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if placeholder.search(line)
    ]
    assert not placeholders


def test_tables_of_the_larger_model_show_the_tests_of_its_maps() -> None:
    script = import_module("docs_qwen")
    made = with_tests(synthetic.atlas(6, 8))
    probe = made["probe"].assign(accuracy_per_function=made["probe"].importance.sum(("layer", "head")))
    roles = ["facilitation", "interference", "irrelevance"]
    share = np.full((3, 2, 2), 0.3)
    gate = made["gate"].assign_coords(role=roles, share_over=["always", "any"])
    gate = gate.assign(share=(("role", "share_over", "task"), share))
    functions = script.function_rows(probe, made["dissociate"])
    assert [row["outcome"] for row in functions[:2]] == ["supported", "not supported"]
    assert [row["dissociate"] for row in functions[3:5]] == ["no ability", "not tested"]
    assert [row["log P"] for row in script.dissociate_rows(made["dissociate"], "function")[:2]] == ["-1.20", "-0.10"]
    assert [row["outcome"] for row in script.gate_rows(gate)[:2]] == ["supported", "not tested"]
    assert [row["relation"] for row in script.relation_rows(made["maps"])][
        -1
    ] == "relation_6"  # not those without ability
    assert script.outcome_counts(made["maps"]) == [
        {"supported": 2, "not supported": 2, "undecided": 2, "no ability": 2}
    ]
    assert "| supported, p 0.014, 4 heads |" in script.make_blocks({"maps": made["maps"]})["evidence"][2]
