"""Set-up shared by all tests, and the table of families × properties, written from what really ran."""

import json
import os
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import filelock
import pytest
import torch
import transformers
from xdist.scheduler import LoadScopeScheduling

from headatlas import terminal
from headatlas.figures import files
from headatlas.figures.names import FORMATS
from headatlas.figures.style import check_formats, save
from headatlas.methods import _plug_ins, methods
from headatlas.models.cache import cache_folder
from headatlas.models.families import FAMILIES
from headatlas.models.lm import LM
from headatlas.models.loading import load
from tests.models.tiny import TINY, build, tokenizer

torch.set_num_threads(int(os.environ.get("TEST_THREADS", 1)))  # the suite runs in two processes on two cores
os.environ["OMP_NUM_THREADS"] = os.environ.get("TEST_THREADS", "1")  # and so do those that tests start
os.environ["HF_HUB_OFFLINE"] = "1"  # no test may wait for a network
transformers.utils.logging.disable_progress_bar()
terminal.SILENT = 1e6  # how slow the machine is must not show in what commands print

# Files that take long, a line for each worker to do alone. They begin first, so that no worker has one left at the end.
TOGETHER = [
    ["tests/test_default_model.py", "tests/test_docs.py", "tests/test_examples.py"],  # they load the default model once
    ["tests/runs/test_engines.py", "tests/test_plug_in.py", "tests/engines/test_pool.py"],  # they start and kill others
    ["tests/planted/test_benchmark.py"],
    ["tests/figures/test_drawn.py"],
    ["tests/report/test_page.py"],
    ["tests/test_contract.py"],
    ["tests/test_atlas.py"],
    ["tests/models/test_families.py"],
    ["tests/planted/test_planted.py"],
    ["tests/test_probe_public.py"],
    ["tests/test_typed.py"],
]
LONG = {file: number for number, files in enumerate(TOGETHER) for file in files}

TABLE = Path(__file__).parent.parent / "docs" / "reference" / "families.md"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-docs",
        action="store_true",
        help="write docs/reference/families.md from this run instead of checking it",
    )
    parser.addoption(
        "--update-references",
        action="store_true",
        help="keep figures as they are drawn now as what they should look like",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "family_property(number, name): a column of docs/reference/families.md")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONG.get(item.nodeid.partition("::")[0], len(LONG)))
    for item in items:
        mark = item.get_closest_marker("family_property")
        if mark:
            tiny = item.callspec.params["tiny"]
            precision = "float32" if tiny.dtype is torch.float32 else "float64"
            note = f"{precision}, to {tiny.tolerance:.0e}" + (f" ({tiny.rounds})" if tiny.rounds else "")
            item.user_properties.append(("family", (tiny.family, tiny.id, note, mark.args)))


class _Table:
    """Collects outcomes in the process that sees all of them (under xdist, the controller)."""

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


@pytest.fixture(scope="session")
def default_lm() -> LM:
    """The one that `make atlas` and the README use."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(cache_folder() / ".test-lock"):  # fetch and dequantise once, not once per process
        return load("smollm2")


def draw_small() -> None:
    """In this process: unless a format is asked for, small PNG files. PDF and print quality take most of a run."""
    files.check_formats = lambda formats: ["png"] if formats == FORMATS else check_formats(formats)
    files.save = partial(save, dpi=40)


draw_small()


def find_again() -> None:
    """Methods of other packages are looked for once in a process."""
    methods.cache_clear()
    _plug_ins.cache_clear()


@pytest.fixture
def print_figures(monkeypatch) -> None:
    """Figures as users get them: in every format, in print quality."""
    monkeypatch.setattr(files, "check_formats", check_formats)
    monkeypatch.setattr(files, "save", save)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny model on disk, with its tokenizer."""
    build(TINY[0]).save_pretrained(tmp_path / "tiny")
    tokenizer().save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


@pytest.fixture
def endpoint():
    """Replies what `server.says` holds, in turn, the last one for ever: a text; None or a status fails."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.server.path = self.path
            self.server.requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            content = self.server.says[min(len(self.server.requests), len(self.server.says)) - 1]
            self.send_response(503 if content is None else content if isinstance(content, int) else 200)
            self.end_headers()
            reply = {"choices": [{"message": {"content": content}}]}
            self.wfile.write(json.dumps(reply).encode() if content is not None else b"down")

        def log_message(self, *args) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.requests, server.says = [], []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    server.address = f"http://127.0.0.1:{server.server_port}/v1"
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(_Table(session.config), "family-table")


class _ByFile(LoadScopeScheduling):
    """A file's tests go to one worker, so what they share is made once, and so do those of `TOGETHER`.

    Marks for groups are not used: with pytest 9.2, pytest-xdist 3.8 does not see them (its issue 1386).
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return str(LONG.get(file, file))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log) -> LoadScopeScheduling:
    config.option.loadscopereorder = False  # it would begin with files of many tests, which are quick ones
    return _ByFile(config, log)
