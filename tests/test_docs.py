"""What the pages say is what the program does."""

import re
from pathlib import Path

import pytest

from headatlas.models.cache import cache_folder
from headatlas.models.families import FAMILIES
from tests.test_default_model import lm  # noqa: F401  # the fixture that fetches the default model

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.xdist_group("default model")


@pytest.mark.parametrize("page", ["README.md", "docs/heads.md"])
def test_python_on_the_pages_runs(page, lm, capsys) -> None:  # noqa: F811
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    assert blocks
    converted = next(p for p in (cache_folder() / "models").glob("SmolLM2*") if p.is_dir())
    exec("\n".join(blocks).replace("path/to/folder", str(converted)), {})
    shown = re.findall(r"print\(.*\)  # (.*)", "\n".join(blocks))
    assert capsys.readouterr().out.splitlines() == shown


def test_the_readme_counts_and_lists_what_is_here() -> None:
    readme = (ROOT / "README.md").read_text()
    assert f"in {len(FAMILIES)} architectures" in readme
    here = {p.name for p in (ROOT / "src" / "headatlas").rglob("*.py")} - {"__init__.py"}
    assert here <= set(re.findall(r"(\w+\.py)", readme))
    for page in re.findall(r"\]\((docs/[\w.-]+)\)", readme):
        assert (ROOT / page).is_file()
