"""The benchmark is a separate package that requires the headatlas of the same version."""

import tomllib
from pathlib import Path

import headatlas
import headatlas_bench
from headatlas.cli.plug_ins import command_entries

ROOT = Path(__file__).parents[2]


def test_both_packages_have_one_version() -> None:
    project = tomllib.loads((ROOT / "bench" / "pyproject.toml").read_text())["project"]
    assert headatlas_bench.__version__ == headatlas.__version__
    assert project["dependencies"] == [f"headatlas=={headatlas.__version__}"]


def test_its_commands_are_those_it_declares() -> None:
    """They come from the installed package, like those of any plug-in."""
    project = tomllib.loads((ROOT / "bench" / "pyproject.toml").read_text())["project"]
    declared = project["entry-points"]["headatlas.commands"]
    assert {name: entry.value for name, entry in command_entries().items() if name in declared} == declared


def test_the_main_package_carries_no_planted_model() -> None:
    large = [path for path in (ROOT / "src").rglob("*") if path.is_file() and path.stat().st_size > 2e6]
    assert not large
