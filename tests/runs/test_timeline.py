"""How far a run is, and what it says about that."""

import io
import json
import re
import sys
from pathlib import Path

import pytest

import headatlas as ha
from headatlas import terminal
from headatlas.progress import Watch
from headatlas.runs.timeline import PRIOR_SECONDS, Timeline
from headatlas.terminal import RunDisplay
from headatlas.testing import tiny_lm

USUAL = {"quick": 10.0, "slow": 30.0}
TASKS = {"quick": 1, "slow": 3}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_time_left_follows_the_pace(clock) -> None:
    timeline = Timeline(USUAL, TASKS, clock=clock)
    assert timeline.remaining_seconds() == 40
    assert timeline.remaining_seconds("slow") == 30
    timeline.begin("quick")
    clock.now = 4.0
    assert timeline.remaining_seconds() == 36
    clock.now = 25.0  # later than usual: it may end any moment, and says nothing of the others yet
    assert timeline.remaining_seconds() == 30
    timeline.end("quick", 25.0)
    timeline.finish("quick", None)
    pace = (PRIOR_SECONDS + 25) / (PRIOR_SECONDS + 10)
    assert timeline.pending == ["slow"]
    assert timeline.remaining_seconds() == timeline.remaining_seconds("slow") == pytest.approx(30 * pace)
    assert timeline.share == pytest.approx(1 - 30 / 40)
    assert timeline.seconds_of("quick") == 25
    assert Timeline(USUAL, TASKS, workers=2, clock=clock).remaining_seconds() == 20


def test_ended_tasks_and_time_shorten_what_is_left(clock) -> None:
    timeline = Timeline(USUAL, TASKS, clock=clock)
    timeline.begin("slow")
    timeline.end("slow", 1.0)  # faster than usual
    assert timeline.remaining_seconds("slow") == pytest.approx(20)
    clock.now = 25.0
    assert timeline.remaining_seconds("slow") == pytest.approx(5)
    clock.now = 300.0
    assert timeline.remaining_seconds("slow") == 0


def test_a_log_gets_few_lines_however_many_updates_there_are(clock, monkeypatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(terminal, "_print_line", lines.append)
    monkeypatch.setattr(terminal.time, "monotonic", clock)
    display = RunDisplay()
    timeline = Timeline(USUAL, TASKS, watch=display, clock=clock)
    display.on_begin(timeline)
    timeline.begin("quick")
    for _ in display(range(2000), "fitting"):
        clock.now += 1
    timeline.end("quick", 2000.0)
    timeline.finish("quick", None)
    display.on_page_drawn(Path("atlas/report.html"))
    display.on_page_drawn(Path("atlas/report.html"))
    display.on_end()
    assert lines[0] == "method 1 of 2: quick, about 10 s; about 40 s left in total"
    assert lines[1].startswith("method 1 of 2: quick: fitting, 30 of 2000; about")
    assert lines[-2:] == [
        "quick took 2000 s",
        "first results: atlas/report.html (open it now; it fills up as methods finish)",
    ]
    assert len(lines) < 12


def test_on_a_terminal_it_is_two_lines(clock, monkeypatch) -> None:
    from rich.console import Console

    console = Console(file=io.StringIO(), width=100)
    display = RunDisplay()
    timeline = Timeline(USUAL, TASKS, watch=display, clock=clock)
    display.timeline = timeline
    display.live = object()  # as if shown
    timeline.begin("quick")
    for _ in display(range(45), "fitting"):
        break
    console.print(display._render())
    first, second = console.file.getvalue().splitlines()
    assert first.startswith("method 1 of 2: quick ")
    assert first.rstrip().endswith("about 40 s left in total")
    assert re.match(r"  fitting .* 0 of 45", second)


class Seen(Watch):
    def __init__(self, folder: Path) -> None:
        self.folder, self.pages, self.figures = folder, [], []

    def on_page_drawn(self, page: Path) -> None:
        self.pages.append(page.read_text())
        self.figures.append({p.name: p.stat().st_mtime_ns for p in (self.folder / "figures").iterdir()})


def test_the_page_is_there_after_the_first_method_and_figures_are_drawn_once(tmp_path) -> None:
    seen = Seen(tmp_path)
    ha.run(tiny_lm(), tmp_path, methods=["pattern", "taylor", "ablate"], tests=False, watch=seen)
    assert len(seen.pages) == 2  # the last one is without a word: it is complete
    pending = [json.loads(re.search(r'"pending":(\[.*?\])', text)[1]) for text in seen.pages]
    assert [len(p) for p in pending] == [2, 1]
    assert all("(about " in method for method in pending[0])
    assert all('http-equiv="refresh"' in text for text in seen.pages)
    final = (tmp_path / "report.html").read_text()
    assert 'http-equiv="refresh"' not in final
    assert '"pending":[]' in final
    first, second = seen.figures
    importance = [name for name in first if name.startswith("importance")]
    assert importance
    assert len(second) > len(first)
    last = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "figures").iterdir()}
    kept = [name for name in importance if name.endswith(".png")]
    assert all(first[name] == last[name] for name in kept)


def test_an_interrupted_run_leaves_a_page_that_does_not_wait(tmp_path) -> None:
    class Interrupts(Watch):
        def on_page_drawn(self, page: Path) -> None:
            assert 'http-equiv="refresh"' in page.read_text()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ha.run(tiny_lm(), tmp_path, methods=["pattern", "taylor"], watch=Interrupts())
    assert 'http-equiv="refresh"' not in (tmp_path / "report.html").read_text()
    assert len(list(tmp_path.glob("*.nc"))) == 1


def test_the_command_opens_the_page_once(tmp_path, monkeypatch, capsys) -> None:
    from tests.test_cli import headatlas

    folder, opened = tmp_path / "model", []
    lm = tiny_lm()
    lm.model.save_pretrained(folder)
    lm.tokenizer.save_pretrained(folder)
    monkeypatch.setattr("webbrowser.open", lambda uri: opened.append(uri) or False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    code, _, told = headatlas(capsys, "run", folder, "--out", tmp_path / "a", "--methods", "pattern,taylor", "--open")
    assert code == 0
    assert opened == [(tmp_path / "a" / "report.html").as_uri()]
    assert "no browser could be started" in told
    assert "first results: " in told


def test_without_a_command_the_first_three_are_shown(capsys) -> None:
    from tests.test_cli import headatlas

    code, shown, _ = headatlas(capsys)
    assert code == 0
    assert re.findall(r"^  headatlas (\w+)", shown, flags=re.MULTILINE) == ["run", "run", "heads"]
