"""The table of families × properties in docs/reference/families.md, written from what really ran."""

from pathlib import Path

import pytest
import torch

from headatlas.models.families import FAMILIES

TABLE = Path(__file__).parents[2] / "docs" / "reference" / "families.md"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-docs",
        action="store_true",
        help="write docs/reference/families.md from this run instead of checking it",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "family_property(number, name): a column of docs/reference/families.md")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Collect outcomes in the process that sees all of them (under xdist, the controller)."""
    if not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(_Table(session.config), "family-table")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Note the family, configuration and precision of every test of a property."""
    for item in items:
        mark = item.get_closest_marker("family_property")
        if mark:
            tiny = item.callspec.params["tiny"]
            precision = "float32" if tiny.dtype is torch.float32 else "float64"
            note = f"{precision}, to {tiny.tolerance:.0e}" + (f" ({tiny.rounds})" if tiny.rounds else "")
            item.user_properties.append(("family", (tiny.family, tiny.id, note, mark.args)))


class _Table:
    """The outcomes of a session, by family, configuration and property."""

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.cells, self.notes = config, {}, {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for key, value in report.user_properties:
            if key == "family" and (report.when == "call" or report.failed):
                family, variant, note, prop = value
                self.cells[(family, variant, tuple(prop))] = report.passed
                self.notes[variant] = note

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        rows = sorted({(list(FAMILIES).index(f), f, v) for f, v, _ in self.cells})
        properties = sorted({p for _, _, p in self.cells})
        complete = len(self.cells) == len(rows) * len(properties) and {f for _, f, _ in rows} == set(FAMILIES)
        if not complete or not rows:
            return  # a partial run says nothing about the table
        text = _render([(f, v) for _, f, v in rows], properties, self.cells, self.notes)
        if self.config.getoption("--update-docs"):
            TABLE.write_text(text)
        elif not TABLE.is_file() or TABLE.read_text() != text:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            self.stale = True

    def pytest_terminal_summary(self, terminalreporter) -> None:
        if getattr(self, "stale", False):
            terminalreporter.write_line(
                f"{TABLE} does not say what this run showed: pytest tests/models/test_families.py --update-docs",
                red=True,
            )


def _render(rows: list, properties: list, cells: dict, notes: dict) -> str:
    head = ["family", "configuration", *(str(number) for number, _ in properties), "held to"]
    lines = [
        "# Families and what is tested of each",
        "",
        "Written by `pytest tests/models/test_families.py --update-docs` from the outcomes of the tests;",
        "`make test` fails when it is not what they showed.",
        "Every row is a tiny random model with odd shapes, wherever its architecture has them: grouped heads,",
        "head size ≠ hidden / heads, biases on.",
        "",
        *(f"{number}. {name}" for number, name in properties),
        "",
        "| " + " | ".join(head) + " |",
        "| " + " | ".join("---" for _ in head) + " |",
    ]
    for family, variant in rows:
        marks = ["✓" if cells[(family, variant, p)] else "✗" for p in properties]
        lines.append("| " + " | ".join([FAMILIES[family].title, f"`{variant}`", *marks, notes[variant]]) + " |")
    return "\n".join(lines) + "\n"
