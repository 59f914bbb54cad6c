"""Small PNG files instead of figures in every format and print quality, which take most of a run of tests."""

from functools import partial

import pytest

from headatlas.figures import saving
from headatlas.figures.figure_names import FORMATS
from headatlas.figures.style import check_formats, save


def draw_small() -> None:
    """Draw small PNG files in this process, unless a format is asked for."""
    saving.check_formats = lambda formats: ["png"] if formats == FORMATS else check_formats(formats)
    saving.save = partial(save, dpi=40)


def pytest_configure(config: pytest.Config) -> None:
    draw_small()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-references",
        action="store_true",
        help="keep figures as they are drawn now as what they should look like",
    )


@pytest.fixture
def print_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures as users get them: in every format, in print quality."""
    monkeypatch.setattr(saving, "check_formats", check_formats)
    monkeypatch.setattr(saving, "save", save)
